//! Statements as text: numbers and bytes only, so that nothing needs quoting.

use std::fmt::Write;

use leasehold_core::{Error, ErrorKind, Result};

const TABLES: &str = include_str!("sql/tables.sql");

/// How the names of tables start when the URL does not say it.
pub(crate) const PREFIX: &str = "leasehold_";

/// The longest name that a table can have is 64 characters.
const LONGEST: usize = 40;

/// How many numbers one operation has without asking for more. Few, so that drawing is slower than the clock, which counts
/// microseconds.
pub(crate) const NUMBERS: u64 = 16;

/// How far the source of numbers is ahead of the clock at most, in microseconds: every connection moves it there before it
/// draws. After a loss of memory all connections are new, so that their numbers are above those of all connections before.
pub(crate) const BOUND: u64 = 60_000_000;

/// The time by the database's clock, in milliseconds. Never by way of a time zone: where an hour comes twice a year, every
/// lease would end early.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000";

/// The statements that make everything a store needs, with this at the front of every table's name. They can be run again.
///
/// ```
/// let sql = leasehold_mysql::init_sql("billing_")?;
/// assert!(sql.contains("CREATE TABLE IF NOT EXISTS billing_claims"));
/// assert!(leasehold_mysql::init_sql("x; DROP TABLE users").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
///
/// # Errors
/// `Invalid` when no table can be called like that.
pub fn init_sql(prefix: &str) -> Result<String> {
    check_prefix(prefix)?;
    Ok(with(prefix, TABLES))
}

/// Checks the front of table names: it becomes part of statements, so nothing gets in that would need quoting.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    let is_plain = prefix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let starts = prefix.starts_with(|c: char| c.is_ascii_lowercase());
    if is_plain && starts && prefix.len() <= LONGEST {
        return Ok(());
    }
    let shown = prefix.escape_debug();
    let message = format!("tables cannot start with \"{shown}\": use up to {LONGEST} of a-z, 0-9 and _");
    Err(Error::new(ErrorKind::Invalid, message).at("mysql"))
}

/// The same statements for tables that start with another prefix.
pub(crate) fn with(prefix: &str, sql: &str) -> String {
    sql.replace(PREFIX, prefix)
}

/// Bytes as they are written in a statement.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

/// A number that may be missing.
pub(crate) fn maybe(number: Option<i64>) -> String {
    number.map_or_else(|| "NULL".to_owned(), |n| n.to_string())
}

/// Values with commas between them.
pub(crate) fn list(values: impl IntoIterator<Item = String>) -> String {
    values.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_start_tables() {
        for good in ["leasehold_", "app1_locks_", "x"] {
            assert!(check_prefix(good).is_ok(), "{good}");
        }
        for bad in ["", "_x", "1x", "a`b", "a.b", "A", "a b", &"x".repeat(41)] {
            assert_eq!(check_prefix(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn bytes_need_no_quoting() {
        assert_eq!(bytes(b"a'\0"), "x'612700'");
        assert_eq!(bytes(b""), "x''");
    }
}
