//! The client runtime: one keeper per client, written once for all stores and all primitives.
//!
//! A keeper knows *leases that carry claims*: one claim per lease where the store has a lease per claim, many
//! where a session carries them. It renews them in batches, notices promotions, polls for those that were
//! never announced, declares what was lost, and takes back what nobody wants any more.
//!
//! The tables (`tables`, `rounds`) are plain data under one lock; the background task (`task`) is the only place
//! that renews. First claims and releases run on the caller's own task, so that an uncontended acquire costs
//! one round trip and no hop.

mod chores;
mod entry;
mod leases;
mod opening;
mod parking;
mod pending;
mod places;
mod polling;
mod relay;
mod rounds;
mod schedule;
mod self_wait;
mod tables;
mod task;
mod wakes;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, oneshot};

pub(crate) use chores::Leaving;
pub(crate) use pending::{Ended, Pending};

use crate::capability::{Leases, Renewal};
use crate::claim::{Answer, Change, Claim, ClaimId, Inbox};
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Loss, Stage};
use crate::key::Key;
use crate::pause::back_off;
use crate::store::{Fut, Store};
use tables::{Stand, Tables};

/// The pause after a call that failed grows between these.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LONGEST: Duration = Duration::from_secs(1);

/// The shared part: what clients, guards and the background task all look at.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inbox: Inbox,
    pub(crate) call_timeout: Duration,
    /// Carries the task and the store's listeners.
    runtime: tokio::runtime::Handle,
    me: Weak<Self>,
    /// Set once the store is connected and its settings are checked.
    opened: OnceCell<()>,
    tables: Mutex<Tables>,
    /// Wakes the task: something is due earlier than it thinks.
    wake: Notify,
    /// The task has ended, or its runtime has.
    stopped: AtomicBool,
    stop: Notify,
}

/// Held by every client and guard: when the last goes, the keeper finishes and ends.
#[derive(Debug)]
pub(crate) struct Lifeline(pub(crate) Arc<Keeper>);

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.lock().closing = true;
        self.0.wake.notify_one();
    }
}

