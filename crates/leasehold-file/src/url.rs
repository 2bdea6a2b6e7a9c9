//! From a URL to a directory.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::local::Network;
use leasehold_core::url::{About, PathUrl};

/// What URLs are about here.
const ABOUT: About = About {
    store: "file",
    forms: "write it like file:///var/lock/app/, with three slashes, or file:relative/",
};

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    /// Whether a network file system will do.
    pub(crate) network: Network,
    /// How long a call waits for the directory's lock.
    pub(crate) timeout: Duration,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let PathUrl { path, mut query } = PathUrl::parse(ABOUT, url)?;
        if path.as_os_str().is_empty() {
            return Err(ABOUT.invalid(ABOUT.forms));
        }
        let network = match query.switch("network")? {
            Some(true) => Network::Accepted,
            _ => Network::Refused,
        };
        let timeout = query.duration("timeout")?.unwrap_or(Duration::from_secs(5));
        query.done("known are network and timeout")?;
        Ok(Self { path, network, timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_directory() {
        let target = Target::parse("file:///var/lock/my%20app/?network=on&timeout=300ms").unwrap();
        assert_eq!(target.path, PathBuf::from("/var/lock/my app/"));
        assert_eq!((target.network, target.timeout), (Network::Accepted, Duration::from_millis(300)));
        assert_eq!(Target::parse("file:locks").unwrap().path, PathBuf::from("locks"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (url, reason) in [
            ("file:", "write it like"),
            ("file://host/locks", "three slashes"),
            ("locks", "write it like"),
            ("file:///a%00b", "no NUL"),
            ("file:///a?ttl=1s", "known are network"),
            ("file:///a?network=maybe", "on or off"),
        ] {
            let said = Target::parse(url).unwrap_err().to_string();
            assert!(said.contains(reason), "{url}: {said}");
        }
    }
}
