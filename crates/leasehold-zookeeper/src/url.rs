//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::url::{About, Login, Url};
use zookeeper_client::{Acls, Client, Connector, SaslOptions};

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
    /// Whether the user logs in by SASL (DIGEST-MD5), and not by the scheme `digest`.
    pub(crate) sasl: bool,
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
        let sasl = match url.query.take("auth").as_deref() {
            None | Some("digest") => false,
            Some("sasl") if url.login.user.is_some() => true,
            Some("sasl") => return Err(ABOUT.invalid("auth=sasl needs a user: write user:password@host")),
            Some(_) => return Err(ABOUT.invalid("auth is digest or sasl")),
        };
        let hosts: Vec<String> = url.addresses(PORT)?.iter().map(ToString::to_string).collect();
        let target = Self {
            hosts: hosts.join(","),
            base: base + "/leasehold",
            timeout: url.query.duration("timeout")?.unwrap_or(Duration::from_secs(5)),
            tick: url.query.duration("tick")?.unwrap_or(Duration::from_secs(2)),
            login: url.login,
            sasl,
        };
        url.query.done("there are auth, timeout and tick")?;
        Ok(target)
    }

    /// A connector that says who we are.
    pub(crate) fn connector(&self) -> Connector {
        let connector = Client::connector();
        match (&self.login.user, &self.login.password) {
            (Some(user), Some(password)) if self.sasl => {
                connector.with_sasl(SaslOptions::digest_md5(user.clone(), password.clone()))
            }
            (Some(user), Some(password)) => {
                connector.with_auth("digest", format!("{user}:{password}").as_bytes())
            }
            _ => connector,
        }
    }

    /// Who may touch our nodes: everybody, unless we say who we are.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.login.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
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
        assert_eq!(
            (target.login.user.as_deref(), target.login.password.as_deref()),
            (Some("me"), Some("p@ss"))
        );
        assert!(!target.sasl && Target::parse("zookeeper://me:secret@h?auth=sasl").unwrap().sasl);
        assert_eq!((target.timeout, target.tick), (Duration::from_millis(500), Duration::from_secs(3)));
        assert_eq!(Target::parse("zookeeper://[::1]").unwrap().hosts, "[::1]:2181");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for rest in [
            "",
            "h:x",
            "h/..",
            "h/a%2Fb",
            "me@h",
            "h?timeout=0s",
            "h?who=me",
            "h?auth=sasl",
            "me:x@h?auth=none",
        ] {
            assert!(Target::parse(&format!("zookeeper://{rest}")).is_err(), "{rest}");
        }
        assert!(Target::parse("redis://h").is_err());
    }
}
