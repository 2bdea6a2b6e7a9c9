//! URLs that name something on this machine's disk.

use std::path::PathBuf;

use super::{About, Query, shown};
use crate::error::Result;

/// A path with parameters: `file:///absolute/path?name=value` or `file:relative/path`.
///
/// ```
/// use leasehold_core::url::{About, PathUrl};
/// let about = About { store: "file", forms: "write it like file:///path, or file:relative/path" };
/// let url = PathUrl::parse(about, "file:///var/lock/my%20app")?;
/// assert_eq!(url.path, std::path::Path::new("/var/lock/my app"));
/// assert!(PathUrl::parse(about, "file://host/path").is_err()); // two slashes name a host
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct PathUrl {
    /// The path, decoded; empty when none is named.
    pub path: PathBuf,
    /// The parameters.
    pub query: Query,
}

impl PathUrl {
    /// Takes a URL apart whose scheme is the store's name.
    ///
    /// # Errors
    /// `Invalid` when it is none, names a host, or its path is not what a file is called.
    pub fn parse(about: About, url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| about.malformed())?;
        if !scheme.eq_ignore_ascii_case(about.store) {
            return Err(about.malformed());
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            Some(absolute) if absolute.is_empty() || absolute.starts_with('/') => absolute,
            Some(_) => return Err(about.malformed()),
            None => path,
        };
        Ok(Self { path: decode(about, path)?.into(), query: Query::parse(about, query)? })
    }
}

/// Undoes percent encoding. A path may well have a `%` of its own, so one that means nothing is refused.
fn decode(about: About, path: &str) -> Result<String> {
    let is_code = |after: &str| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    if !path.split('%').skip(1).all(is_code) {
        let message = format!("\"{}\" has a % without two hex digits: write %25 for %", shown(path));
        return Err(about.invalid(message));
    }
    let path = about.decode(path)?;
    if path.contains('\0') {
        return Err(about.invalid("a path has no NUL: write another"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About { store: "test", forms: "write it like test:///path" };

    #[test]
    fn slashes_tell_absolute_from_relative() {
        for (url, path) in [
            ("test:///a/b", "/a/b"),
            ("TEST:///a", "/a"),
            ("test:a/b?", "a/b"),
            ("test:/a", "/a"),
            ("test:///a%20b%3F%25", "/a b?%"),
            ("test:", ""),
            ("test://", ""),
            ("test:///é", "/é"),
        ] {
            assert_eq!(PathUrl::parse(ABOUT, url).unwrap().path, PathBuf::from(path), "{url}");
        }
    }

    #[test]
    fn what_names_no_path_is_refused_with_a_reason() {
        for (url, reason) in [
            ("", "write it like"),
            ("test", "write it like"),
            ("other:///a", "write it like"),
            ("test://host/a", "write it like"),
            ("test:///a%00b", "no NUL"),
            ("test:///a%ff", "UTF-8"),
            ("test:///a%", "%25"),
            ("test:///a%2", "%25"),
            ("test:///a%+1", "%25"),
            ("test:///a%é", "%25"),
            ("test:///a?b", "no value"),
        ] {
            let said = PathUrl::parse(ABOUT, url).unwrap_err().to_string();
            assert!(said.contains(reason), "{url}: {said}");
        }
    }
}
