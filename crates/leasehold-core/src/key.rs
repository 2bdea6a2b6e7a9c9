//! The name of a lock: what is allowed, checked once, before anything is sent.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The name of a resource: any non-empty UTF-8 of at most [`Key::MAX`] bytes.
///
/// Keys are cheap to clone. Stores that allow less encode them, never truncate them.
///
/// ```
/// use leasehold_core::Key;
/// assert_eq!(Key::new("orders/42")?.as_str(), "orders/42");
/// assert!(Key::new("").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in bytes.
    pub const MAX: usize = 1024;

    /// Checks a name.
    ///
    /// # Errors
    /// `Invalid` when it is empty or longer than [`Key::MAX`] bytes.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the key is empty: give the lock a name"));
        }
        if name.len() > Self::MAX {
            let message =
                format!("the key has {} bytes, the most is {}: use a shorter name", name.len(), Self::MAX);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self(name.into()))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Prints the name with control characters escaped, so that it cannot play tricks on a terminal.
impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape_control(&self.0, f)
    }
}

/// Writes `text` with its control characters escaped.
pub(crate) fn escape_control(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
            write!(f, "{}", c.escape_default())?;
        } else {
            fmt::Write::write_char(f, c)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_to_1024_bytes() {
        assert!(Key::new("").is_err());
        assert!(Key::new("a").is_ok());
        assert!(Key::new("x".repeat(1024)).is_ok());
        assert_eq!(Key::new("x".repeat(1025)).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn control_characters_are_escaped_when_shown() {
        assert_eq!(Key::new("a\u{1b}[2Jb").unwrap().to_string(), "a\\u{1b}[2Jb");
    }
}
