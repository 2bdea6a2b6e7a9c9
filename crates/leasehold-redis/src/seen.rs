//! The largest numbers that a store has seen.
//!
//! Each claim asks for a token above what its client has seen, whatever the server forgets. A cluster has a fence per
//! slot, and the clocks of its servers differ: a number of one slot says nothing about the others.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Key;

use crate::names;

/// One number on a single server, one per slot in a cluster.
#[derive(Debug)]
pub(crate) struct Seen(Box<[AtomicU64]>);

impl Seen {
    /// Of a single server.
    pub(crate) fn one() -> Self {
        Self(Box::new([AtomicU64::new(0)]))
    }

    /// Of a cluster.
    pub(crate) fn per_slot() -> Self {
        Self((0..names::SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn on(&self, key: &Key) -> u64 {
        self.number(key).load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, key: &Key, number: u64) {
        self.number(key).fetch_max(number, Ordering::Relaxed);
    }

    fn number(&self, key: &Key) -> &AtomicU64 {
        match &*self.0 {
            [one] => one,
            slots => &slots[usize::from(names::slot(&names::lock(key)))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_cluster_a_slot_does_not_raise_the_tokens_of_another() {
        let (one, other) = (Key::new("a").unwrap(), Key::new("b").unwrap());
        for (seen, spreads) in [(Seen::one(), true), (Seen::per_slot(), false)] {
            seen.note(&one, 7);
            seen.note(&one, 5);
            assert_eq!((seen.on(&one), seen.on(&other) == 7), (7, spreads));
        }
    }
}
