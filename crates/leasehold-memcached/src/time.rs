//! The server's time, to the millisecond, from a server that tells only whole seconds.
//!
//! Every answer bounds it: the server's clock shows `t` seconds, so it is at least `t` and less than `t + 1`. The
//! estimate is the latest lower bound that no upper bound contradicts, so it is never ahead of the server by more than
//! the clocks drift between two looks, and behind by less than a second.

/// Milliseconds in a second: what the server does not tell.
const SECOND: i64 = 1000;

/// How far the server's clock is ahead of ours, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset(i64);

impl Offset {
    /// After the first look: answered at `received` of our clock, the server showed `seconds`.
    pub(crate) fn first(seconds: u64, received: u64) -> Self {
        Self(at_least(seconds, received))
    }

    /// After another look.
    #[must_use]
    pub(crate) fn refined(self, seconds: u64, sent: u64, received: u64) -> Self {
        let most = at_least(seconds, sent) + SECOND;
        Self(self.0.max(at_least(seconds, received)).min(most))
    }

    /// The server's time at `now` of our clock.
    pub(crate) fn at(self, now: u64) -> u64 {
        now.saturating_add_signed(self.0)
    }
}

fn at_least(seconds: u64, ours: u64) -> i64 {
    (seconds.cast_signed()).saturating_mul(SECOND).saturating_sub(ours.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look that took 4 ms, at a server whose clock is at `real` when ours is at `ours`.
    fn look(offset: Option<Offset>, real: u64, ours: u64) -> Offset {
        match offset {
            None => Offset::first(real / 1000, ours + 2),
            Some(offset) => offset.refined(real / 1000, ours - 2, ours + 2),
        }
    }

    #[test]
    fn it_is_never_ahead_and_closes_in() {
        let (mut offset, mut worst) = (None, 0);
        for step in 0..50 {
            let (real, ours) = (1_700_000_000_900 + step * 137, 5_000 + step * 137);
            let now = look(offset, real, ours);
            let seen = now.at(ours);
            assert!(seen <= real, "{seen} is ahead of {real}");
            worst = real - seen;
            offset = Some(now);
        }
        assert!(worst < 150, "still {worst} ms behind");
    }

    #[test]
    fn a_clock_of_ours_that_runs_fast_is_held_back() {
        let mut offset = None;
        for step in 0..100 {
            // A tenth faster than the server's.
            let (real, ours) = (1_700_000_000_000 + step * 1000, 5_000 + step * 1100);
            let now = look(offset, real, ours);
            assert!(now.at(ours) < real + 1010);
            offset = Some(now);
        }
    }
}
