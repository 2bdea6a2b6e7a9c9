//! A latch that is set again and again: each setting and each count takes effect once, and a round ends when it should.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Snapshot};

use crate::setup::CALL_TIMEOUT;

/// The latch as the store shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    token: u64,
    count: u64,
}

impl Shown {
    /// The latch of a key, if it is set.
    pub(crate) fn of(seen: Option<&Snapshot>) -> Option<Self> {
        seen?.holders.iter().find_map(|holder| Some(Self { token: holder.token, count: holder.count? }))
    }
}

/// What a request asks of the latch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed<'a> {
    Set(&'a Claim),
    /// Counts the latch with this token down, once per `op`.
    Count {
        op: u64,
        token: u64,
    },
    Delete,
    /// Takes back what a dropped `set` may have set.
    Withdraw,
}

/// A round that has not ended.
#[derive(Debug)]
struct Round {
    setting: ClaimId,
    /// The earliest and the latest time at which it ends by itself, for a latch that lives for some time.
    ends: Option<(Duration, Duration)>,
}

/// How rounds ended that nobody counted down to zero.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Endings {
    pub(crate) deleted: u64,
    pub(crate) by_time: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    current: Option<Round>,
    /// When each setting's round ended.
    ended: HashMap<ClaimId, Duration>,
    /// The counts that took effect, by their numbers, and in which round.
    counts: HashMap<u64, ClaimId>,
    pub(crate) endings: Endings,
}

impl Rounds {
    /// A request was carried out, and the latch was like this before and after it. Complains about a broken law.
    pub(crate) fn happened(
        &mut self,
        deed: Deed<'_>,
        before: Option<Shown>,
        after: Option<Shown>,
        now: Duration,
    ) -> Option<String> {
        let by_time = self.time_passed(before, now);
        let by_request = match deed {
            Deed::Set(claim) if before.is_none() && after.is_some() => self.set(claim, now),
            Deed::Count { op, token } if before != after => self.counted(op, token, before, now),
            _ => None,
        };
        if before.is_some() && after.is_none() {
            self.endings.deleted += u64::from(matches!(deed, Deed::Delete));
            self.end(now);
        }
        by_time.or(by_request).map(str::to_owned)
    }

    /// How many rounds have ended.
    pub(crate) fn done(&self) -> usize {
        self.ended.len()
    }

    /// Time alone ends a round that was set for some time, and no other.
    fn time_passed(&mut self, before: Option<Shown>, now: Duration) -> Option<&'static str> {
        let ends = self.current.as_ref()?.ends;
        if before.is_some() {
            return ends
                .is_some_and(|(_, latest)| now > latest)
                .then_some("a latch is still set though its time is over");
        }
        self.end(now);
        self.endings.by_time += 1;
        ends.is_none_or(|(earliest, _)| now < earliest)
            .then_some("a latch is open, and nobody has opened or deleted it")
    }

    fn set(&mut self, claim: &Claim, now: Duration) -> Option<&'static str> {
        let is_second = self.ended_lately(&claim.id, now);
        // By the store's clock, which may be fast or slow and counts in milliseconds.
        let slack = Duration::from_millis(2);
        let ends = claim
            .lease
            .map(|time| ((now + time.mul_f64(0.9)).saturating_sub(slack), now + time.mul_f64(1.1) + slack));
        self.current = Some(Round { setting: claim.id, ends });
        is_second.then_some("one call set the latch twice: nobody will count the second round down")
    }

    fn counted(&mut self, op: u64, token: u64, before: Option<Shown>, now: Duration) -> Option<&'static str> {
        let current = self.current.as_ref()?.setting;
        let earlier = self.counts.insert(op, current);
        if earlier.is_some_and(|round| round == current || self.ended_lately(&round, now)) {
            return Some("one call counted the latch down twice");
        }
        let is_another = before.is_some_and(|latch| latch.token != token);
        is_another.then_some("a call counted a later round down than the one that it saw")
    }

    fn end(&mut self, now: Duration) {
        if let Some(round) = self.current.take() {
            self.ended.insert(round.setting, now);
        }
    }

    /// Whether this round ended within the time for which a store refuses late copies, on a clock that may be fast.
    fn ended_lately(&self, setting: &ClaimId, now: Duration) -> bool {
        let promised = (CALL_TIMEOUT * 2).mul_f64(0.9);
        self.ended.get(setting).is_some_and(|at| now < *at + promised)
    }
}
