//! From a URL to what must be known to connect. Sends nothing, and never repeats a password.

use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::url::{About, Address, Login, TlsFiles, Url};

const PORT: u16 = 2379;

/// What URLs are about here.
const ABOUT: About = About {
    store: "etcd",
    forms: "write it like etcd://host:2379, etcd://host1,host2,host3 or etcds://user:password@host",
};

/// Everything that a URL may say, for those who misspelt it.
const KNOWN: &str = "known are prefix, timeout, connect_timeout, and with etcds cacert, cert and key";

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) members: Vec<Address>,
    pub(crate) login: Login,
    pub(crate) tls: Option<TlsFiles>,
    /// What all keys start with.
    pub(crate) prefix: String,
    /// The longest that one call to a member takes.
    pub(crate) timeout: Duration,
    /// The longest that connecting to a member takes, with TLS and logging in.
    pub(crate) connect_timeout: Duration,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let url = Url::parse(ABOUT, url)?;
        url.needs_password_with_user()?;
        let encrypted = match url.scheme.as_str() {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(ABOUT.invalid(ABOUT.forms)),
        };
        if !matches!(url.path.as_str(), "" | "/") {
            return Err(ABOUT.invalid("a path means nothing here: write ?prefix=NAME for keys of your own"));
        }
        let members = url.addresses(PORT)?;
        let Url { login, mut query, .. } = url;
        let target = Self {
            members,
            login,
            tls: encrypted.then(|| query.tls_files()).transpose()?,
            prefix: query.take("prefix").unwrap_or_else(|| "leasehold".into()),
            timeout: query.duration("timeout")?.unwrap_or(Duration::from_secs(1)),
            connect_timeout: query.duration("connect_timeout")?.unwrap_or(Duration::from_secs(1)),
        };
        query.done(KNOWN)?;
        if target.prefix.is_empty() || target.prefix.chars().any(char::is_control) {
            return Err(ABOUT.invalid("the prefix is empty, or has control characters: write prefix=NAME"));
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn a_url_names_members_and_all_there_is_to_know() {
        let url = "etcds://app:hunter2@one,[::1]:7000?prefix=team&timeout=2s&cacert=/ca.pem";
        let target = Target::parse(url).unwrap();
        assert_eq!(
            target.members.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["one:2379", "[::1]:7000"]
        );
        assert_eq!((target.prefix.as_str(), target.timeout), ("team", Duration::from_secs(2)));
        assert!(target.tls.is_some_and(|files| files.ca.is_some()));
    }

    #[test]
    fn a_password_is_not_printed() {
        let target = Target::parse("etcd://app:hunter2@one").unwrap();
        assert!(!format!("{target:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_wrong_is_invalid_and_said() {
        for (url, part) in [
            ("etcd://", "etcd://host"),
            ("zk://one", "etcd://host"),
            ("etcd://one/locks", "prefix="),
            ("etcd://one?prefix=", "prefix"),
            ("etcd://one?cacert=/x", "cacert"),
            ("etcd://app@one", "password"),
            ("etcds://one?cert=/c", "key"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
