//! Claims that nobody wants any more, and giving them back.

use std::sync::Arc;
use std::time::Duration;

use super::leases::{Extension, Lease};
use super::relay::Heir;
use super::tables::Tables;
use super::{Keeper, RETRY_FIRST, RETRY_LONGEST, Tries};
use crate::capability::Leases;
use crate::claim::{Answer, Change, Claim, ClaimId, Released};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Loss, Stage};
use crate::mutant::Mutant;
use crate::pause::back_off;

/// A release that is still to be made.
#[derive(Debug)]
pub(super) struct Chore {
    pub(super) claim: Claim,
    /// Who of the same client shall have it.
    heir: Option<Heir>,
    /// A copy of its claim may still be on the way.
    in_doubt: bool,
    /// Until when nobody may have it: the tail of a job that was done too soon.
    keep_until: Option<Moment>,
    /// What the request found that left the tail.
    left_tail: Option<Released>,
    /// When the lease has ended anyway and the chore is done by itself. Means nothing for a claim without a
    /// lease.
    until: Moment,
    failed: u32,
}

impl Chore {
    fn new(claim: Claim, in_doubt: bool, until: Moment) -> Self {
        Self { claim, heir: None, in_doubt, keep_until: None, left_tail: None, until, failed: 0 }
    }

    pub(super) async fn attempt(&mut self, keeper: &Keeper) -> Result<Released> {
        // Whatever happens to this attempt: dropped, it asks for itself.
        let heir = self.heir.take();
        // Twice the time that a call may take: whatever is on the way has arrived by then.
        let is_marked = self.in_doubt && !Mutant::WithdrawalLeavesNoMark.lives();
        let refuse_for = is_marked.then(|| keeper.call_timeout * 2);
        let tail = self.keep_until.map_or(Duration::ZERO, |at| at.since(keeper.clock.now()));
        if !tail.is_zero() && !Mutant::JobLeavesNoTail.lives() {
            // Clients may see it end early by that much.
            let tail = tail + keeper.store.info().rounding;
            let found = match self.left_tail {
                Some(found) => found,
                None => self.leave_tail(tail, keeper).await?,
            };
            // A repeat of this attempt must not look for the claim again: the tail belongs to nobody.
            self.left_tail = Some(found);
            if refuse_for.is_some() {
                // Finds nothing to release, and leaves the mark.
                self.release(refuse_for, keeper).await?;
            }
            return Ok(found);
        }
        if let Some(heir) = heir
            && self.pass_on(&heir, refuse_for, keeper).await?
        {
            return Ok(Released::Held);
        }
        let released = self.release(refuse_for, keeper).await?;
        Ok(self.left_tail.unwrap_or(released))
    }

    async fn leave_tail(&self, length: Duration, keeper: &Keeper) -> Result<Released> {
        let left = keeper.call(keeper.store.amend(&self.claim, &Change::Tail(length))).await;
        let left = left.map_err(|error| error.on(&self.claim.key))?;
        Ok(if left == Answer::Done { Released::Held } else { Released::Gone })
    }

    async fn release(&self, refuse_for: Option<Duration>, keeper: &Keeper) -> Result<Released> {
        let released = keeper.call(keeper.store.release(&self.claim, refuse_for)).await;
        released.map_err(|error| error.on(&self.claim.key))
    }

    /// Makes it the heir's. `false` if that was not possible: the claim or its heir may be gone, or the heir has asked the
    /// store itself because this request took too long.
    async fn pass_on(&self, heir: &Heir, refuse_for: Option<Duration>, keeper: &Keeper) -> Result<bool> {
        let (id, to) = (heir.claim.id, Box::new(heir.claim.clone()));
        let change = Change::Owner { to, refuse_for: refuse_for.unwrap_or_default() };
        let sent = keeper.clock.now();
        let answer = keeper.call(keeper.store.amend(&self.claim, &change)).await;
        let answer = match answer {
            Err(error) if error.kind() == ErrorKind::Conflict => return Ok(false),
            answer => answer.map_err(|error| error.on(&self.claim.key))?,
        };
        let is_passed = matches!(answer, Answer::Granted(_));
        if is_passed {
            let mut tables = keeper.lock();
            tables.inherited(&id, sent, &answer, keeper.clock.now());
            keeper.rouse(&mut tables);
        }
        Ok(is_passed)
    }

    /// Does it, however often it takes. The task calls this.
    pub(super) async fn finish(mut self, keeper: Arc<Keeper>) {
        while let Err(error) = self.attempt(&keeper).await {
            let pause = back_off(self.failed, RETRY_FIRST, RETRY_LONGEST);
            self.failed += 1;
            let closing = keeper.lock().closing && self.failed > 3;
            if closing || !self.is_worth_repeating(&error, keeper.clock.now() + pause) {
                self.give_up(&error);
                break;
            }
            tokio::time::sleep(pause).await;
        }
        keeper.lock().left(&self.claim.id);
    }

    /// Whether to try again at `then`. What a claim without a lease has set stays until it is withdrawn, so
    /// nothing ends the attempts but the client's end: not even an error that an administrator can mend.
    fn is_worth_repeating(&self, error: &Error, then: Moment) -> bool {
        match self.claim.lease {
            Some(_) => error.is_retryable() && then < self.until,
            None => error.is_retryable() || matches!(error.kind(), ErrorKind::Denied | ErrorKind::Protocol),
        }
    }

    fn give_up(&self, error: &Error) {
        match self.claim.lease {
            Some(_) => tracing::debug!(%error, "gave up releasing: its lease ends it"),
            None => tracing::warn!(
                key = %self.claim.key,
                %error,
                "could not withdraw an unanswered request: a latch that it has set stays set until it is counted \
                 down or deleted"
            ),
        }
    }
}

