//! A claim between its first byte and its guard.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::relay::{MustAsk, can_be_passed};
use super::tables::Stand;
use super::{Keeper, Leaving, Tries};
use crate::claim::{Answer, Claim, IfBusy};
use crate::clock::{Moment, sleep_until};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Loss, Stage};
use crate::mutant::Mutant;

/// How far past its limit a wait may go to end in good order.
const GRACE: Duration = Duration::from_millis(100);

/// How long a wait that has run out takes at most to find out whether the store is out of reach.
const LAST_WORD: Duration = Duration::from_millis(800);

/// How an attempt ended without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Somebody else has it, and nothing was left behind.
    Busy,
    /// The place is gone: a new claim may be made.
    Gone,
    /// The wait limit has passed.
    TooLate,
}

/// Withdraws its claim when it is dropped, wherever that happens.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) keeper: Arc<Keeper>,
    pub(super) claim: Claim,
    pub(super) hold: Arc<Hold>,
    pub(super) started: Moment,
    settled: bool,
    /// The store has given it a place in the queue.
    queued: bool,
    /// The caller has been warned that it waits for itself.
    pub(super) warned: AtomicBool,
}

impl Pending {
    pub(super) fn new(keeper: Arc<Keeper>, claim: Claim, hold: Arc<Hold>) -> Self {
        let started = keeper.clock.now();
        Self { keeper, claim, hold, started, settled: false, queued: false, warned: AtomicBool::new(false) }
    }

    /// Sends the claim and waits for its turn, until `limit` on the keeper's clock.
    pub(crate) async fn settle(&mut self, limit: Option<Moment>) -> Result<Option<Ended>> {
        let may_park = can_be_passed(&self.claim, self.keeper.store.info());
        let parked = may_park.then(|| self.keeper.lock().park(&self.claim.id)).flatten();
        if let Some(must_ask) = parked {
            if let Some(ended) = Box::pin(self.parked(must_ask, limit)).await {
                return ended;
            }
            let now = self.keeper.clock.now();
            let mut tables = self.keeper.lock();
            tables.unpark(&self.claim.id, now);
            self.keeper.rouse(&mut tables);
        }
        match self.ask(limit).await? {
            None => Ok(Some(Ended::TooLate)),
            Some(Stand::Held) => Ok(None),
            Some(Stand::Busy) => Ok(Some(Ended::Busy)),
            Some(Stand::Gone) => Ok(Some(Ended::Gone)),
            // Who does not queue is not waiting for others, but for word of the session.
            Some(Stand::Waiting) if self.claim.if_busy == IfBusy::Leave => Box::pin(self.confirm()).await,
            Some(Stand::Waiting) => {
                self.queued = true;
                self.turn(limit).await
            }
        }
    }

    /// Waits for the lock behind another task of this client; `None` when this one must ask the store itself: the
    /// other task is done, or within the time of a waiter's lease has neither taken the lock nor gone, so that perhaps
    /// nobody polls it.
    async fn parked(
        &mut self,
        mut must_ask: MustAsk,
        limit: Option<Moment>,
    ) -> Option<Result<Option<Ended>>> {
        let (keeper, key) = (self.keeper.clone(), self.claim.key.clone());
        loop {
            let blocked_by = keeper.lock().blocks_parked(&key);
            let look_at = keeper.clock.now() + self.claim.patience / 2;
            tokio::select! {
                biased;
                ended = self.turn(limit) => return Some(ended),
                _ = &mut must_ask => return None,
                () = sleep_until(&*keeper.clock, look_at) => {}
            }
            let is_stuck = blocked_by.is_some() && keeper.lock().blocks_parked(&key) == blocked_by;
            if is_stuck && !Mutant::ParkedForEver.lives() {
                return None;
            }
        }
    }

    /// Whether the store has given it a place in the queue.
    pub(crate) fn was_queued(&self) -> bool {
        self.queued
    }

    /// The first round trip; `None` when the wait limit cut it short. An unknown outcome is asked about again, with
    /// the same id, never assumed.
    async fn ask(&mut self, limit: Option<Moment>) -> Result<Option<Stand>> {
        let keeper = &self.keeper;
        let patience = keeper.clock.now() + keeper.call_timeout;
        let mut tries = Tries::new(limit.map_or(patience, |limit| limit.min(patience)));
        let mut unanswered = 0;
        loop {
            // The keeper withdraws the claim if nobody polls this future for long, or when the client is closed. The
            // mark of that withdrawal does not last, so no further copy may be sent after it.
            match self.hold.stage() {
                Stage::Over(Loss::Closed) => return Err(keeper.why_closed().on(&self.claim.key)),
                Stage::Over(_) => return Ok(Some(Stand::Gone)),
                Stage::Pending | Stage::Held => {}
            }
            let sent = keeper.clock.now();
            let left = limit.map_or(Duration::MAX, |limit| limit.since(sent)).max(GRACE);
            let call = keeper.store.claim(&self.claim);
            match keeper.call_within(left.min(keeper.call_timeout), call).await {
                Ok(answer) => {
                    if unanswered == 0 {
                        self.hold.no_doubt();
                    }
                    // The mark of a withdrawal must refuse the copies that were not answered: whatever this one was
                    // told, another may arrive when the lock is free.
                    let may_arrive_late = unanswered > 0 && !Mutant::BusyForgetsLateCopies.lives();
                    self.settled = matches!(answer, Answer::Busy | Answer::Gone) && !may_arrive_late;
                    return Ok(Some(keeper.answered(&self.claim.id, sent, &answer)));
                }
                // It was our caller's patience that ended, not the store's time: that is no error.
                Err(error) if error.kind() == ErrorKind::Indeterminate && left < keeper.call_timeout => {
                    return Ok(None);
                }
                Err(error) => {
                    unanswered += u32::from(error.kind() != ErrorKind::Unavailable);
                    Box::pin(tries.pause_after(error.on(&self.claim.key), &*keeper.clock)).await?;
                }
            }
        }
    }

