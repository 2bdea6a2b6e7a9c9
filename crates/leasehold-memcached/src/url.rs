//! From a URL to what must be known to connect.

use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::record::LATEST_SWAP;
use leasehold_core::url::{About, Address, Url};

/// What URLs are about here.
pub(crate) const ABOUT: About =
    About { store: "memcached", forms: "write it like memcached://host:11211, with one host" };

const PORT: u16 = 11211;

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: Address,
    /// The longest that one call takes, and that connecting takes.
    pub(crate) timeout: Duration,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let mut url = Url::parse(ABOUT, url)?;
        if url.scheme != "memcached" || !matches!(url.path.as_str(), "" | "/") {
            return Err(ABOUT.invalid(ABOUT.forms));
        }
        if url.login.user.is_some() || url.login.password.is_some() {
            return Err(ABOUT.invalid("no user and no password: memcached is protected by its network"));
        }
        let Ok([address]) = <[_; 1]>::try_from(url.addresses(PORT)?) else {
            let message = "several servers forget independently: make them members of a quorum, as in \
                           quorum:memcached://a,memcached://b,memcached://c";
            return Err(ABOUT.invalid(message));
        };
        let timeout = url.query.duration("timeout")?.unwrap_or(Duration::from_secs(1));
        if timeout > LATEST_SWAP {
            // A request that waits for longer could arrive when another holder's record has come and gone.
            return Err(ABOUT.invalid("a timeout is at most 30s: write it like timeout=1s"));
        }
        url.query.done("known is timeout")?;
        Ok(Self { address, timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how_long() {
        let target = Target::parse("memcached://cache?timeout=300ms").unwrap();
        assert_eq!(target.address.to_string(), "cache:11211");
        assert_eq!(target.timeout, Duration::from_millis(300));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (url, reason) in [
            ("memcached:cache", "write it like"),
            ("memcached://", "write it like"),
            ("memcached://h/1", "write it like"),
            ("memcached://a,b", "members of a quorum"),
            ("memcached://h?timeout=31s", "at most 30s"),
            ("memcached://u:hunter2@h", "protected by its network"),
            ("memcached://h:x", "no port"),
            ("memcached://h?ttl=1s", "known is timeout"),
        ] {
            let said = Target::parse(url).unwrap_err().to_string();
            assert!(said.contains(reason) && !said.contains("hunter2"), "{url}: {said}");
        }
    }
}
