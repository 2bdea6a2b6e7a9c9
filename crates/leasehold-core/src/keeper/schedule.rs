//! When the keeper next looks at each lease.
//!
//! Renewals lie on a grid of a sixtieth of their lease, so that many leases become due at the same time and one wake-up of the
//! task serves all of them. A wake-up collects the leases that are due and touches no other.
//!
//! Plain data: no clock.

use std::collections::BTreeSet;
use std::time::Duration;

use super::entry::Phase;
use super::leases::{Extension, LeaseKey};
use super::tables::Tables;
use crate::capability::Renewal;
use crate::claim::ClaimId;
use crate::clock::Moment;

/// So many points of the grid are in one lease: twenty in the third after which it is renewed.
const GRID: u32 = 60;

/// When the task wakes up at the latest.
const IDLE: Duration = Duration::from_secs(3600);

/// The leases by the time at which the task must look at them.
#[derive(Debug)]
pub(super) struct Schedule {
    due: BTreeSet<(Moment, LeaseKey)>,
    /// By what share of its interval the grid is moved. Random, so that the clients of a machine, which read the same clock, do
    /// not send their renewals at the same time.
    shift: f64,
    /// When the task wants to wake up by itself.
    wakes_at: Option<Moment>,
}

impl Schedule {
    /// An empty schedule whose grid is moved by `shift` of its interval: 0 to 1.
    pub(super) fn new(shift: f64) -> Self {
        Self { due: BTreeSet::new(), shift, wakes_at: None }
    }

    /// When to renew a lease again: 0.85 to 1 of a third after the last time. Partly at random, so that a thousand locks
    /// that were taken together are not renewed together for ever.
    pub(super) fn renew_at(&self, Extension { sent, length }: Extension) -> Moment {
        let latest = sent + length.mul_f64((0.9 + 0.1 * fastrand::f64()) / 3.0);
        let interval = u64::try_from((length / GRID).as_nanos()).unwrap_or(u64::MAX).max(1);
        let shift = (interval as f64 * self.shift) as u64;
        let past_point = latest.nanos().saturating_sub(shift) % interval;
        // The second bound matters only to leases of centuries, which no clock can count.
        (latest - Duration::from_nanos(past_point)).max(sent + length / 4)
    }

    /// Moves a lease from one time to another. `None` is no time.
    pub(super) fn replace(&mut self, key: LeaseKey, old: Option<Moment>, new: Option<Moment>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.due.remove(&(old, key));
        }
        if let Some(new) = new {
            self.due.insert((new, key));
        }
    }

    /// Takes out the leases that are due, earliest first.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<LeaseKey> {
        let mut due = Vec::new();
        while let Some((_, key)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.pop_first();
            due.push(key);
        }
        due
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Whether the task must be woken. Once: the time is noted, and a lock that was taken and released before the task could
    /// look need not wake it again.
    pub(super) fn must_wake(&mut self) -> bool {
        let earlier = self.next().filter(|due| self.wakes_at.is_none_or(|at| *due < at));
        self.wakes_at = earlier.or(self.wakes_at);
        earlier.is_some()
    }

    /// When the task wakes by itself. A time that was chosen before stays if it is the earlier one, even if nothing is due
    /// then any more: waking once in vain costs less than being woken for every lock.
    pub(super) fn wake_up(&mut self, now: Moment) -> Moment {
        let due = self.next().unwrap_or(now + IDLE);
        let at = self.wakes_at.filter(|at| *at > now).map_or(due, |at| at.min(due));
        self.wakes_at = Some(at);
        at
    }
}

impl Tables {
    /// Plans when the claim wants attention next.
    pub(super) fn attend(&mut self, id: &ClaimId, now: Moment) {
        let Some(entry) = self.entries.get(id) else { return };
        let key = self.lease_key(&entry.claim);
        let renewal = match (&entry.phase, entry.renewal, entry.full) {
            (Phase::Parked | Phase::Asked(_), ..) => None,
            (_, Renewal::Never, true) => None,
            // A fixed lease is what its user counts on: it starts in full as soon as it may.
            (Phase::Held, Renewal::Never, false) => Some(now),
            _ => {
                let renewed = self.leases.get(&key).and_then(|lease| lease.renewed());
                Some(renewed.map_or(now, |renewed| self.due.renew_at(renewed)))
            }
        };
        let given_back = self.given_back_at(entry);
        if let Some(at) = [renewal, entry.ends(), given_back].into_iter().flatten().min() {
            self.schedule(key, at);
        }
    }

