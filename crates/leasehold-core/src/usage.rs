//! What a key is used as, in the words of its users.

use std::fmt;

use crate::claim::WHOLE;
use crate::error::{Error, ErrorKind};
use crate::latch::Latch;

/// What a key is used as: its limit says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage(pub u64);

impl Usage {
    /// The error for a claim with another limit than the key has.
    ///
    /// ```
    /// use leasehold_core::Usage;
    /// let message = "is a semaphore with 3 permits: use the same kind and limit everywhere";
    /// assert_eq!(Usage(3).conflict().to_string(), message);
    /// ```
    pub fn conflict(self) -> Error {
        Error::new(ErrorKind::Conflict, format!("is {self}: use the same kind and limit everywhere"))
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            WHOLE => f.write_str("a lock"),
            Latch::LIMIT => f.write_str("a latch"),
            1 => f.write_str("a semaphore with 1 permit"),
            permits => write!(f, "a semaphore with {permits} permits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_locks_and_latches_are_not_numbers() {
        assert_eq!(Usage(WHOLE).to_string(), "a lock");
        assert_eq!(Usage(Latch::LIMIT).to_string(), "a latch");
        assert_eq!(Usage(1).to_string(), "a semaphore with 1 permit");
    }
}