    /// Waits in the queue. The keeper renews the place and hears of the promotion.
    async fn turn(&mut self, limit: Option<Moment>) -> Result<Option<Ended>> {
        let granted = async {
            tokio::select! {
                biased;
                stage = self.hold.wait_for(|stage, _| (stage != Stage::Pending).then_some(stage)) => stage,
                never = Box::pin(self.warn_of_self_wait()) => match never {},
            }
        };
        let stage = match limit {
            None => granted.await,
            Some(limit) => tokio::select! {
                stage = granted => stage,
                () = sleep_until(&*self.keeper.clock, limit) => return Ok(Some(Ended::TooLate)),
            },
        };
        match stage {
            Stage::Over(Loss::Closed) => Err(self.keeper.why_closed().on(&self.claim.key)),
            Stage::Over(_) => Ok(Some(Ended::Gone)),
            _ => {
                let now = self.keeper.clock.now();
                let mut tables = self.keeper.lock();
                let is_ours = tables.picked_up(&self.claim.id, now);
                self.keeper.rouse(&mut tables);
                Ok((!is_ours).then_some(Ended::Gone))
            }
        }
    }

    /// Waits for the keeper to hear how long the lease is of what the store has granted. Within the time of two calls
    /// since it began, so that no attempt takes longer because its store has sessions.
    async fn confirm(&mut self) -> Result<Option<Ended>> {
        let limit = self.keeper.call_timeout * 2;
        let until = (self.started + limit).max(self.keeper.clock.now() + GRACE);
        match self.turn(Some(until)).await? {
            Some(Ended::TooLate) => {
                let message = format!("granted, but nobody said within {limit:?} for how long: given back");
                Err(Error::new(ErrorKind::Indeterminate, message).on(&self.claim.key))
            }
            other => Ok(other),
        }
    }

    /// The claim took over what another held: the answer to that, sent at `sent`. `false` when there was nothing.
    pub(crate) async fn adopted(&mut self, sent: Moment, answer: &Answer) -> Result<bool> {
        self.hold.no_doubt();
        match self.keeper.answered(&self.claim.id, sent, answer) {
            Stand::Held => Ok(true),
            // Adopted before the reply that said so was lost: the keeper asks what is left of the lease.
            Stand::Waiting => Ok(self.confirm().await?.is_none()),
            Stand::Busy | Stand::Gone => {
                self.settled = true;
                Ok(false)
            }
        }
    }

    /// Leaves the queue and waits until that is done, so that no place is left behind.
    pub(crate) async fn leave(mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let leaving = Leaving::new(self.keeper.clone(), &self.claim, &self.hold).finish();
        // What fails or takes long becomes the keeper's chore: the caller only wanted to be gone.
        let _ = tokio::time::timeout(GRACE, leaving).await;
    }

    /// Leaves the queue because the caller's time is over. Fails if the store is out of reach: then nobody knows whether
    /// the lock is busy.
    pub(crate) async fn run_out(mut self) -> Result<()> {
        let (keeper, key) = (self.keeper.clone(), self.claim.key.clone());
        let contact = keeper.lock().contact(&self.claim.id);
        self.settled = true;
        let leaving = Leaving::new(keeper.clone(), &self.claim, &self.hold).finish();
        let last_word = async {
            let left = leaving.await;
            match contact.is_parked {
                // Another task of this client asks for it, perhaps in vain.
                true => keeper.call(keeper.store.inspect(&key)).await.map(drop),
                false => left.map(drop),
            }
        };
        let last_word = tokio::time::timeout(LAST_WORD, last_word).await;
        let now = keeper.clock.now();
        let silent_for = now.since(contact.answered.unwrap_or(self.started));
        match last_word {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() != ErrorKind::Indeterminate => Err(error.on(&key)),
            // The store is slow, but it said just before the end that the lock is busy.
            _ if contact.answered.is_some() && silent_for < LAST_WORD * 2 => Ok(()),
            _ => {
                let message = format!("the store has not answered for {silent_for:.1?}");
                let error = Error::new(ErrorKind::Unavailable, message);
                let error = contact.failure.iter().fold(error, |error, why| error.because(&**why));
                Err(error.at(keeper.store.info().name).on(&key))
            }
        }
    }

    /// Hands the claim to a guard.
    pub(crate) fn into_parts(mut self) -> (Claim, Arc<Hold>) {
        self.settled = true;
        (self.claim.clone(), self.hold.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.settled && !Mutant::CancelLeaks.lives() {
            self.hold.end(Loss::Released);
            drop(Leaving::new(self.keeper.clone(), &self.claim, &self.hold));
        }
    }
}
