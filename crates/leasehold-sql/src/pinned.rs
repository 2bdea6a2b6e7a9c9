//! The store: claims on connections.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    Answer, Capability, Change, Claim, ClaimId, Error, ErrorKind, Fut, Grant, IfBusy, Inbox, Info, Key,
    Leases, Page, Released, Result, Snapshot, Store, Wakes,
};
use tokio::time::{Instant, sleep_until, timeout};

use crate::book::{Book, Entry, Room, sharing};
use crate::database::Database;
use crate::line::Line;
use crate::queue::Queues;

/// What the locks of a database can be, where they can be shared: the lock of a reader or of a writer, and no more.
pub const CAPABILITIES: &[Capability] = &[Capability::Readers];

/// How long a claim waits here before it is told that the lock is not free.
const WAIT: Duration = Duration::from_secs(1);

/// With so many lines, who waits for one of many locks asks again and again on a line that others are on, too: a server has few
/// connections.
const LINES: usize = 8;

/// How many locks a connection can have, each given back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// As many as there are: one connection for all of a client's claims with the same lease.
    Many,
    /// One: every claim has a connection of its own.
    One,
}

/// A database's own locks, as a store. Clones share the connections; the last one closes them.
#[derive(Debug)]
pub struct Pinned<D: Database> {
    inner: Arc<Inner<D>>,
}

impl<D: Database> Clone for Pinned<D> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

#[derive(Debug)]
pub(crate) struct Inner<D: Database> {
    pub(crate) database: D,
    info: &'static Info,
    carries: Carries,
    /// The longest that one call takes.
    limit: Duration,
    book: Mutex<Book<D::Connection>>,
    queues: Queues,
    /// One at a time makes a connection that many will share.
    opening: tokio::sync::Mutex<()>,
}

impl<D: Database> Drop for Inner<D> {
    fn drop(&mut self) {
        self.book().lines().for_each(|line| line.close());
    }
}

impl<D: Database> Pinned<D> {
    /// The locks of this database. No call takes longer than `limit`.
    pub fn new(database: D, info: &'static Info, carries: Carries, limit: Duration) -> Self {
        let (book, queues, opening) = Default::default();
        Self { inner: Arc::new(Inner { database, info, carries, limit, book, queues, opening }) }
    }

    /// Does something to its end, though its caller may leave: half a statement would make a connection useless.
    fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send {
        let (name, limit) = (self.inner.info.name, self.inner.limit);
        let task = tokio::spawn(work);
        async move {
            let unknown = |message| Error::new(ErrorKind::Indeterminate, message).at(name);
            match timeout(limit, task).await {
                Ok(Ok(done)) => done,
                Ok(Err(_)) => Err(unknown("the runtime that the store worked on is gone")),
                Err(_) => Err(unknown("no answer in time: it may have happened")),
            }
        }
    }

    async fn ask(&self, claim: &Claim, about: Option<Duration>) -> Result<Answer> {
        self.finish(self.inner.clone().claim(claim.clone(), about)).await
    }

    /// Asks, and where others of this process wait or the lock is not free, waits for a while with them.
    async fn ask_or_wait(&self, claim: &Claim) -> Result<Answer> {
        let queues = &self.inner.queues;
        let waits = claim.if_busy == IfBusy::Queue;
        // A guard's time counts from here.
        let most = claim.lease.map_or(WAIT, |lease| WAIT.min(lease / 8)).min(self.inner.limit / 2);
        let until = Instant::now() + most;
        if !waits || queues.is_empty(&claim.key) {
            let answer = self.ask(claim, None).await?;
            if !waits || answer != Answer::Busy {
                return Ok(answer);
            }
        }
        let Some(mut first) = queues.turn(&claim.key, until).await else { return Ok(Answer::Busy) };
        loop {
            let about = self.inner.may_wait().then(|| until - Instant::now());
            let answer = self.ask(claim, about).await?;
            if answer != Answer::Busy || !first.pause().await {
                return Ok(answer);
            }
        }
    }
}

impl<D: Database> Inner<D> {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book<D::Connection>> {
        // Nothing below the lock panics half-way through a change.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more line is not too much.
    fn may_wait(&self) -> bool {
        self.carries == Carries::One || self.book().lines().count() < LINES
    }

