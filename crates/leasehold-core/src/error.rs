//! The one error type: a kind to match on, a sentence that says what to do, and the cause.

use std::fmt;
use std::time::Duration;

use crate::key::Key;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a program needs to know.
///
/// Busy is not among them: `try_acquire` and `acquire_within` answer `Ok(None)`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, ErrorKind, Memory};
/// # let client = Client::new(Memory::new()).await?;
/// let _three = client.semaphore("api calls", 3).acquire().await?;
/// match client.semaphore("api calls", 5).acquire().await {
///     Err(error) if error.kind() == ErrorKind::Conflict => println!("{error}"), // somebody says 3
///     _ => unreachable!("the limits differ"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The claim ended while its guard was alive; it protects nothing any more.
    Lost,
    /// The key is in use with another limit, kind or stored format.
    Conflict,
    /// The store could not be reached; nothing was sent, trying again is safe.
    Unavailable,
    /// The request may or may not have been carried out.
    Indeterminate,
    /// The store refused our credentials or rights.
    Denied,
    /// A name, duration, limit or URL is out of range; nothing was sent.
    Invalid,
    /// This store lacks a capability that the primitive needs.
    Unsupported,
    /// The store answered something that we do not understand.
    Protocol,
}

impl ErrorKind {
    /// The kind in one lower-case word, for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Indeterminate => "indeterminate",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Protocol => "protocol",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error: [`kind`](Error::kind) to match on, one line to read.
///
/// ```
/// use leasehold_core::{ErrorKind, Key};
/// let error = Key::new("").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.to_string(), "the key is empty: give the lock a name");
/// ```
#[derive(Debug)]
pub struct Error(Box<Parts>);

#[derive(Debug)]
struct Parts {
    kind: ErrorKind,
    message: String,
    key: Option<Key>,
    store: Option<&'static str>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    is_transient: bool,
}

impl Error {
    /// An error of this kind; `message` is lower case, without a full stop, and says what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (key, store, source, retry_after, is_transient) = (None, None, None, None, false);
        let message = message.into();
        Self(Box::new(Parts { kind, message, key, store, source, retry_after, is_transient }))
    }

    /// Names the key, unless one is named already.
    #[must_use]
    pub fn on(mut self, key: &Key) -> Self {
        self.0.key.get_or_insert_with(|| key.clone());
        self
    }

    /// Names another key: a layer that renames keys puts the caller's name back.
    pub(crate) fn renamed(mut self, key: &Key) -> Self {
        self.0.key = Some(key.clone());
        self
    }

    /// Names the store, unless one is named already.
    #[must_use]
    pub fn at(mut self, store: &'static str) -> Self {
        self.0.store.get_or_insert(store);
        self
    }

    /// Says when the same call can succeed at the earliest.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// When the same call can succeed at the earliest, counted from when it failed. `None` where the store does not know.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "too young to vote").after(Duration::from_secs(9));
    /// assert_eq!(error.retry_after(), Some(Duration::from_secs(9)));
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The same about a request that can have changed nothing.
    pub(crate) fn nothing_happened(mut self) -> Self {
        if self.0.kind == ErrorKind::Indeterminate {
            self.0.kind = ErrorKind::Unavailable;
        }
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Marks the error as [transient](Self::is_transient), if `condition` holds.
    #[must_use]
    pub fn transient_if(mut self, condition: bool) -> Self {
        self.0.is_transient |= condition;
        self
    }

    /// Whether servers of the store answered, but none can serve at the moment: there is no primary or no leader, or the
    /// server is still starting. A client that connects waits for that to change
    /// ([`connect_timeout`](crate::ClientBuilder::connect_timeout)). A server that refuses the connection, or does not answer,
    /// is not transient: it may never have been there.
    ///
    /// ```
    /// use leasehold_core::{Error, ErrorKind};
    /// let failover = Error::new(ErrorKind::Unavailable, "the cluster has no leader").transient_if(true);
    /// assert!(failover.is_transient());
    /// assert!(!Error::new(ErrorKind::Unavailable, "connection refused").is_transient());
    /// ```
    pub fn is_transient(&self) -> bool {
        self.0.is_transient
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without anything being changed.
    ///
    /// ```
    /// use leasehold_core::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Unavailable, "the store is away").is_retryable());
    /// assert!(!Error::new(ErrorKind::Denied, "wrong password").is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::Indeterminate)
    }

    /// The message and its cause, without the key and the store.
    pub(crate) fn reason(&self) -> String {
        match &self.0.source {
            Some(source) => format!("{}: {source}", self.0.message),
            None => self.0.message.clone(),
        }
    }

    /// The key, where one is known.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.key, self.0.store) {
            (Some(key), Some(store)) => write!(f, "\"{key}\" on {store}: ")?,
            (Some(key), None) => write!(f, "\"{key}\": ")?,
            (None, Some(store)) => write!(f, "{store}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.reason())
    }
}

impl std::error::Error for Error {
    /// What is behind the cause. The message names the cause itself, so a report of the whole chain names it once.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().and_then(std::error::Error::source)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn report_of_the_whole_chain_names_each_cause_once() {
        let inner = Error::new(ErrorKind::Denied, "wrong password");
        let outer = Error::new(ErrorKind::Unavailable, "cannot connect").because(inner);
        let mut report = outer.to_string();
        let mut next = outer.source();
        while let Some(cause) = next {
            report += &format!(": {cause}");
            next = cause.source();
        }
        assert_eq!(report, "cannot connect: wrong password");
    }
}
