//! Which clock the times in the file are by.
//!
//! Boot time starts again with every boot, and a time namespace (a container can have one) shifts it. Times
//! written under another epoch mean nothing here, and are translated before they are compared.

/// The name of a boot clock: the boot and the time namespace it counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(String);

impl Epoch {
    /// The clock of this process.
    pub(crate) fn of_this_machine() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // Kernels without time namespaces have one clock for everybody.
        let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        match boot.trim() {
            "" => Self(String::new()),
            boot => Self(format!("{boot} {}", namespace.display())),
        }
    }

    pub(crate) fn named(name: String) -> Self {
        Self(name)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether times that were last written at `stamp` under `other` are by this clock.
    ///
    /// Where the system does not name its boots, a clock that went back was started again. (When the new
    /// boot is already older than the old one was, its rows seem over, and they are: a reboot ends them.)
    pub(crate) fn covers(&self, other: &str, stamp: u64, now: u64) -> bool {
        self.0 == other && (!self.0.is_empty() || stamp <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readings_on_one_machine_are_the_same_epoch() {
        assert_eq!(Epoch::of_this_machine(), Epoch::of_this_machine());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_names_its_boots() {
        assert!(Epoch::of_this_machine().as_str().len() > 36);
    }

    #[test]
    fn without_a_name_a_clock_that_went_back_is_another_epoch() {
        let unnamed = Epoch::named(String::new());
        assert!(unnamed.covers("", 10, 10));
        assert!(!unnamed.covers("", 11, 10));
        assert!(!unnamed.covers("boot", 1, 10));
    }
}
