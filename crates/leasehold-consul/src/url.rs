//! From a URL to what must be known to connect. Sends nothing, and never repeats a token.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::url::{About, Address, TlsFiles, Url};

const PORT: u16 = 8500;
const TLS_PORT: u16 = 8501;
const ABOUT: About =
    About { store: "consul", forms: "write it like consul://localhost:8500 or consuls://host1,host2/prefix" };

/// The shortest lease unless told otherwise: what servers accept unless told otherwise (`session_ttl_min`).
const MIN_LEASE: Duration = Duration::from_secs(10);

/// A secret that shows in no message.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// Everything that a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Agents of one cluster, in the order in which they are tried.
    pub(crate) hosts: Vec<Address>,
    /// The part of the key-value store that is ours.
    pub(crate) prefix: String,
    pub(crate) token: Option<Token>,
    /// Where the token is read again when servers refuse it: administrators rotate tokens.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) datacenter: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) tls: Option<TlsFiles>,
    /// The longest that one request takes.
    pub(crate) timeout: Duration,
    pub(crate) min_lease: Duration,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let url = Url::parse(ABOUT, url)?;
        let encrypted = match url.scheme.as_str() {
            "consul" => false,
            "consuls" => true,
            _ => return Err(ABOUT.invalid(ABOUT.forms)),
        };
        if url.login.user.is_some() || url.login.password.is_some() {
            return Err(ABOUT.invalid(
                "no token in the URL, where others see it: use CONSUL_HTTP_TOKEN or token_file=FILE",
            ));
        }
        let hosts = url.addresses(if encrypted { TLS_PORT } else { PORT })?;
        let prefix = prefix(&url.path)?;
        let mut query = url.query;
        let tls = if encrypted { Some(query.tls_files()?) } else { None };
        let token_file = query.take("token_file").map(PathBuf::from);
        let token = match &token_file {
            Some(file) => read_token(file)?,
            None => std::env::var("CONSUL_HTTP_TOKEN").ok().and_then(|text| token(&text)),
        };
        let target = Self {
            hosts,
            prefix,
            token,
            token_file,
            datacenter: query.take("dc"),
            namespace: query.take("ns"),
            tls,
            timeout: query.duration("timeout")?.unwrap_or(Duration::from_secs(2)),
            min_lease: query.duration("min_lease")?.unwrap_or(MIN_LEASE),
        };
        query.done(
            "known are token_file, dc, ns, timeout, min_lease, and cacert, cert and key with consuls://",
        )?;
        Ok(target)
    }
}

fn prefix(path: &str) -> Result<String> {
    let path = path.strip_prefix('/').unwrap_or(path).trim_end_matches('/');
    let is_plain = |part: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        !part.is_empty() && part.bytes().all(plain) && !part.starts_with('.')
    };
    match path {
        "" => Ok("leasehold".to_owned()),
        path if path.split('/').all(is_plain) => Ok(path.to_owned()),
        path => Err(ABOUT.invalid(format!(
            "\"{}\" is no prefix: use letters, digits, -, _ and single slashes",
            path.escape_debug()
        ))),
    }
}

/// The token that a file holds now.
pub(crate) fn read_token(file: &Path) -> Result<Option<Token>> {
    let text = std::fs::read_to_string(file).map_err(|cause| {
        let message = format!("cannot read {}: check the URL and the file's rights", file.display());
        ABOUT.invalid(message).because(cause)
    })?;
    Ok(token(&text))
}

fn token(text: &str) -> Option<Token> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(|text| Token(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_under_which_prefix_and_how() {
        let target =
            Target::parse("consul://one,two:81,[::1]:82/locks/of/us?dc=east&ns=a&min_lease=1s").unwrap();
        let hosts: Vec<_> = target.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["one:8500", "two:81", "[::1]:82"]);
        assert_eq!((target.prefix.as_str(), target.tls.is_none()), ("locks/of/us", true));
        assert_eq!((target.datacenter.as_deref(), target.namespace.as_deref()), (Some("east"), Some("a")));
        assert_eq!(target.min_lease, Duration::from_secs(1));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (url, reason) in [
            ("consul:localhost", "write it like"),
            ("consul://", "write it like"),
            ("consul://secret@h", "CONSUL_HTTP_TOKEN"),
            ("consul://h/a//b", "no prefix"),
            ("consul://h/../b", "no prefix"),
            ("consul://h?min_lease=5", "no time"),
            ("consul://h?token=secret", "unknown parameter"),
            ("consul://h?cacert=x", "unknown parameter"),
            ("consuls://h?cert=x", "both"),
            ("consul://h?token_file=/no/such/file", "cannot read"),
        ] {
            let said = Target::parse(url).unwrap_err().to_string();
            assert!(said.contains(reason), "{url}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn a_token_comes_from_a_file_and_shows_nowhere() {
        let file = std::env::temp_dir().join(format!("leasehold-token-{}", std::process::id()));
        std::fs::write(&file, "hunter2\n").unwrap();
        let target = Target::parse(&format!("consul://h?token_file={}", file.display())).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(target.token.as_ref().map(|token| token.0.as_str()), Some("hunter2"));
        assert!(!format!("{target:?}").contains("hunter2"));
    }
}
