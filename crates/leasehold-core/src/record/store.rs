//! The adaptor: load, apply the rule, swap.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use super::format::{decode, encode};
use super::{Keep, Records, Swap};
use crate::book::{Book, Fence, OpenBook};
use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::rule::{self, Outcome};
use crate::store::{Fut, Page, Promotion, Snapshot, Store, Wakes};

/// How often a swap is tried before the call gives up. Every failure means that somebody else succeeded.
const ATTEMPTS: u32 = 48;

/// The longest pause after a swap that came too late.
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// How long a record outlives what is in it: longer than any load waits for its swap, so that a client that
/// saw the key free cannot write over what happened since.
const AFTERLIFE: Duration = Duration::from_secs(60);

/// How many records one call works on at the same time.
const PARALLEL: usize = 16;

/// The largest record unless told otherwise: what the narrowest store (Consul) takes.
const MAX_BYTES: usize = 512 * 1024;

/// A [`Store`] on top of [`Records`]. Clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client};
/// use leasehold_core::record::{RecordStore, testing::MapRecords};
/// let store = RecordStore::new(MapRecords::new()).max_bytes(64 * 1024);
/// let client = Client::new(store).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// assert!(client.mutex("orders/42").try_acquire().await?.is_none());
/// # guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RecordStore<R> {
    records: R,
    max_bytes: usize,
    /// The clients of this process: they are told directly.
    inboxes: Arc<Mutex<HashMap<Inbox, Wakes>>>,
    /// The calls of this process take turns at a record: each other's swaps they need not lose.
    turns: Arc<[Turn; 64]>,
}

type Turn = tokio::sync::Mutex<()>;

impl<R: Records> RecordStore<R> {
    /// A store of these records.
    pub fn new(records: R) -> Self {
        let turns = Arc::new(std::array::from_fn(|_| Turn::default()));
        Self { records, max_bytes: MAX_BYTES, inboxes: Arc::default(), turns }
    }

    /// Refuses to write records that are larger than this.
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// The records below.
    pub fn records(&self) -> &R {
        &self.records
    }

    fn inboxes(&self) -> MutexGuard<'_, HashMap<Inbox, Wakes>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, key: &Key) -> &Turn {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.turns[hasher.finish() as usize % self.turns.len()]
    }

    /// Runs one operation of the rule until it was written, then tells whom it concerns.
    async fn operate<T: Send>(
        &self,
        key: &Key,
        operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync,
    ) -> Result<T> {
        let _turn = self.turn(key).lock().await;
        for attempt in 0..ATTEMPTS {
            let loaded = self.records.load(key).await?;
            let (mut book, mut fence) = match &loaded.bytes {
                Some(bytes) => decode(key, bytes).map_err(|e| e.at(self.info().name))?,
                None => (Book::default(), Fence::default()),
            };
            fence = fence.born(loaded.born);
            fence.prune(loaded.now);
            let drawn = fence.last();
            let outcome =
                operation(&mut OpenBook::new(key, &mut book, &mut fence, loaded.floor), loaded.now)?;
            let next = encode(key, &book, &fence);
            let unchanged = match &loaded.bytes {
                Some(before) => *before == next,
                None => book.is_empty() && fence.last() == drawn && fence.refused().next().is_none(),
            };
            if unchanged {
                return Ok(outcome.answer);
            }
            self.check_size(key, loaded.bytes.as_ref().map_or(0, Vec::len), next.len())?;
            let keep = keep(&book, &fence, loaded.now);
            if self.records.swap(key, loaded.version, &next, keep).await? == Swap::Done {
                self.tell(key, &outcome.promoted, &outcome.ended).await;
                return Ok(outcome.answer);
            }
            pause(attempt).await;
        }
        let message =
            format!("{ATTEMPTS} times somebody else was faster to change the lock: try again later");
        Err(Error::new(ErrorKind::Unavailable, message).on(key).at(self.info().name))
    }

    /// Looks without writing.
    async fn look(&self, key: &Key) -> Result<Option<Snapshot>> {
        let loaded = self.records.load(key).await?;
        let Some(bytes) = &loaded.bytes else { return Ok(None) };
        let (mut book, mut fence) = decode(key, bytes).map_err(|e| e.at(self.info().name))?;
        Ok(rule::snapshot(&mut OpenBook::new(key, &mut book, &mut fence, 0), loaded.now)?.answer)
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
            let ours = self.inboxes().get(&promotion.inbox).cloned();
            match ours {
                Some(wakes) => wakes.promoted(promotion),
                None => _ = others.insert(promotion.inbox),
            }
        }
        for inbox in ended {
            let ours = self.inboxes().get(inbox).cloned();
            match ours {
                Some(wakes) => wakes.look(key),
                None => _ = others.insert(*inbox),
            }
        }
        for told in join_all(others.into_iter().map(|inbox| self.records.nudge(inbox, key))).await {
            if let Err(error) = told {
                // The waiter polls: it loses time, nothing else.
                tracing::debug!(%key, %error, "a waiter could not be told");
            }
        }
    }

    /// Renews the claims on one key in one swap.
    async fn renew_key(&self, key: &Key, claims: Vec<&Claim>) -> Result<Vec<Answer>> {
        let renewed = self.operate(key, |book, now| {
            let mut all = Outcome { answer: Vec::new(), promoted: Vec::new(), ended: Vec::new() };
            for claim in &claims {
                let one = rule::renew(book, claim, now)?;
                all.answer.push(one.answer);
                all.promoted.extend(one.promoted);
                all.ended.extend(one.ended);
            }
            Ok(all)
        });
        match renewed.await {
            // The record is not ours any more, so nothing of ours is in it; the other keys go on.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(vec![Answer::Gone; claims.len()]),
            result => result,
        }
    }
}

