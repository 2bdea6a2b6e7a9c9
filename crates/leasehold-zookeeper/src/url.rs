//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::url::{About, Login, Url};
use zookeeper_client::Acls;

const PORT: u16 = 2181;

const ABOUT: About =
    About { store: "zookeeper", forms: "write it like zookeeper://host1:2181,host2:2181/path" };

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the driver wants them.
    pub(crate) hosts: String,
    /// Where our nodes are.
    pub(crate) base: String,
    pub(crate) login: Login,
    /// The longest that one call takes.
    pub(crate) timeout: Duration,
    /// The servers' `tickTime`.
    pub(crate) tick: Duration,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let mut url = Url::parse(ABOUT, url)?;
        if url.scheme != ABOUT.store {
            return Err(ABOUT.invalid(ABOUT.forms));
        }
        url.needs_password_with_user()?;
        let mut base = String::new();
        for part in url.segments()? {
            if part.contains('/') || matches!(part.as_str(), "." | "..") {
                return Err(
                    ABOUT.invalid("a part of the path has a slash, or is only dots: no node is called so")
                );
            }
            base = base + "/" + &part;
        }
        let hosts: Vec<String> = url.addresses(PORT)?.iter().map(ToString::to_string).collect();
        let target = Self {
            hosts: hosts.join(","),
            base: base + "/leasehold",
            timeout: url.query.duration("timeout")?.unwrap_or(Duration::from_secs(5)),
            tick: url.query.duration("tick")?.unwrap_or(Duration::from_secs(2)),
            login: url.login,
        };
        url.query.done("there are timeout and tick")?;
        Ok(target)
    }

    /// What we say who we are: user and password.
    pub(crate) fn digest(&self) -> Option<String> {
        let Login { user, password } = &self.login;
        user.as_ref().zip(password.as_ref()).map(|(user, password)| format!("{user}:{password}"))
    }

    /// Who may touch our nodes: everybody, unless we say who we are.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.digest().is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let target = Target::parse("zookeeper://me:p%40ss@one,two:2182/a/b?timeout=500ms&tick=3s").unwrap();
        assert_eq!(target.hosts, "one:2181,two:2182");
        assert_eq!(target.base, "/a/b/leasehold");
        assert_eq!(target.digest().as_deref(), Some("me:p@ss"));
        assert_eq!((target.timeout, target.tick), (Duration::from_millis(500), Duration::from_secs(3)));
        assert_eq!(Target::parse("zookeeper://[::1]").unwrap().hosts, "[::1]:2181");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for rest in ["", "h:x", "h/..", "h/a%2Fb", "me@h", "h?timeout=0s", "h?who=me"] {
            assert!(Target::parse(&format!("zookeeper://{rest}")).is_err(), "{rest}");
        }
        assert!(Target::parse("redis://h").is_err());
    }
}