    /// Takes a lock that is free, or waits for it at the server.
    async fn claim(self: Arc<Self>, claim: Claim, about: Option<Duration>) -> Result<Answer> {
        let Some(lease) = claim.lease else {
            let message = "a claim without a lease cannot be on a connection: use mode=lease";
            return Err(Error::new(ErrorKind::Invalid, message).at(self.info.name));
        };
        let known = self.book().entry(&claim.id);
        if let Some(entry) = known {
            // Another copy of it: whatever became of that.
            drop(entry.slot.lock().await);
            let answers = self.clone().renew(vec![claim]).await?;
            return Ok(answers
                .into_iter()
                .next()
                .filter(|answer| *answer != Answer::Gone)
                .unwrap_or(Answer::Busy));
        }
        let (line, mut slot) = match self.seat(&claim, lease, about.is_some()).await? {
            Room::Here(line, slot) => (line, slot),
            Room::Refused => return Ok(Answer::Gone),
            Room::Taken | Room::Nowhere => return Ok(Answer::Busy),
        };
        let (sent, how) = (Instant::now(), sharing(&claim));
        let taken = line.take_within(&claim.key, how, about).await;
        self.book().waited(&line);
        match taken {
            Ok(Some(token)) => {
                *slot = Some(token);
                self.book().heard(&line, sent);
                Ok(Answer::Granted(grant(&claim, token, lease)))
            }
            Ok(None) => {
                let mut book = self.book();
                book.heard(&line, sent);
                book.unseat(&claim.id);
                Ok(Answer::Busy)
            }
            Err(error) => {
                // It may have the lock though the statement failed. With another reader on the same line nobody could tell
                // whose is given back.
                let entry = self.book().entry(&claim.id);
                let is_alone = entry.is_some_and(|entry| self.book().is_alone(&entry));
                if is_alone && line.give(&claim.key, how).await.is_ok() {
                    self.book().unseat(&claim.id);
                } else {
                    self.end(&line);
                }
                Err(error)
            }
        }
    }

    /// Notes a claim on a line, which is made if there is none.
    async fn seat(
        self: &Arc<Self>,
        claim: &Claim,
        lease: Duration,
        waits: bool,
    ) -> Result<Room<D::Connection>> {
        let room = self.book().seat(claim, self.carries, waits);
        if !matches!(room, Room::Nowhere) {
            return Ok(room);
        }
        let _alone = match self.carries {
            Carries::Many => Some(self.opening.lock().await),
            Carries::One => None,
        };
        let room = self.book().seat(claim, self.carries, waits);
        if !matches!(room, Room::Nowhere) {
            return Ok(room);
        }
        if waits && !self.may_wait() {
            return Ok(Room::Nowhere);
        }
        let sent = Instant::now();
        let connection = self.database.connect(lease).await?;
        let line = Arc::new(Line::new(connection, claim.inbox, lease));
        let mut book = self.book();
        book.add(line.clone(), sent);
        tokio::spawn(watch(Arc::downgrade(self), line));
        Ok(book.seat(claim, self.carries, waits))
    }

    async fn renew(self: Arc<Self>, claims: Vec<Claim>) -> Result<Vec<Answer>> {
        let entries: Vec<_> = {
            let book = self.book();
            claims.iter().map(|claim| book.entry(&claim.id)).collect()
        };
        self.withdraw_ghosts(&claims);
        let lines: HashMap<_, _> = {
            let book = self.book();
            // Where one waits for its lock nobody holds anything yet, and nothing can be said.
            let carrying = entries.iter().flatten().filter(|entry| !book.waits(&entry.line));
            carrying.map(|entry| (entry.line.id, entry.line.clone())).collect()
        };
        let this = &self;
        let beats = lines.into_values().map(|line| async move {
            let sent = Instant::now();
            if this.book().is_stale(&line) {
                // Its claims are lost: it must not come back.
                return this.end(&line);
            }
            match line.beat().await {
                Ok(()) => this.book().heard(&line, sent),
                // Whatever was on it ends with it.
                Err(_) => this.end(&line),
            }
        });
        join_all(beats).await;
        let book = self.book();
        let answer = |(claim, entry): (&Claim, Option<Entry<_>>)| {
            // What is being asked or given back at this moment is not there, or not any more.
            let token = entry.filter(|_| book.entry(&claim.id).is_some()).and_then(|entry| {
                let token = *entry.slot.try_lock().ok()?;
                Some((token?, entry.line.lease))
            });
            token.map_or(Answer::Gone, |(token, lease)| Answer::Granted(grant(claim, token, lease)))
        };
        Ok(claims.iter().zip(entries).map(answer).collect())
    }

