//! How those who wait hear of their turn where the store cannot tell them: one look at each record for all of this
//! process who wait in it.
//!
//! A look only reads. A renewal, which a waiter's own poll is, writes: if every change made every waiter renew, each of
//! them would be the next change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::carried::Carried;
use super::clerk::Clerk;
use super::format::{Record, State as Stored};
use super::renewing::PARALLEL;
use super::{Records, Version};
use crate::claim::{Answer, Claim, ClaimId, Inbox};
use crate::error::Result;
use crate::key::Key;
use crate::store::{Promotion, Wake};

/// How often it is looked, should the store have changed its mind.
const IDLE: Duration = Duration::from_secs(1);

/// Those of one record.
#[derive(Debug, Default)]
struct Queue {
    claims: HashMap<ClaimId, Inbox>,
    /// What was seen last: the same need not be read again.
    seen: Option<Version>,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<Key, Queue>,
    /// Where something may have changed, by what the store says.
    hints: Hints,
    task: Option<AbortHandle>,
}

#[derive(Debug, Default)]
enum Hints {
    #[default]
    None,
    Some(Vec<Key>),
    All,
}

/// The claims of this process that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    hinted: Arc<Notify>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below the lock panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how a claim stands: who waits is looked after from now on.
    pub(super) fn note<R: Records>(clerk: &Arc<Clerk<R>>, claim: &Claim, answer: &Answer) {
        if clerk.records.looks_every().is_none() {
            return;
        }
        let waiting = &clerk.waiting;
        if !matches!(answer, Answer::Waiting(_)) {
            return waiting.forget(&claim.key, &claim.id);
        }
        let mut state = waiting.lock();
        let queue = state.queues.entry(claim.key.clone()).or_default();
        if queue.claims.insert(claim.id, claim.inbox).is_none() {
            queue.seen = None;
        }
        if state.task.as_ref().is_none_or(AbortHandle::is_finished) {
            state.task = Some(tokio::spawn(look(Arc::downgrade(clerk))).abort_handle());
        }
    }

    pub(super) fn forget(&self, key: &Key, id: &ClaimId) {
        let mut state = self.lock();
        let Some(queue) = state.queues.get_mut(key) else { return };
        queue.claims.remove(id);
        if queue.claims.is_empty() {
            state.queues.remove(key);
        }
    }

    /// The keys to look at now: those that were hinted at, or all when it is `time`.
    fn due(&self, time: bool) -> Vec<Key> {
        let mut state = self.lock();
        match std::mem::take(&mut state.hints) {
            Hints::Some(keys) if !time => {
                keys.into_iter().filter(|key| state.queues.contains_key(key)).collect()
            }
            Hints::None if !time => Vec::new(),
            _ => state.queues.keys().cloned().collect(),
        }
    }

    /// Whether nobody waits any more; then the task ends, and whoever waits next starts another.
    fn ends(&self) -> bool {
        let mut state = self.lock();
        if state.queues.is_empty() {
            state.task = None;
        }
        state.queues.is_empty()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(task) = &self.lock().task {
            task.abort();
        }
    }
}

/// What a store is given that says where something changed: a look at it, and no renewal.
#[derive(Debug)]
pub(super) struct Looks<R> {
    clerk: Weak<Clerk<R>>,
    inbox: Inbox,
}

impl<R: Records> Looks<R> {
    pub(super) fn new(clerk: &Arc<Clerk<R>>, inbox: Inbox) -> Self {
        Self { clerk: Arc::downgrade(clerk), inbox }
    }

    fn hint(&self, hint: impl FnOnce(&mut Hints)) {
        let Some(clerk) = self.clerk.upgrade() else { return };
        hint(&mut clerk.waiting.lock().hints);
        clerk.waiting.hinted.notify_one();
    }
}

impl<R: Records> Wake for Looks<R> {
    fn promoted(&self, promotion: &Promotion) {
        self.look(&promotion.key);
    }

    fn look(&self, key: &Key) {
        self.hint(|hints| match hints {
            Hints::None => *hints = Hints::Some(vec![key.clone()]),
            Hints::Some(keys) if !keys.contains(key) => keys.push(key.clone()),
            Hints::Some(_) | Hints::All => {}
        });
    }

    fn look_all(&self) {
        self.hint(|hints| *hints = Hints::All);
    }

    fn is_gone(&self) -> bool {
        self.clerk
            .upgrade()
            .is_none_or(|clerk| clerk.wakes_of(self.inbox).is_none_or(|wakes| wakes.is_gone()))
    }
}

/// Looks for those who hold by now, for as long as somebody waits and the store is there.
async fn look<R: Records>(clerk: Weak<Clerk<R>>) {
    loop {
        let (every, hinted) = {
            let Some(clerk) = clerk.upgrade() else { return };
            if clerk.waiting.ends() {
                return;
            }
            (clerk.records.looks_every().unwrap_or(IDLE), clerk.waiting.hinted.clone())
        };
        let is_time = timeout(every, hinted.notified()).await.is_err();
        let Some(clerk) = clerk.upgrade() else { return };
        for some in clerk.waiting.due(is_time).chunks(PARALLEL) {
            for looked in join_all(some.iter().map(|key| clerk.look_for(key))).await {
                if let Err(error) = looked {
                    // They ask for themselves, later.
                    tracing::debug!(%error, "nobody knows whose turn it is");
                }
            }
        }
    }
}

impl<R: Records> Clerk<R> {
    /// Tells those of this process who wait for a key and hold it by now, or whose turn is for them to find out.
    async fn look_for(&self, key: &Key) -> Result<()> {
        let loaded = self.records.load(key).await?;
        let claims = {
            let mut state = self.waiting.lock();
            let Some(queue) = state.queues.get_mut(key) else { return Ok(()) };
            // Of a session that is over the record does not tell.
            if queue.seen == Some(loaded.version) && self.records.sessions().is_none() {
                return Ok(());
            }
            queue.seen = Some(loaded.version);
            queue.claims.clone()
        };
        let record = match &loaded.bytes {
            Some(bytes) => Record::read(key, bytes, loaded.origin)?,
            None => Record::new(key, 0, Stored::default()),
        };
        let is_over = self.is_any_over(&record).await?;
        for (id, inbox) in claims {
            let row = record.state.claims.iter().find(|row| row.id.0 == id);
            match row.filter(|_| !is_over) {
                Some(row) if row.held > 0 && row.wanted.is_none() => {
                    self.waiting.forget(key, &id);
                    let (seat, token, units) = (row.seat, row.token, row.held);
                    let promotion = Promotion { key: key.clone(), inbox, seat, token, units };
                    self.wakes_of(inbox).inspect(|wakes| wakes.promoted(&promotion));
                }
                Some(_) => {}
                None => _ = self.wakes_of(inbox).inspect(|wakes| wakes.look(key)),
            }
        }
        Ok(())
    }

    /// Whether a hold in a record ended with its session, so that whoever asks next changes it.
    async fn is_any_over(&self, record: &Record) -> Result<bool> {
        let Some(sessions) = self.records.sessions() else { return Ok(false) };
        let carrying = Carried::holding(record);
        Ok(!carrying.is_empty() && !sessions.dead(&carrying).await?.is_empty())
    }
}
