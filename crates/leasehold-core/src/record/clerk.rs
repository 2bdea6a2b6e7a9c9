//! The adaptor's work: load, apply the rule, swap, tell whom it concerns.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;

use super::carried::{Carried, Dead, Mode};
use super::format::Record;
use super::renewing::PARALLEL;
use super::roll::Roll;
use super::waiting::{Looks, Waiting};
use super::{LATEST_SWAP, Loaded, Records, Session, Swap, Swapped, interest};
use crate::book::OpenBook;
use crate::capability::Info;
use crate::claim::{ClaimId, Inbox};
use crate::clock::{BootClock, Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::pause::back_off;
use crate::rule::{self, Outcome, millis};
use crate::store::{Page, Promotion, Snapshot, Wakes};

/// How often a swap is tried before the call gives up. Every failure means that somebody else succeeded.
const ATTEMPTS: u32 = 48;

/// The pause after a swap that came too late grows between these.
const FIRST_PAUSE: Duration = Duration::from_micros(250);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// How long a record outlives what is in it: longer than any load waits for its swap ([`LATEST_SWAP`]), so that a client
/// that saw the key free cannot write over what happened since.
const AFTERLIFE: Duration = LATEST_SWAP.saturating_mul(2);

type Turn = tokio::sync::Mutex<()>;

/// Does what calls ask for.
#[derive(Debug)]
pub(super) struct Clerk<R> {
    pub(super) records: R,
    pub(super) max_bytes: usize,
    /// The clients of this process: they are told directly.
    inboxes: Mutex<HashMap<Inbox, Wakes>>,
    /// The calls of this process take turns at a record: each other's swaps they need not lose.
    turns: [Turn; 64],
    /// The claims of this process on sessions.
    pub(super) roll: Roll,
    /// Those of them who wait, where the store tells nobody.
    pub(super) waiting: Waiting,
}

impl<R: Records> Clerk<R> {
    pub(super) fn new(records: R, max_bytes: usize) -> Self {
        let turns = std::array::from_fn(|_| Turn::default());
        Self {
            records,
            max_bytes,
            inboxes: Mutex::default(),
            turns,
            roll: Roll::default(),
            waiting: Waiting::default(),
        }
    }

    pub(super) fn info(&self) -> &Info {
        self.records.info()
    }

    pub(super) async fn open(self: &Arc<Self>, inbox: Inbox, wakes: Wakes) -> Result<()> {
        let hints = match self.records.looks_every() {
            Some(_) => Arc::new(Looks::new(self, inbox)),
            None => wakes.clone(),
        };
        self.records.open(inbox, hints).await?;
        let mut inboxes = self.inboxes();
        let gone: Vec<Inbox> =
            inboxes.extract_if(|_, wakes| wakes.is_gone()).map(|(inbox, _)| inbox).collect();
        self.roll.forget_clients(&gone);
        inboxes.insert(inbox, wakes);
        Ok(())
    }

    fn inboxes(&self) -> MutexGuard<'_, HashMap<Inbox, Wakes>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wakes_of(&self, inbox: Inbox) -> Option<Wakes> {
        self.inboxes().get(&inbox).cloned()
    }

    fn turn(&self, key: &Key) -> &Turn {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.turns[hasher.finish() as usize % self.turns.len()]
    }

    fn mode(&self) -> Mode {
        if self.records.sessions().is_some() { Mode::Sessions } else { Mode::Leases }
    }

    fn afterlife(&self) -> Duration {
        // With sessions, numbers come from the store itself and what is late is refused by it.
        if self.mode() == Mode::Sessions { Duration::ZERO } else { AFTERLIFE }
    }

    /// Reads what was loaded after `seen_at`, and finds out which sessions have ended.
    async fn read(&self, key: &Key, loaded: &Loaded, seen_at: Moment) -> Result<Carried> {
        let Some(bytes) = &loaded.bytes else {
            return Ok(Carried::read(None, loaded, &Dead::default(), self.mode()));
        };
        let record = Record::read(key, bytes, loaded.origin).map_err(|e| e.at(self.info().name))?;
        let dead = match self.records.sessions() {
            Some(sessions) => {
                let carrying = Carried::sessions(&record);
                if carrying.is_empty() { carrying } else { sessions.dead(&carrying).await? }
            }
            None => Vec::new(),
        };
        // A session may have ended after the record was loaded, but no later than now.
        let by = loaded.now.saturating_add(millis(BootClock.now().since(seen_at)));
        Ok(Carried::read(Some(record), loaded, &Dead { sessions: dead, by }, self.mode()))
    }

    /// Runs one operation of the rule until it was written, then tells whom it concerns. `rider` is the claim that it
    /// is about and the session that it is made for.
    pub(super) async fn operate<T: Send>(
        &self,
        key: &Key,
        rider: Option<(&Session, &ClaimId)>,
        operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync,
    ) -> Result<Made<T>> {
        let _turn = self.turn(key).lock().await;
        if interest::is_lost() {
            let message = "given up before it was begun";
            return Err(Error::new(ErrorKind::Unavailable, message).on(key).at(self.info().name));
        }
        let mut seen_at = BootClock.now();
        let mut guess = self.records.guess(key);
        let mut attempt = 0;
        while attempt < ATTEMPTS {
            let is_guess = guess.is_some();
            let loaded = match guess.take() {
                Some(guess) => guess,
                None => {
                    seen_at = BootClock.now();
                    self.records.load(key).await?
                }
            };
            match self.attempt(key, &loaded, seen_at, rider, &operation).await {
                Ok(Attempt::Unchanged(answer)) if !is_guess => {
                    return Ok(Made::Done { answer, origin: loaded.origin });
                }
                Ok(Attempt::Made(made)) => return Ok(made),
                Ok(Attempt::Stale) if !is_guess => {
                    pause(attempt).await;
                    attempt += 1;
                }
                Err(error) if !is_guess || error.kind() == ErrorKind::Indeterminate => return Err(error),
                // What a guess says about the key proves nothing.
                Ok(Attempt::Unchanged(_) | Attempt::Stale) | Err(_) => {}
            }
        }
        let message =
            format!("{ATTEMPTS} times somebody else was faster to change the lock: try again later");
        Err(Error::new(ErrorKind::Unavailable, message).on(key).at(self.info().name))
    }

    async fn attempt<T: Send>(
        &self,
        key: &Key,
        loaded: &Loaded,
        seen_at: Moment,
        rider: Option<(&Session, &ClaimId)>,
        operation: &(impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync),
    ) -> Result<Attempt<T>> {
        let mut open = self.read(key, loaded, seen_at).await?;
        let drawn = open.fence.last();
        let outcome = operation(&mut open.ledger(key, loaded.floor).up_to(loaded.ceiling), loaded.now)?;
        open.part();
        if let Some((session, id)) = rider {
            open.carry(id, session);
        }
        let next = open.write(key);
        let unchanged = match &loaded.bytes {
            Some(before) => open.is_unchanged(before, &next),
            None => {
                open.book.is_empty() && open.fence.last() == drawn && open.fence.refused().next().is_none()
            }
        };
        if unchanged {
            return Ok(Attempt::Unchanged(outcome.answer));
        }
        self.check_size(key, loaded.bytes.as_ref().map_or(0, Vec::len), next.len())?;
        let others = |inbox: &Inbox| !self.inboxes().contains_key(inbox);
        let promoted: Vec<_> = outcome.promoted.iter().filter(|p| others(&p.inbox)).cloned().collect();
        let ended: Vec<_> = outcome.ended.iter().copied().filter(others).collect();
        let swap = Swap {
            key,
            seen: loaded.version,
            seen_at,
            born: loaded.born,
            next: &next,
            keep: open.keep(loaded.now, self.afterlife()),
            on: rider.map(|(session, _)| session),
            sole: open.sole(),
            news: &open.news(&promoted, &ended),
            settled: &open.settled(),
            last: open.fence.last(),
            lasting: open.is_lasting(),
        };
        match self.records.swap(&swap).await? {
            Swapped::Done { origin } => {
                let origin = if loaded.bytes.is_some() { loaded.origin } else { origin };
                self.tell(key, &outcome.promoted, &outcome.ended).await;
                Ok(Attempt::Made(Made::Done { answer: outcome.answer, origin }))
            }
            Swapped::Over => Ok(Attempt::Made(Made::Over)),
            Swapped::Stale => Ok(Attempt::Stale),
        }
    }

    /// An operation that is made for no session.
    pub(super) async fn plainly<T: Send>(
        &self,
        key: &Key,
        operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync,
    ) -> Result<T> {
        self.plainly_from(key, operation).await.map(|(answer, _)| answer)
    }

    /// The same, and where small numbers in the answer count from.
    pub(super) async fn plainly_from<T: Send>(
        &self,
        key: &Key,
        operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync,
    ) -> Result<(T, u64)> {
        match self.operate(key, None, operation).await? {
            Made::Done { answer, origin } => Ok((answer, origin)),
            Made::Over => {
                let message = "the store speaks of a session that was not named: this is a bug in it";
                Err(Error::new(ErrorKind::Protocol, message).on(key).at(self.info().name))
            }
        }
    }

    /// Looks without writing.
    pub(super) async fn look(&self, key: &Key) -> Result<Option<Snapshot>> {
        // After what was begun before: who waits for its turn does not pile up more.
        drop(self.turn(key).lock().await);
        let seen_at = BootClock.now();
        let loaded = self.records.load(key).await?;
        if loaded.bytes.is_none() {
            return Ok(None);
        }
        let mut open = self.read(key, &loaded, seen_at).await?;
        Ok(rule::snapshot(&mut open.ledger(key, 0), loaded.now)?.answer)
    }

    pub(super) async fn list(&self, prefix: &str, cursor: Option<&str>) -> Result<Page> {
        let page = self.records.keys(prefix, cursor).await?;
        let mut resources = Vec::new();
        for some in page.keys.chunks(PARALLEL) {
            for shown in join_all(some.iter().map(|key| self.look(key))).await {
                match shown {
                    Ok(shown) => resources.extend(shown),
                    // Not ours: no lock, so not in the list of locks.
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Page { resources, next: page.next })
    }

    /// A record may shrink at any size: who holds must always be able to leave.
    fn check_size(&self, key: &Key, before: usize, after: usize) -> Result<()> {
        if after <= self.max_bytes || after <= before {
            return Ok(());
        }
        let message = format!(
            "the lock's record would have {after} bytes, the most is {}: too many claims, try again later",
            self.max_bytes
        );
        Err(Error::new(ErrorKind::Unavailable, message).on(key).at(self.info().name))
    }

    async fn tell(&self, key: &Key, promoted: &[Promotion], ended: &[Inbox]) {
        let mut others = BTreeSet::new();
        for promotion in promoted {
            match self.wakes_of(promotion.inbox) {
                Some(wakes) => wakes.promoted(promotion),
                None => _ = others.insert(promotion.inbox),
            }
        }
        for inbox in ended {
            match self.wakes_of(*inbox) {
                Some(wakes) => wakes.look(key),
                None => _ = others.insert(*inbox),
            }
        }
        if self.mode() == Mode::Sessions {
            // They were told with the swap.
            return;
        }
        for told in join_all(others.into_iter().map(|inbox| self.records.nudge(inbox, key))).await {
            if let Err(error) = told {
                // The waiter polls: it loses time, nothing else.
                tracing::debug!(%key, %error, "a waiter could not be told");
            }
        }
    }
}

/// What became of an operation.
#[derive(Debug)]
pub(super) enum Made<T> {
    /// It happened. Small numbers in the answer count from the origin.
    Done { answer: T, origin: u64 },
    /// The session that it was made for is over.
    Over,
}

enum Attempt<T> {
    /// There was nothing to write.
    Unchanged(T),
    Made(Made<T>),
    Stale,
}

/// Waits a random while, the longer the more often it was in vain.
async fn pause(attempt: u32) {
    tokio::time::sleep(back_off(attempt, FIRST_PAUSE, LONGEST_PAUSE)).await;
}
