//! Claims that nobody wants any more, and giving them back.

use std::sync::Arc;
use std::time::Duration;

use super::{Keeper, back_off};
use crate::claim::{Answer, Change, Claim, Released};
use crate::clock::Moment;
use crate::error::Result;
use crate::hold::Hold;
use crate::mutant::Mutant;

/// A release that is still to be made.
#[derive(Debug)]
pub(super) struct Chore {
    pub(super) claim: Claim,
    /// A copy of its claim may still be on the way.
    in_doubt: bool,
    /// It was held on a session, which had had this many renewals: a later one that overtakes the release withdraws what
    /// it does not name any more.
    rounds: Option<u64>,
    /// Until when nobody may have it: the tail of a job that was done too soon.
    keep_until: Option<Moment>,
    /// When the lease has ended anyway and the chore is done by itself.
    until: Moment,
    failed: u32,
}

impl Chore {
    pub(super) fn new(claim: Claim, in_doubt: bool, rounds: Option<u64>, until: Moment) -> Self {
        Self { claim, in_doubt, rounds, keep_until: None, until, failed: 0 }
    }

    pub(super) async fn attempt(&self, keeper: &Keeper) -> Result<Released> {
        let tail = self.keep_until.map_or(Duration::ZERO, |at| at.since(keeper.clock.now()));
        if !tail.is_zero() && !Mutant::JobLeavesNoTail.lives() {
            let change = Change::Tail(tail);
            let left = keeper.call(keeper.store.amend(&self.claim, &change)).await;
            let released =
                left.map(|answer| if answer == Answer::Done { Released::Held } else { Released::Gone });
            return released.map_err(|error| error.on(&self.claim.key));
        }
        // Twice the time that a call may take: whatever is on the way has arrived by then.
        let is_marked = self.in_doubt && !Mutant::WithdrawalLeavesNoMark.lives();
        let refuse_for = is_marked.then(|| keeper.call_timeout * 2);
        let released = keeper.call(keeper.store.release(&self.claim, refuse_for)).await;
        let found = released.map_err(|error| error.on(&self.claim.key))?;
        let overtaken = self.rounds.is_some_and(|rounds| keeper.lock().rounds > rounds);
        Ok(if found == Released::Gone && overtaken { Released::Held } else { found })
    }

    /// Does it, however often it takes. The task calls this.
    pub(super) async fn finish(mut self, keeper: Arc<Keeper>) {
        while let Err(error) = self.attempt(&keeper).await {
            let pause = back_off(self.failed, Duration::from_secs(1));
            self.failed += 1;
            let closing = keeper.lock().closing && self.failed > 3;
            if closing || !error.is_retryable() || keeper.clock.now() + pause >= self.until {
                tracing::debug!(%error, "gave up releasing: its lease ends it");
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// A release under way on the caller's task. Dropped before it is done, it becomes the keeper's chore.
#[derive(Debug)]
pub(crate) struct Leaving {
    keeper: Arc<Keeper>,
    chore: Option<Chore>,
}

impl Leaving {
    /// Takes the claim out of the renewals first: from here on no renewal can revive it.
    pub(crate) fn new(keeper: Arc<Keeper>, claim: &Claim, hold: &Hold) -> Self {
        let now = keeper.clock.now();
        let chore = keeper.lock().part(claim, hold, now);
        Self { keeper, chore: Some(chore) }
    }

    /// Keeps the units from everybody until then.
    pub(crate) fn keep_until(mut self, at: Option<Moment>) -> Self {
        if let Some(chore) = &mut self.chore {
            chore.keep_until = at;
        }
        self
    }

    /// Leaves the claim where it is: somebody else will look after it.
    pub(crate) fn abandon(mut self) {
        self.chore = None;
    }

    pub(crate) async fn finish(mut self) -> Result<Released> {
        let Some(chore) = &self.chore else { return Ok(Released::Gone) };
        let released = chore.attempt(&self.keeper).await?;
        self.chore = None;
        Ok(released)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(chore) = self.chore.take() {
            self.keeper.lock().chores.push_back(chore);
            self.keeper.wake.notify_one();
        }
    }
}
