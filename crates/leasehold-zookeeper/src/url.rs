//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::time::Duration;

use leasehold_core::url::{About, Address, Login, TlsFiles, Url};
use leasehold_core::{Error, ErrorKind, Result};
use zookeeper_client::{Acls, Client, Connector, SaslOptions};

const PORT: u16 = 2181;
/// What servers are usually told to use for TLS.
const SECURE_PORT: u16 = 2281;

const ABOUT: About = About {
    store: "zookeeper",
    forms: "write it like zookeeper://host1:2181,host2:2181/path, or zookeepers://host:2281 for TLS",
};

/// Everything that a URL may say, for those who misspelt it.
const KNOWN: &str = "known are auth, timeout, tick, and with zookeepers cacert, cert and key";

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) hosts: Vec<Address>,
    pub(crate) tls: Option<TlsFiles>,
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
        let encrypted = match url.scheme.as_str() {
            "zookeeper" => false,
            "zookeepers" if cfg!(feature = "tls") => true,
            "zookeepers" => return Err(no_tls()),
            _ => return Err(ABOUT.invalid(ABOUT.forms)),
        };
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
        let target = Self {
            hosts: url.addresses(if encrypted { SECURE_PORT } else { PORT })?,
            tls: encrypted.then(|| url.query.tls_files()).transpose()?,
            base: base + "/leasehold",
            timeout: url.query.duration("timeout")?.unwrap_or(Duration::from_secs(5)),
            tick: url.query.duration("tick")?.unwrap_or(Duration::from_secs(2)),
            login: url.login,
            sasl,
        };
        url.query.done(KNOWN)?;
        #[cfg(feature = "tls")]
        crate::tls::check_names(&target)?;
        Ok(target)
    }

    /// The hosts as the driver wants them.
    pub(crate) fn cluster(&self) -> String {
        let start = if self.tls.is_some() { "tcp+tls://" } else { "tcp://" };
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("{start}{host}")).collect();
        hosts.join(",")
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

fn no_tls() -> Error {
    let message = "this build has no TLS for it: enable the feature \"tls\" of leasehold-zookeeper, which is \
                   \"zookeeper-tls\" of leasehold";
    Error::new(ErrorKind::Unsupported, message).at(ABOUT.store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_who() {
        let target = Target::parse("zookeeper://me:p%40ss@one,two:2182/a/b?timeout=500ms&tick=3s").unwrap();
        assert_eq!(target.cluster(), "tcp://one:2181,tcp://two:2182");
        assert_eq!(target.base, "/a/b/leasehold");
        assert_eq!(
            (target.login.user.as_deref(), target.login.password.as_deref()),
            (Some("me"), Some("p@ss"))
        );
        assert!(!target.sasl && Target::parse("zookeeper://me:secret@h?auth=sasl").unwrap().sasl);
        assert_eq!((target.timeout, target.tick), (Duration::from_millis(500), Duration::from_secs(3)));
        assert_eq!(Target::parse("zookeeper://[::1]").unwrap().cluster(), "tcp://[::1]:2181");
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
            "h?cacert=ca.pem",
        ] {
            assert!(Target::parse(&format!("zookeeper://{rest}")).is_err(), "{rest}");
        }
        assert!(Target::parse("redis://h").is_err());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_a_scheme_of_its_own() {
        let target = Target::parse("zookeepers://one,[::1]:2182?cacert=ca.pem").unwrap();
        assert_eq!(target.cluster(), "tcp+tls://one:2281,tcp+tls://[::1]:2182");
        assert!(target.tls.is_some_and(|files| files.ca.is_some()));
        for rest in ["h?cert=a", "a..b", "h,%C3%A4"] {
            assert!(Target::parse(&format!("zookeepers://{rest}")).is_err(), "{rest}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn where_tls_is_not_compiled_in_its_feature_is_named() {
        let refused = Target::parse("zookeepers://h").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("zookeeper-tls"), "{refused}");
    }
}