impl Keeper {
    /// Starts the task on `runtime`. Sends nothing: the first call opens the store.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        call_timeout: Duration,
        runtime: tokio::runtime::Handle,
    ) -> Result<Arc<Lifeline>> {
        let inbox = Inbox(ClaimId::random_number()?);
        let tables = Mutex::new(Tables::new(store.info().clone(), call_timeout));
        let (wake, stop, stopped) = (Notify::new(), Notify::new(), AtomicBool::new(false));
        let opened = OnceCell::new();
        let keeper = Arc::new_cyclic(|me| {
            let me = me.clone();
            Self { store, clock, inbox, call_timeout, runtime, me, opened, tables, wake, stopped, stop }
        });
        // Made here: a runtime can end before it polls its new task even once.
        let stopped = task::Stopped(keeper.clone());
        keeper.runtime.spawn(task::run(keeper.clone(), stopped));
        Ok(Arc::new(Lifeline(keeper)))
    }

    /// Bounds a store's call, whatever the store does.
    pub(crate) async fn call<T>(&self, call: Fut<'_, T>) -> Result<T> {
        self.call_within(self.call_timeout, call).await
    }

    async fn call_within<T>(&self, limit: Duration, call: Fut<'_, T>) -> Result<T> {
        if !self.is_ready() {
            Box::pin(self.open_within(limit)).await?;
        }
        let result = tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            let message = format!("no answer within {limit:?}: it may have happened");
            Err(Error::new(ErrorKind::Indeterminate, message))
        });
        result.map_err(|error| error.at(self.store.info().name))
    }

    /// Makes a claim known before its first byte is sent, so that whatever happens to it is cleaned up.
    pub(crate) fn enter(
        self: &Arc<Self>,
        mut claim: Claim,
        renewal: Renewal,
        max_hold: Option<Duration>,
    ) -> Result<Pending> {
        let hold = Arc::new(Hold::new(self.clock.clone(), max_hold));
        let mut tables = self.lock();
        self.check(&tables).map_err(|error| error.on(&claim.key))?;
        claim.round = tables.rounds;
        tables.enter(claim.clone(), hold.clone(), renewal, self.clock.now());
        self.rouse(&mut tables);
        drop(tables);
        Ok(Pending::new(self.clone(), claim, hold))
    }

    /// Fails if the client is closing or its runtime has ended.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check(&self.lock())
    }

    fn check(&self, tables: &Tables) -> Result<()> {
        match (tables.closing, self.stopped.load(Ordering::Acquire)) {
            (true, _) => Err(closed()),
            (false, true) => Err(runtime_ended()),
            (false, false) => Ok(()),
        }
    }

    /// Fails if the runtime has ended. A closed client may still look.
    pub(crate) fn check_runtime(&self) -> Result<()> {
        let has_ended = self.stopped.load(Ordering::Acquire) && !self.lock().closing;
        if has_ended { Err(runtime_ended()) } else { Ok(()) }
    }

    /// Why a wait has ended although its limit has not passed.
    fn why_closed(&self) -> Error {
        self.check_open().err().unwrap_or_else(closed)
    }

    /// Ends all waits: the runtime has ended, so nothing would hear of a grant any more.
    fn end_waits(&self) {
        let tables = self.lock();
        for entry in tables.entries.values().filter(|entry| entry.hold.stage() == Stage::Pending) {
            entry.hold.end(Loss::Closed);
        }
    }

    /// The answer to a claim's own request that was sent at `sent`.
    fn answered(&self, id: &ClaimId, sent: Moment, answer: &Answer) -> Stand {
        let mut tables = self.lock();
        let stand = tables.answered_asker(id, sent, answer, self.clock.now());
        self.rouse(&mut tables);
        stand
    }

    /// Changes a claim, asking again for as long as one call may take.
    pub(crate) async fn amend(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        self.retry(&claim.key, || self.store.amend(claim, change)).await
    }

    /// Makes a call that may be repeated, until it is answered or one call's time is over.
    pub(crate) async fn retry<'a, T>(&self, key: &Key, call: impl Fn() -> Fut<'a, T> + Send) -> Result<T> {
        self.retry_until(key, self.clock.now() + self.call_timeout, call).await
    }

    /// Makes a call that may be repeated, until it is answered or `until` has passed; at least once.
    pub(crate) async fn retry_until<'a, T>(
        &self,
        key: &Key,
        until: Moment,
        call: impl Fn() -> Fut<'a, T> + Send,
    ) -> Result<T> {
        let mut tries = Tries::new(until);
        loop {
            match self.call(call()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => tries.pause_after(error.on(key), &*self.clock).await?,
            }
        }
    }

    /// Tells stores apart.
    pub(crate) fn store_id(&self) -> usize {
        Arc::as_ptr(&self.store).cast::<()>() as usize
    }

    /// Renews a claim now, with this lease, and waits for the answer.
    pub(crate) async fn renew_now(&self, claim: &Claim, lease: Duration) -> Result<()> {
        if let Some(session) = claim.lease.filter(|length| *length < lease && self.has_sessions()) {
            let message = format!(
                "not renewed for {lease:?}: its session keeps it for {session:?} at a time: acquire it with a lease \
                 of {lease:?}"
            );
            return Err(Error::new(ErrorKind::Unsupported, message).at(self.store.info().name));
        }
        let (sender, answer) = oneshot::channel();
        {
            let mut tables = self.lock();
            if !tables.renew_now(&claim.id, lease, sender, self.clock.now()) {
                return Err(lost_already());
            }
            self.rouse(&mut tables);
        }
        answer.await.unwrap_or_else(|_| Err(lost_already()))
    }

    fn has_sessions(&self) -> bool {
        self.store.info().leases == Leases::Shared
    }

    /// Renews a claim with this lease from now on.
    pub(crate) fn renew_with(&self, id: &ClaimId, lease: Duration) {
        let mut tables = self.lock();
        tables.renew_with(id, lease, self.clock.now());
        self.rouse(&mut tables);
    }

    /// Keeps the units of a claim from everybody until then, whoever gives them back.
    pub(crate) fn keep_until(&self, id: &ClaimId, at: Moment) {
        self.lock().keep_until(id, at);
    }

    /// Asks about everything on this key now.
    pub(crate) fn look(&self, key: &Key) {
        let mut tables = self.lock();
        tables.look(key, self.clock.now());
        self.rouse(&mut tables);
    }

    /// Releases everything, wakes everybody who waits, and ends the task.
    pub(crate) async fn close(&self) {
        {
            let mut tables = self.lock();
            tables.closing = true;
            tables.leave_all(Loss::Closed, self.clock.now());
        }
        self.wake.notify_one();
        loop {
            let stopped = self.stop.notified();
            let mut stopped = std::pin::pin!(stopped);
            stopped.as_mut().enable();
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            stopped.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Nothing below the lock panics half-way through a change.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task if something is due before it wants to wake.
    fn rouse(&self, tables: &mut Tables) {
        if tables.must_wake() {
            self.wake.notify_one();
        }
    }
}

fn lost_already() -> Error {
    Error::new(ErrorKind::Lost, "lost already: acquire it again")
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the client is closed: connect again")
}

fn runtime_ended() -> Error {
    let message = "the tokio runtime on which this client was connected has ended, so nothing would renew its locks: \
                   connect on a runtime that lives as long as the client (`ClientBuilder::runtime`)";
    Error::new(ErrorKind::Unavailable, message)
}

/// How often and until when a call is tried again.
pub(crate) struct Tries {
    until: Moment,
    failed: u32,
    /// An earlier try that may have happened, whatever became of the later ones.
    doubt: Option<Error>,
}

impl Tries {
    pub(crate) fn new(until: Moment) -> Self {
        Self { until, failed: 0, doubt: None }
    }

    /// Sleeps before the next try, or gives the error back when there is to be none.
    pub(crate) async fn pause_after(&mut self, error: Error, clock: &dyn Clock) -> Result<()> {
        // An earlier try would be in vain.
        let pause =
            back_off(self.failed, RETRY_FIRST, RETRY_LONGEST).max(error.retry_after().unwrap_or_default());
        self.failed += 1;
        if !error.is_retryable() || clock.now() + pause >= self.until {
            let in_doubt = if error.kind() == ErrorKind::Unavailable { self.doubt.take() } else { None };
            return Err(in_doubt.unwrap_or(error));
        }
        if error.kind() == ErrorKind::Indeterminate {
            self.doubt = Some(error);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
