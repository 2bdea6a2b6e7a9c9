//! When the program must be dead, from what is known of the lease.
//!
//! A guard is lost when 0.9 of its lease is over, and the store may grant to the next claim when all of it is. The tenth in
//! between is for ending the program: TERM at the loss, then the runner's KILL, then the guardian's, in case that the
//! runner is stopped or hangs.

use std::time::Duration;

use leasehold::Moment;

/// The part of a lease after which a guard is lost.
const BELIEVED: f64 = 0.9;
/// The runner kills at the latest when this part of the lease has passed since the loss,
const RUNNER_KILLS: f64 = 0.07;
/// and the guardian when this has.
const GUARDIAN_KILLS: f64 = 0.08;
/// But this long before the end of the lease, because a busy machine wakes a process late.
const RESERVE: Duration = Duration::from_millis(250);
/// A deadline that moves by less has not moved: reading it takes time.
const SAME: Duration = Duration::from_millis(20);

/// The lease as far as the guard shows it. A store may give a shorter lease than was asked for, and the first one after a
/// wait is a waiter's, so the length that was asked for says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margin {
    lost_at: Moment,
    /// The lease is at least this long.
    given: Duration,
}

impl Margin {
    /// From a guard that is valid for this long.
    pub(crate) fn new(now: Moment, valid_for: Duration) -> Self {
        Self { lost_at: now + valid_for, given: valid_for.div_f64(BELIEVED) }
    }

    /// The same later. What is left of a lease says the less about its length the older the lease is, so only a deadline
    /// that has moved says something new.
    pub(crate) fn update(&mut self, now: Moment, valid_for: Duration) {
        let seen = Self::new(now, valid_for);
        if seen.lost_at.since(self.lost_at) > SAME {
            *self = seen;
        }
    }

    /// How long the lease is at least.
    pub(crate) fn lease(&self) -> Duration {
        self.given
    }

    /// How long the group may take to end after a loss that came early.
    pub(crate) fn grace(&self) -> Duration {
        self.share(RUNNER_KILLS)
    }

    /// When the guardian kills the group.
    pub(crate) fn guardian_kills_at(&self) -> Moment {
        self.lost_at + self.share(GUARDIAN_KILLS)
    }

    /// When the runner kills the group at the latest.
    pub(crate) fn runner_kills_at(&self) -> Moment {
        self.lost_at + self.share(RUNNER_KILLS)
    }

    fn share(&self, of_the_lease: f64) -> Duration {
        let rest = self.given.mul_f64(1.0 - BELIEVED).saturating_sub(RESERVE);
        self.given.mul_f64(of_the_lease).min(rest.mul_f64(of_the_lease / GUARDIAN_KILLS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_nanos(1_000_000_000);

    fn seconds(moment: Moment) -> f64 {
        moment.since(START).as_secs_f64()
    }

    #[test]
    fn program_is_dead_before_the_lease_ends_even_if_the_store_gave_less() {
        // 40 s were asked for, and the session lives for 30 s.
        let margin = Margin::new(START, Duration::from_secs(27));
        assert!(seconds(margin.guardian_kills_at()) < 30.0, "{margin:?}");
        assert!(margin.runner_kills_at() < margin.guardian_kills_at());
        assert!(seconds(margin.runner_kills_at()) > 29.0, "the program gets its grace: {margin:?}");
    }

    #[test]
    fn short_lease_leaves_time_for_a_busy_machine() {
        for millis in [100, 500, 1_000, 2_000, 5_000] {
            let lease = Duration::from_millis(millis);
            let margin = Margin::new(START, lease.mul_f64(BELIEVED));
            let left = (START + lease).since(margin.guardian_kills_at());
            assert!(
                left + Duration::from_micros(1) >= RESERVE.min(lease.mul_f64(0.1)),
                "{lease:?}: {left:?}"
            );
        }
    }

    #[test]
    fn lease_keeps_its_length_while_it_runs_down_and_gets_another_when_renewed() {
        let mut margin = Margin::new(START, Duration::from_secs(9));
        margin.update(START + Duration::from_secs(8), Duration::from_secs(1));
        assert_eq!(margin.lease(), Duration::from_secs(10));
        margin.update(START + Duration::from_secs(8), Duration::from_secs(27));
        assert_eq!(margin.lease(), Duration::from_secs(30));
    }
}
