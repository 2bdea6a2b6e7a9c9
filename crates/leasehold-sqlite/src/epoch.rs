//! Which clock the times in the file are by.
//!
//! Boot time starts again with every boot, and a time namespace (a container can have one) shifts it. Times
//! written under another epoch mean nothing here, and are translated before they are compared.

use leasehold_core::local::boot_clock_name;

/// The name of a boot clock: the boot, and the offset of the time namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(String);

impl Epoch {
    /// The clock of this process.
    pub(crate) fn of_this_machine() -> Self {
        Self(boot_clock_name().unwrap_or_default())
    }

    pub(crate) fn named(name: String) -> Self {
        Self(name)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether times that were last written at `stamp` under `other` are by this clock.
    ///
    /// A clock never goes back, so one that shows less than the stamp is another one, whatever its name: the system does
    /// not name its boots, say. (If the new boot is already older than the old one was, its rows seem over, and they
    /// are: a reboot ends them.)
    pub(crate) fn covers(&self, other: &str, stamp: u64, now: u64) -> bool {
        self.0 == other && stamp <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_went_back_is_another_epoch() {
        for name in ["", "boot"] {
            let epoch = Epoch::named(name.to_owned());
            assert!(epoch.covers(name, 10, 10));
            assert!(!epoch.covers(name, 11, 10));
            assert!(!epoch.covers("another", 1, 10));
        }
    }
}
