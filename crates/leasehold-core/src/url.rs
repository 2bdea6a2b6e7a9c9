//! What a store's URL says, taken apart once for all stores.
//!
//! `scheme://user:password@host1:port1,host2/path?name=value`, or `scheme:path?name=value`. Nothing here connects, and no message repeats a
//! password.

mod address;
mod path;
mod query;
mod unreached;

use std::fmt;

pub use address::Address;
pub use path::PathUrl;
pub use query::{Query, TlsFiles};
pub use unreached::Unreached;

use crate::error::{Error, ErrorKind, Result};

/// Who we are to a server. Its password shows in no message.
///
/// ```
/// use leasehold_core::url::Login;
/// let login = Login { user: Some("app".into()), password: Some("hunter2".into()) };
/// assert!(!format!("{login:?}").contains("hunter2"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Login").field("user", &self.user).field("password", &password).finish()
    }
}

/// Whose URL it is, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The store's name.
    pub store: &'static str,
    /// How its URLs are written: said whenever one is wrong.
    pub forms: &'static str,
}

impl About {
    /// An error about a URL of this store.
    pub fn invalid(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message).at(self.store)
    }

    fn malformed(&self) -> Error {
        self.invalid(self.forms)
    }

    /// Undoes percent encoding.
    ///
    /// # Errors
    /// `Invalid` when that is not UTF-8.
    pub fn decode(&self, text: &str) -> Result<String> {
        let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
        decoded.map(Into::into).map_err(|_| self.invalid("the URL is not UTF-8 when decoded"))
    }
}

/// A URL in its parts.
///
/// ```
/// use leasehold_core::url::{About, Url};
/// let about = About { store: "redis", forms: "write it like redis://host:6379/0" };
/// let mut url = Url::parse(about, "redis://app:hunter2@one,two:7000/3?timeout=2s")?;
/// assert_eq!((url.scheme.as_str(), url.path.as_str()), ("redis", "/3"));
/// assert_eq!(url.addresses(6379)?[1].to_string(), "two:7000");
/// assert_eq!(url.query.duration("timeout")?, Some(std::time::Duration::from_secs(2)));
/// url.query.done("known is timeout")?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Url {
    about: About,
    /// In lower case.
    pub scheme: String,
    /// User and password.
    pub login: Login,
    hosts: String,
    /// With its first slash, and still percent-encoded.
    pub path: String,
    /// The parameters.
    pub query: Query,
}

impl Url {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// `Invalid` when it has not the form of one.
    pub fn parse(about: About, url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| about.malformed())?;
        // A password that is not percent-encoded may contain anything, and paths and parameters have no '@'.
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let some = |text: &str| if text.is_empty() { Ok(None) } else { about.decode(text).map(Some) };
        Ok(Self {
            about,
            scheme: scheme.to_ascii_lowercase(),
            login: Login { user: some(user)?, password: some(password)? },
            hosts: hosts.to_owned(),
            path: path.to_owned(),
            query: Query::parse(about, query)?,
        })
    }

    /// Whether it names no host at all, as in `scheme:///path`.
    pub fn has_no_host(&self) -> bool {
        self.hosts.is_empty()
    }

    /// All hosts.
    ///
    /// # Errors
    /// `Invalid` when one is empty or has a port that is none.
    pub fn addresses(&self, default_port: u16) -> Result<Vec<Address>> {
        self.hosts.split(',').map(|host| Address::parse(self.about, host, default_port)).collect()
    }

    /// The parts of the path, decoded.
    ///
    /// # Errors
    /// `Invalid` when one is not UTF-8.
    pub fn segments(&self) -> Result<Vec<String>> {
        let parts = self.path.split('/').filter(|part| !part.is_empty());
        parts.map(|part| self.about.decode(part)).collect()
    }

    /// Refuses a user without a password, where a server knows none.
    ///
    /// # Errors
    /// `Invalid` then.
    pub fn needs_password_with_user(&self) -> Result<()> {
        if self.login.user.is_none() || self.login.password.is_some() {
            return Ok(());
        }
        Err(self.about.invalid("a user without a password: write user:password@host"))
    }
}

/// The start of a text, as a message repeats it: on one line, and not a megabyte of it.
fn shown(text: &str) -> String {
    text.escape_debug().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About { store: "test", forms: "write it like test://host/path" };

    #[test]
    fn a_password_may_contain_anything() {
        let url = Url::parse(ABOUT, "test://app:a@b/c?d%41@host:1/x?n=1").unwrap();
        let login = Login { user: Some("app".into()), password: Some("a@b/c?dA".into()) };
        assert_eq!((url.login.clone(), url.path.as_str()), (login, "/x"));
        assert_eq!(url.addresses(5).unwrap()[0].to_string(), "host:1");
    }

    #[test]
    fn what_is_no_url_gets_the_forms_as_an_answer() {
        for text in ["", "test", "test:host", "test://", "test://a,,b", "test://:1"] {
            let error = Url::parse(ABOUT, text).and_then(|url| url.addresses(1)).unwrap_err();
            assert!(error.to_string().contains(ABOUT.forms), "{text}: {error}");
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_refused() {
        assert!(Url::parse(ABOUT, "test://u:%ff@h").is_err());
        assert!(Url::parse(ABOUT, "test://h?a=%ff").is_err());
        assert!(Url::parse(ABOUT, "test://h/%ff").unwrap().segments().is_err());
    }

    #[test]
    fn a_user_can_be_made_to_need_a_password() {
        assert!(Url::parse(ABOUT, "test://u@h").unwrap().needs_password_with_user().is_err());
        assert!(Url::parse(ABOUT, "test://:p@h").unwrap().needs_password_with_user().is_ok());
    }
}
