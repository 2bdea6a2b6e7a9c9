//! The numbers that a quorum proposes as tokens: a hybrid of the wall clock and of the numbers that members granted.
//!
//! Members grant nothing below the last number of a key. A client with a slower clock would therefore propose
//! too little whenever a client with a faster clock held the key last. So a client remembers the furthest
//! number that it has seen, on any key, and expects it to rise with the time that passes, but a tenth more
//! slowly:
//! - Clients learn from each other's proposals. If the expectation kept up with the time, they would pass on
//!   the lead of a clock that was set right long ago, for ever. So the lead fades, by a second in ten.
//! - The time that passes is not read from the wall clock. Setting that clock back and forth adds nothing to
//!   the lead.
//!
//! If the expectation is too small, the members grant a larger number, and the client takes that or proposes
//! again.
//!
//! A number is never further ahead of the proposer's clock than a bound. Without one, a single client whose
//! clock is wrong by hours would drag all the others along, and tokens would fall when it has been forgotten.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::Mutant;

/// The system's wall clock. Unlike other clocks it can be set back; [`Numbers`] never go back.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Where proposals come from: numbers are microseconds.
#[derive(Debug)]
pub(super) struct Numbers {
    clock: Arc<dyn Clock>,
    /// How far a number may be ahead of the clock.
    bound: Duration,
    /// The largest number that was proposed or seen.
    last: u64,
    furthest: Furthest,
}

/// The number of a member that was furthest ahead, and when it was seen.
#[derive(Clone, Copy, Debug)]
struct Furthest {
    number: u64,
    seen: Instant,
}

impl Furthest {
    /// What the number has become by now, if it rises nine tenths as fast as time.
    fn expected(self) -> u64 {
        let passed = u64::try_from(self.seen.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.number.saturating_add(passed - passed / 10)
    }
}

impl Numbers {
    pub(super) fn new(clock: Arc<dyn Clock>, bound: Duration) -> Self {
        Self { clock, bound, last: 0, furthest: Furthest { number: 0, seen: Instant::now() } }
    }

    /// A number above all that were seen, and above `above`.
    pub(super) fn propose(&mut self, above: u64) -> Result<u64> {
        let follows = self.clock.now().as_micros().max(self.if_allowed(self.furthest.expected()));
        let number = self.if_allowed(self.last).max(above).saturating_add(1).max(follows);
        self.check(number)?;
        self.last = number;
        Ok(number)
    }

    /// A member granted with this number. Learns nothing from one beyond the bound.
    pub(super) fn note(&mut self, number: u64) {
        if self.check(number).is_err() {
            return;
        }
        self.last = self.if_allowed(self.last).max(number);
        let is_further = number > self.if_allowed(self.furthest.expected());
        if is_further && !Mutant::QuorumTakesOnlyItsOwnNumber.lives() {
            self.furthest = Furthest { number, seen: Instant::now() };
        }
    }

    /// What was learned before the clock was set back may be beyond the bound now. Then it counts for
    /// nothing.
    fn if_allowed(&self, number: u64) -> u64 {
        if self.check(number).is_ok() { number } else { 0 }
    }

    /// Refuses a number that is further ahead of the clock than the bound.
    pub(super) fn check(&self, number: u64) -> Result<()> {
        let ahead = Duration::from_micros(number.saturating_sub(self.clock.now().as_micros()));
        if ahead <= self.bound {
            return Ok(());
        }
        let message = format!(
            "the key's last token is {ahead:.0?} ahead of this machine's clock, and {:?} are allowed: \
             the clock of this machine or of another client is wrong, synchronise them",
            self.bound
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    const BOUND: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn proposals_follow_the_furthest_number_seen() {
        let mut numbers = Numbers::new(Arc::new(TestClock::new()), BOUND);
        let first = numbers.propose(0).unwrap();
        numbers.note(first + 5_000_000);
        numbers.note(first + 3_000_000);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(numbers.propose(0).unwrap(), first + 14_000_000);
        assert_eq!(numbers.propose(0).unwrap(), first + 14_000_001, "no number twice");
    }

    #[tokio::test(start_paused = true)]
    async fn lead_fades_by_a_tenth_of_the_time() {
        let clock = Arc::new(TestClock::new());
        let mut numbers = Numbers::new(clock.clone(), BOUND);
        numbers.note(clock.now().as_micros() + 50_000_000);
        for lead in (0..50).rev() {
            tokio::time::advance(Duration::from_secs(10)).await;
            let number = numbers.propose(0).unwrap();
            assert_eq!(number, clock.now().as_micros() + lead * 1_000_000);
            // It comes back from the members, or from another client that has learned it.
            numbers.note(number);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn numbers_stay_within_the_bound_whatever_is_seen() {
        let clock = Arc::new(TestClock::new());
        let mut numbers = Numbers::new(clock.clone(), BOUND);
        let first = numbers.propose(0).unwrap();
        for seconds in 0..1_000 {
            numbers.note(first + seconds * 1_000_000);
        }
        let limit = clock.now().as_micros() + 60_000_000;
        assert!(numbers.propose(limit).is_err());
        // At the bound there is no number left, until the clock has moved on.
        assert!(numbers.propose(0).is_err());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(numbers.propose(0).unwrap() <= clock.now().as_micros() + 60_000_000);
    }
}
