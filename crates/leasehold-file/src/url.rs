//! From a URL to a directory.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::url::{About, Query};

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
    pub(crate) network: bool,
    /// How long a call waits for the directory's lock.
    pub(crate) timeout: Duration,
}

impl Target {
    /// What a URL names.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let malformed = || ABOUT.invalid(ABOUT.forms);
        let (scheme, rest) = url.split_once(':').ok_or_else(malformed)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            Some(absolute) if absolute.starts_with('/') => absolute,
            Some(_) => return Err(malformed()),
            None => path,
        };
        if !scheme.eq_ignore_ascii_case("file") || path.is_empty() {
            return Err(malformed());
        }
        let path = ABOUT.decode(path)?;
        if path.contains('\0') {
            return Err(ABOUT.invalid("a directory's name has no NUL: write another"));
        }
        let mut query = Query::parse(ABOUT, query)?;
        let network = query.switch("network")?.unwrap_or(false);
        let timeout = query.duration("timeout")?.unwrap_or(Duration::from_secs(5));
        query.done("known are network and timeout")?;
        Ok(Self { path: path.into(), network, timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_directory() {
        let target = Target::parse("file:///var/lock/my%20app/?network=on&timeout=300ms").unwrap();
        assert_eq!(target.path, PathBuf::from("/var/lock/my app/"));
        assert_eq!((target.network, target.timeout), (true, Duration::from_millis(300)));
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
