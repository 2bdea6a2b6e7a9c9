//! What a key is used as, in the words of its users.

use std::fmt;

use crate::claim::WHOLE;
use crate::error::{Error, ErrorKind};
use crate::latch::Latch;
use crate::rwlock::{READ, UPGRADABLE};
use crate::store::Snapshot;

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

/// How a holder or a waiter shares a lock with others.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Mode};
/// let client = Client::new(Memory::new()).await?;
/// let reader = client.rwlock("catalogue").read().acquire().await?;
/// let now = client.inspect("catalogue").await?.expect("it is held");
/// assert_eq!(now.mode(now.holders[0].units), Some(Mode::Shared));
/// # reader.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone: a mutex, a writer, a leader, a job.
    Exclusive,
    /// Beside readers, and may become the writer.
    Upgradable,
    /// Beside other readers.
    Shared,
}

impl Mode {
    /// The mode in one lower-case word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Upgradable => "upgradable",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Snapshot {
    /// Whether a holder or a waiter with this many [`units`](crate::Holder::units) reads or writes. `None` for semaphores,
    /// whose units are permits, and for latches.
    pub fn mode(&self, units: u64) -> Option<Mode> {
        match (self.limit, units) {
            (WHOLE, READ) => Some(Mode::Shared),
            (WHOLE, UPGRADABLE) => Some(Mode::Upgradable),
            // An upgradable reader that waits to write asks for what it lacks.
            (WHOLE, _) => Some(Mode::Exclusive),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{Feature, Info};
    use crate::claim::{Claim, Units};
    use crate::key::Key;
    use crate::memory::Memory;
    use crate::store::Store;

    #[test]
    fn limits_of_locks_and_latches_are_not_numbers() {
        assert_eq!(Usage(WHOLE).to_string(), "a lock");
        assert_eq!(Usage(Latch::LIMIT).to_string(), "a latch");
        assert_eq!(Usage(1).to_string(), "a semaphore with 1 permit");
    }

    #[test]
    fn refusals_show_nothing_of_how_locks_count() {
        let nothing = Info { capabilities: &[], ..Memory::new().info().clone() };
        let unsupported = Feature::ALL.iter().filter_map(|feature| nothing.require(*feature).err());
        let claim = |limit, units| Claim::new(Key::new("k").unwrap(), limit, Units::Exactly(units)).unwrap();
        let invalid = [(0, 1), (1, 0), (3, 5), (WHOLE, WHOLE + 1), (WHOLE + 1, 1), (Latch::LIMIT, WHOLE)];
        let invalid = invalid.map(|(limit, units)| claim(limit, units).check().unwrap_err());
        let conflicts = [1, 3, Latch::LIMIT, WHOLE].map(|limit| Usage(limit).conflict());
        let errors: Vec<_> = unsupported.chain(invalid).chain(conflicts).collect();
        assert!(errors.len() > 20, "{}", errors.len());
        for error in errors {
            // What was asked for is the caller's own number.
            let text = error
                .to_string()
                .replace(&format!("{WHOLE} permits asked"), "")
                .replace("4503599627370497", "");
            for inner in ["4503599627370496", "4503599627370495", "Sum", "Units", "units"] {
                assert!(!text.contains(inner), "{error}");
            }
        }
    }
}
