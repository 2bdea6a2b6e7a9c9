//! The other side of a lock: the resource that refuses stale holders by their token.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// A gate in front of a resource in this process: lets nobody in whose token is smaller than one it has seen.
///
/// ```
/// use leasehold_core::Gate;
/// let gate = Gate::new();
/// assert!(gate.admits(33)); // the first holder
/// assert!(gate.admits(34)); // the next one
/// assert!(!gate.admits(33)); // the first one, back from a long pause: too late
/// ```
#[derive(Debug, Default)]
pub struct Gate(AtomicU64);

impl Gate {
    /// A gate that has seen nobody.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A gate that has seen this token before: read back from where the resource keeps it.
    pub const fn above(token: u64) -> Self {
        Self(AtomicU64::new(token))
    }

    /// Whether a holder with this token may act. Remembers it.
    pub fn admits(&self, token: u64) -> bool {
        self.0.fetch_max(token, Ordering::SeqCst) <= token
    }

    /// As [`admits`](Self::admits), as an error.
    ///
    /// ```
    /// use leasehold_core::{ErrorKind, Gate};
    /// let gate = Gate::above(33);
    /// assert!(gate.check(34).is_ok());
    /// assert_eq!(gate.check(33).unwrap_err().kind(), ErrorKind::Lost);
    /// ```
    ///
    /// # Errors
    /// `Lost` when somebody with a larger token has been here.
    pub fn check(&self, token: u64) -> Result<()> {
        match self.admits(token) {
            true => Ok(()),
            false => {
                let message = "refused: a later holder has been here, this lock was lost";
                Err(Error::new(ErrorKind::Lost, message))
            }
        }
    }

    /// The largest token seen.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The same gate as a condition in SQL: for a row of yours with a column that remembers the last token.
///
/// This is also the optimistic lock of the database world, with the token as the version: an update that touches
/// no row came too late. Bind [`Guard::token_i64`](crate::Guard::token_i64): most SQL drivers take signed numbers only.
///
/// ```
/// use leasehold_core::FenceColumn;
/// let fence = FenceColumn::new("fence")?;
/// let sql = format!("UPDATE orders SET total = ?1, {} WHERE id = ?2 AND {}", fence.assign("?3"), fence.admits("?3"));
/// assert_eq!(sql, "UPDATE orders SET total = ?1, fence = ?3 WHERE id = ?2 AND (fence IS NULL OR fence <= ?3)");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FenceColumn(String);

impl FenceColumn {
    /// The column (64-bit integer) that remembers the last token.
    ///
    /// # Errors
    /// `Invalid` when the name is not a plain identifier: it becomes part of your SQL.
    pub fn new(column: &str) -> Result<Self> {
        let plain = |part: &str| {
            let mut chars = part.chars();
            let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            starts && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if column.len() > 128 || !column.split('.').all(plain) {
            let message = "a fence column must be a plain name such as `fence` or `orders.fence`";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self(column.to_owned()))
    }

    /// The condition: nobody with a larger token has written. `placeholder` stands for the token (`$1`, `?`, `:t`).
    ///
    /// The same token may write many times; to let each write pass once, use `<` with a version of your own.
    pub fn admits(&self, placeholder: &str) -> String {
        format!("({0} IS NULL OR {0} <= {placeholder})", self.0)
    }

    /// The assignment that remembers the token.
    pub fn assign(&self, placeholder: &str) -> String {
        format!("{} = {placeholder}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_lets_the_same_holder_in_again_and_no_earlier_one() {
        let gate = Gate::above(10);
        assert!(!gate.admits(9));
        assert!(gate.admits(10) && gate.admits(12) && gate.admits(12));
        assert_eq!(gate.check(11).unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(gate.last(), 12);
    }

    #[test]
    fn a_fence_column_is_a_plain_name() {
        for bad in ["", "1a", "a b", "a;drop", "a\"", "a..b", "é", &"x".repeat(129)] {
            assert!(FenceColumn::new(bad).is_err(), "{bad}");
        }
        assert!(FenceColumn::new("orders.fence_2").is_ok());
    }
}