impl Keeper {
    /// Releases the claim of a process that has died, and repeats what fails until `until`.
    pub(crate) async fn release_for_dead_owner(
        &self,
        claim: Claim,
        may_arrive_late: bool,
        keep_closed_until: Option<Moment>,
        until: Moment,
    ) -> Result<Released> {
        let chore = Chore::new(claim, may_arrive_late, until);
        let mut chore = Chore { keep_until: keep_closed_until, ..chore };
        let mut tries = Tries::new(until);
        loop {
            match chore.attempt(self).await {
                Ok(released) => return Ok(released),
                Err(error) => tries.pause_after(error, &*self.clock).await?,
            }
        }
    }
}

impl Tables {
    /// Takes a claim out of the renewals for good and says what is left to do about it.
    pub(super) fn part(&mut self, claim: &Claim, hold: &Hold, now: Moment) -> Chore {
        let lease = self.leases.get(&self.lease_key(claim)).and_then(Lease::extended);
        let until = lease.map_or(now + claim.lease.unwrap_or(claim.patience), Extension::ends);
        let is_held = hold.stage() == Stage::Held;
        let keep_until = self.entries.get(&claim.id).and_then(|entry| entry.keep_until);
        if (is_held || keep_until.is_some()) && self.info.leases == Leases::Shared {
            self.leaving.insert(claim.id, (claim.clone(), until));
        }
        // A lease that was changed by hand is not the one that the next task asked for.
        let is_as_asked = self.entries.get(&claim.id).is_some_and(|entry| entry.claim.lease == claim.lease);
        // Before it is removed, or another would ask.
        let heir = if is_held && is_as_asked { self.relays.heir_of(claim) } else { None };
        if !is_held || !Mutant::ReleaseRacesRenewal.lives() {
            self.remove(&claim.id);
        }
        Chore { heir, keep_until, ..Chore::new(claim.clone(), hold.is_in_doubt(), until) }
    }

    /// Keeps the units of a claim from everybody until then, whoever gives them back.
    pub(super) fn keep_until(&mut self, id: &ClaimId, at: Moment) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.keep_until = Some(at);
        }
    }

    /// The same, for the task to do.
    pub(super) fn leave(&mut self, id: &ClaimId, now: Moment) {
        let Some(entry) = self.entries.get(id) else { return };
        let (claim, hold) = (entry.claim.clone(), entry.hold.clone());
        if self.relays.leave(&claim) {
            return self.remove(id);
        }
        let mut chore = self.part(&claim, &hold, now);
        if !claim.lock_delay.is_zero()
            && matches!(hold.stage(), Stage::Over(Loss::Expired | Loss::HeldTooLong))
        {
            // A lease of its own would run out at the store, which would then wait. A session goes on.
            chore.keep_until = Some(now + claim.lock_delay);
            self.leaving.insert(claim.id, (claim, chore.until));
        }
        self.chores.push_back(chore);
    }

    /// A claim that parted is given back, or nobody tries to any more.
    fn left(&mut self, id: &ClaimId) {
        self.leaving.remove(id);
    }

    /// Everything goes: the client is closed.
    pub(super) fn leave_all(&mut self, loss: Loss, now: Moment) {
        if Mutant::CloseForgets.lives() {
            self.entries.clear();
        }
        for id in self.entries.keys().copied().collect::<Vec<_>>() {
            let Some(entry) = self.entries.get(&id) else { continue };
            entry.hold.end(loss);
            self.leave(&id, now);
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
        let mut tables = keeper.lock();
        let chore = if tables.relays.leave(claim) {
            // The store has never heard of it.
            tables.remove(&claim.id);
            None
        } else {
            Some(tables.part(claim, hold, now))
        };
        drop(tables);
        Self { keeper, chore }
    }

    /// Keeps the units from everybody until then, even if the keeper does not know the claim any more.
    pub(crate) fn keep_until(mut self, at: Option<Moment>) -> Self {
        if let Some(chore) = &mut self.chore {
            chore.keep_until = at;
        }
        self
    }

    /// Passes it on to nobody: who would have had it asks for itself.
    pub(crate) fn for_nobody(mut self) -> Self {
        if let Some(chore) = &mut self.chore {
            chore.heir = None;
        }
        self
    }

    /// Leaves the claim where it is: somebody else will look after it.
    pub(crate) fn abandon(mut self) {
        self.done();
    }

    pub(crate) async fn finish(mut self) -> Result<Released> {
        let Some(chore) = &mut self.chore else { return Ok(Released::Gone) };
        let started = self.keeper.clock.now();
        let error = match chore.attempt(&self.keeper).await {
            Ok(released) => {
                self.done();
                return Ok(released);
            }
            Err(error) => error,
        };
        if !error.is_retryable() || self.keeper.clock.now().since(started) >= self.keeper.call_timeout / 2 {
            return Err(error);
        }
        // A connection broke, and perhaps there is another by now.
        let again = chore.attempt(&self.keeper).await;
        if again.is_ok() {
            self.done();
        }
        match again {
            // The first attempt may have taken effect. Then the second finds nothing, or a late copy of the claim in the
            // queue, and neither says what the first one found.
            Ok(Released::Gone | Released::Waiting) | Err(_) if error.kind() == ErrorKind::Indeterminate => {
                Err(error)
            }
            again => again,
        }
    }

    fn done(&mut self) {
        if let Some(chore) = self.chore.take() {
            self.keeper.lock().left(&chore.claim.id);
        }
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