/// How long what was written must be kept.
fn keep(book: &Book, fence: &Fence, now: u64) -> Keep {
    let is_resized = book.head().is_some_and(|head| head.effective != head.limit);
    if is_resized || book.rows().any(|row| row.expires.is_none()) {
        return Keep::Forever;
    }
    let ends = book.rows().filter_map(|row| row.frees_at()).chain(fence.refused().map(|(_, until)| until));
    let remembered = book.head().map(|head| head.last_until).filter(|until| *until > now);
    match ends.chain(remembered).max() {
        None => Keep::Spent(AFTERLIFE),
        Some(at) => Keep::For(Duration::from_millis(at.saturating_sub(now)).saturating_add(AFTERLIFE)),
    }
}

/// Waits a random while, the longer the more often it was in vain.
async fn pause(attempt: u32) {
    let longest = Duration::from_micros(500).saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE);
    tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
}

impl<R: Records> Store for RecordStore<R> {
    fn info(&self) -> &Info {
        self.records.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.records.open(inbox, wakes.clone()).await?;
            let mut inboxes = self.inboxes();
            inboxes.retain(|_, wakes| !wakes.is_gone());
            inboxes.insert(inbox, wakes);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(self.operate(&claim.key, |book, now| rule::claim(book, claim, now)))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            let mut places: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
            for (place, claim) in claims.iter().enumerate() {
                places.entry(&claim.key).or_default().push(place);
            }
            let keys: Vec<_> = places.into_iter().collect();
            let mut answers = vec![Answer::Gone; claims.len()];
            for some in keys.chunks(PARALLEL) {
                let one = |(key, places): &(&'a Key, Vec<usize>)| {
                    self.renew_key(key, places.iter().map(|place| &claims[*place]).collect())
                };
                let renewed = try_join_all(some.iter().map(one)).await?;
                let places = some.iter().flat_map(|(_, places)| places);
                for (place, answer) in places.zip(renewed.into_iter().flatten()) {
                    answers[*place] = answer;
                }
            }
            Ok(answers)
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(self.operate(&claim.key, |book, now| rule::amend(book, claim, change, now)))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(self.operate(&claim.key, move |book, now| rule::release(book, &claim.id, refuse_for, now)))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(self.look(key))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(async move {
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
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(self.operate(key, move |book, now| rule::evict(book, token, now)))
    }
}