    /// Looks at the lease at this time; a shared one at the earliest that any of its claims wants.
    pub(super) fn schedule(&mut self, key: LeaseKey, at: Moment) {
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let earliest = |other: Option<Moment>| other.map_or(at, |other| at.min(other));
        let is_shared = matches!(key, LeaseKey::Shared(_));
        if lease.in_flight.is_some() {
            // The answer plans anew, but only for the claims that were named.
            lease.wanted = is_shared.then(|| earliest(lease.wanted));
            return;
        }
        let at = if is_shared { earliest(lease.due) } else { at };
        self.due.replace(key, lease.due.replace(at), Some(at));
    }

    pub(super) fn unschedule(&mut self, key: LeaseKey) {
        if let Some(lease) = self.leases.get_mut(&key) {
            self.due.replace(key, lease.due.take(), None);
        }
    }

    /// Whether the task must be woken for what is to be done.
    pub(super) fn must_wake(&mut self) -> bool {
        self.due.must_wake() || !self.chores.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 24 * 3600 * 1_000_000_000;

    fn key(n: u8) -> LeaseKey {
        LeaseKey::Own(ClaimId::from_bytes([n; 16]))
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    proptest! {
        #[test]
        fn lease_is_renewed_in_its_first_third_and_not_too_early(
            sent in 0..1_000 * DAY,
            length in 1_000_000..365 * DAY,
            shift in 0.0..1.0,
        ) {
            let (sent, length) = (at(sent), Duration::from_nanos(length));
            let renewal = Schedule::new(shift).renew_at(Extension { sent, length });
            prop_assert!(renewal <= sent + length / 3);
            prop_assert!(renewal + Duration::from_micros(1) >= sent + length.mul_f64(0.85 / 3.0));
        }

        #[test]
        fn leases_of_one_length_are_renewed_at_twenty_points_of_a_third(
            sent in prop::collection::vec(DAY..2 * DAY, 2),
            length in 1_000_000..DAY,
            shift in 0.0..1.0,
        ) {
            let (schedule, length) = (Schedule::new(shift), Duration::from_nanos(length));
            let renewal = |sent: u64| schedule.renew_at(Extension { sent: at(sent), length }).nanos();
            let (one, other) = (renewal(sent[0]), renewal(sent[1]));
            prop_assert_eq!(one.abs_diff(other) % (length / GRID).as_nanos() as u64, 0);
        }

        #[test]
        fn everything_due_is_taken_once_and_nothing_else(
            steps in prop::collection::vec((0..20_u8, prop::option::of(0..50_u64)), 0..200),
        ) {
            let (mut schedule, mut model) = (Schedule::new(0.5), std::collections::BTreeMap::new());
            for (now, (lease, due)) in steps.into_iter().enumerate() {
                let (now, due) = (now as u64, due.map(|due| at(now as u64 + due)));
                let old = match due {
                    Some(due) => model.insert(lease, due),
                    None => model.remove(&lease),
                };
                schedule.replace(key(lease), old, due);
                let mut taken: Vec<_> = model.iter().filter(|(_, due)| **due <= at(now)).collect();
                taken.sort_by_key(|(lease, due)| (**due, **lease));
                let taken: Vec<u8> = taken.into_iter().map(|(lease, _)| *lease).collect();
                model.retain(|lease, _| !taken.contains(lease));
                prop_assert_eq!(schedule.take_due(at(now)), taken.into_iter().map(key).collect::<Vec<_>>());
                prop_assert_eq!(schedule.next(), model.values().min().copied());
            }
        }
    }

    #[test]
    fn clients_that_read_the_same_clock_renew_at_different_times() {
        let lease = Extension { sent: at(DAY), length: Duration::from_secs(3) };
        let points = |shift| at(Schedule::new(shift).renew_at(lease).nanos() % 50_000_000);
        assert_eq!((points(0.0), points(0.5)), (at(0), at(25_000_000)));
    }

    #[test]
    fn lease_of_centuries_is_not_due_immediately() {
        let lease = Extension { sent: at(DAY), length: Duration::MAX };
        assert!(Schedule::new(0.5).renew_at(lease) > at(365 * DAY));
    }
}