    /// Gives back what a renewal of a session should have named, if it is older than that.
    fn withdraw_ghosts(self: &Arc<Self>, claims: &[Claim]) {
        let Some(first) = claims.first().filter(|_| self.info.leases == Leases::Shared) else { return };
        let named: HashSet<ClaimId> = claims.iter().map(|claim| claim.id).collect();
        let is_ghost = |entry: &&Entry<_>| {
            let Claim { inbox, lease, round, id, .. } = &entry.claim;
            (*inbox, *lease) == (first.inbox, first.lease) && *round < first.round && !named.contains(id)
        };
        let ghosts: Vec<_> =
            self.book().entries().filter(is_ghost).map(|entry| entry.claim.clone()).collect();
        for ghost in ghosts {
            tokio::spawn(self.clone().release(ghost, None));
        }
    }

    async fn release(self: Arc<Self>, claim: Claim, refuse_for: Option<Duration>) -> Result<Released> {
        let entry = {
            let mut book = self.book();
            if let Some(length) = refuse_for {
                book.refuse(claim.id, Instant::now() + length);
            }
            book.entry(&claim.id)
        };
        let Some(entry) = entry else { return Ok(Released::Gone) };
        if self.book().waits(&entry.line) {
            // It would keep its place in the server's queue, and might get what nobody wants.
            let line = entry.line.clone();
            tokio::spawn(async move { line.cancel().await });
            self.end(&entry.line);
            return Ok(Released::Waiting);
        }
        let mut slot = entry.slot.lock().await;
        if slot.is_none() {
            return Ok(Released::Gone);
        }
        let (sent, line) = (Instant::now(), &entry.line);
        let given = line.give(&entry.claim.key, sharing(&entry.claim)).await;
        *slot = None;
        match given {
            Ok(()) => {
                let mut book = self.book();
                book.heard(line, sent);
                book.unseat(&claim.id);
                drop(book);
                self.queues.freed(&claim.key);
                Ok(Released::Held)
            }
            Err(error) => {
                self.end(line);
                Err(error)
            }
        }
    }

    /// A line is over: whoever was on it is told to look.
    fn end(&self, line: &Line<D::Connection>) {
        line.close();
        let lost = self.book().end(line);
        for (wakes, key) in lost {
            wakes.look(&key);
            self.queues.freed(&key);
        }
    }
}

fn grant(claim: &Claim, token: u64, lease: Duration) -> Grant {
    // Every statement on a line is a sign of life to the server.
    Grant { seat: token, token, units: claim.units.most(), lease: Some(lease), asked: false }
}

/// Waits until a line ends: by itself, or because nobody renewed it for its lease though its driver may keep it alive.
async fn watch<D: Database>(store: Weak<Inner<D>>, line: Arc<Line<D::Connection>>) {
    // Once for all: a driver may be in the middle of a question.
    let mut ended = std::pin::pin!(line.ended());
    loop {
        let Some(ends) = store.upgrade().and_then(|store| store.book().ends(&line)) else { return };
        tokio::select! {
            () = &mut ended => break,
            () = sleep_until(ends) => {}
        }
        let Some(store) = store.upgrade() else { return };
        let renewed = store.book().ends(&line).is_some_and(|now| now > ends);
        if !renewed {
            // Where every claim has a line they end together all the same.
            let session = store.book().session_of(&line);
            session.iter().filter(|other| store.book().is_stale(other)).for_each(|other| store.end(other));
            break;
        }
    }
    tracing::debug!("a connection that carried locks has ended");
    if let Some(store) = store.upgrade() {
        store.end(&line);
    }
}

fn cannot(info: &Info) -> Error {
    Error::new(ErrorKind::Invalid, "the database's own locks cannot do this: use mode=lease").at(info.name)
}

impl<D: Database> Store for Pinned<D> {
    fn info(&self) -> &Info {
        self.inner.info
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.inner.database.check().await?;
            self.inner.book().open(inbox, wakes);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async { self.ask_or_wait(claim).await.map_err(|e| e.on(&claim.key)) })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(self.finish(self.inner.clone().renew(claims.to_vec())))
    }

    fn amend<'a>(&'a self, _: &'a Claim, _: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async { Err(cannot(self.inner.info)) })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(self.finish(self.inner.clone().release(claim.clone(), refuse_for)))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(self.inner.clone().inspect(key.clone()))
    }

    fn list<'a>(&'a self, _: &'a str, _: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(async { Err(cannot(self.inner.info)) })
    }

    fn evict<'a>(&'a self, _: &'a Key, _: u64) -> Fut<'a, bool> {
        Box::pin(async { Err(cannot(self.inner.info)) })
    }
}
