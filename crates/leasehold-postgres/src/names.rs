//! Names as PostgreSQL can store them.

use leasehold_core::{Error, ErrorKind, Inbox, Key, Result};

/// The schema that locks are in when the URL names none.
pub(crate) const SCHEMA: &str = "leasehold";

/// The longest name that PostgreSQL keeps whole is 63 bytes.
const LONGEST: usize = 48;

/// Checks a schema's name: it becomes part of statements, so nothing gets in that would need quoting.
pub(crate) fn check_schema(name: &str) -> Result<()> {
    let fits = !name.is_empty() && name.len() <= LONGEST;
    let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let starts = !name.starts_with(|c: char| c.is_ascii_digit()) && !name.starts_with("pg_");
    let message = if !(fits && is_plain && starts) {
        format!("\"{}\" is no name for a schema: use up to {LONGEST} of a-z, 0-9 and _", name.escape_debug())
    } else if name == "public" || name == "information_schema" {
        format!("locks need a schema of their own, not {name}: write schema={SCHEMA}")
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, message).at("postgres"))
}

/// Writes a text so that it can be stored: PostgreSQL's text has everything but the character 0.
pub(crate) fn encode(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\0', "\\0")
}

/// Undoes [`encode`]; `None` when it is nothing that it wrote.
pub(crate) fn decode(stored: &str) -> Option<String> {
    let mut text = String::with_capacity(stored.len());
    let mut rest = stored.chars();
    while let Some(c) = rest.next() {
        text.push(match c {
            '\\' => match rest.next()? {
                '\\' => '\\',
                '0' => '\0',
                _ => return None,
            },
            c => c,
        });
    }
    Some(text)
}

/// The lock with this stored name.
pub(crate) fn key(stored: &str) -> Option<Key> {
    Key::new(decode(stored)?).ok()
}

/// The channel that a client listens on.
pub(crate) fn channel(inbox: Inbox) -> String {
    format!("leasehold_{:x}", inbox.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back() {
        for name in ["orders/42", "a\0b", "\\0", "\\", "\0\\", "größe ✓", "\\\\0"] {
            assert!(!encode(name).contains('\0'));
            assert_eq!(decode(&encode(name)).as_deref(), Some(name));
        }
        assert_eq!(decode("\\x"), None);
    }

    #[test]
    fn only_plain_names_are_schemas() {
        for good in ["leasehold", "locks_2", "_x"] {
            assert!(check_schema(good).is_ok(), "{good}");
        }
        for bad in ["", "2locks", "a\"b", "a.b", "Locks", "pg_locks", "public", "a-b", &"x".repeat(49)] {
            assert_eq!(check_schema(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn no_stored_name_makes_us_panic() {
        leasehold_conformance::fuzz::fuzz(&[b"orders/42", b"a\\\\0\\0b"], |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Some(name) = decode(&text).filter(|_| !text.contains('\0')) {
                assert_eq!(encode(&name), text);
            }
        });
    }
}
