//! The time that all processes agree on: counted since the machine was started, from a beginning that they share.
//!
//! The wall clock can be set, and the time since boot starts again with every boot and is another one in a time
//! namespace. So the directory notes, for every boot and namespace that uses it, what the wall clock said then.

use std::time::SystemTime;

use leasehold_core::local::boot_clock_name;
use leasehold_core::{BootClock, Clock};

/// How many beginnings are remembered.
const REMEMBERED: usize = 16;

/// From the time since boot to the directory's time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(i64);

impl Epoch {
    /// The directory's time.
    pub(crate) fn now(self) -> u64 {
        BootClock.now().as_millis().saturating_add_signed(self.0)
    }

    /// Our beginning among those that are noted; and, when it was not, what is to be noted.
    pub(crate) fn of(noted: &str) -> (Self, Option<String>) {
        let boot = BootClock.now().as_millis().cast_signed();
        let fresh = (millis().cast_signed()).saturating_sub(boot);
        // Where there is no telling one boot from another, the wall clock has to do.
        let Some(name) = boot_clock_name() else { return (Self(fresh), None) };
        Self::named(&name, noted, fresh)
    }

    fn named(name: &str, noted: &str, fresh: i64) -> (Self, Option<String>) {
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        if let Some(known) = noted.lines().find_map(of) {
            return (Self(known), None);
        }
        let mut lines: Vec<&str> = noted.lines().collect();
        lines.drain(..lines.len().saturating_sub(REMEMBERED - 1));
        let mut text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        text += &format!("{name} {fresh}\n");
        (Self(fresh), Some(text))
    }
}

fn since_1970() -> std::time::Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn millis() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// The wall clock: what lets numbers rise although a record was removed.
pub(crate) fn micros() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_one_beginning_and_another_has_its_own() {
        let (first, note) = Epoch::named("a ns", "", 5);
        let note = note.unwrap();
        assert_eq!((first, note.as_str()), (Epoch(5), "a ns 5\n"));
        assert_eq!(Epoch::named("a ns", &note, 99), (Epoch(5), None));
        let (second, both) = Epoch::named("b ns", &note, 7);
        assert_eq!((second, both.as_deref()), (Epoch(7), Some("a ns 5\nb ns 7\n")));
    }

    #[test]
    fn old_boots_are_forgotten() {
        let mut text = String::new();
        for boot in 0..40 {
            text = Epoch::named(&format!("{boot} ns"), &text, boot).1.unwrap();
        }
        assert_eq!(text.lines().count(), REMEMBERED);
        assert_eq!(Epoch::named("39 ns", &text, 0).0, Epoch(39));
    }
}
