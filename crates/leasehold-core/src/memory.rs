//! The store in this process's memory: the model itself, and what every doc test runs on.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::book::{Book, Fence, OpenBook};
use crate::capability::{Capability, Info, Leases, TokenStrength};
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::clock::{BootClock, Clock};
use crate::error::Result;
use crate::key::Key;
use crate::rule::{self, Outcome};
use crate::store::{Fut, Page, Promotion, Snapshot, Store, Wakes};

/// How many keys a page of `list` has.
const PAGE: usize = 1000;

/// How many operations go by between two keys that are swept.
const SWEEP_EVERY: u64 = 8;

static INFO: Info = Info {
    name: "memory",
    capabilities: Capability::ALL,
    tokens: TokenStrength::Process,
    leases: Leases::PerClaim,
    ordered: true,
    pushes: true,
    min_lease: Duration::from_millis(10),
    max_lease: Duration::from_secs(100 * 365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::ZERO,
    batch: 1024,
    checks: Vec::new(),
};

/// Claims in this process's memory. Clones share them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let store = Memory::new();
/// let (one, two) = (Client::new(store.clone()).await?, Client::new(store).await?);
/// let guard = one.mutex("orders/42").acquire().await?;
/// assert!(two.mutex("orders/42").try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Debug, Default)]
struct Shelf {
    books: BTreeMap<Key, Book>,
    fence: Fence,
    inboxes: HashMap<Inbox, Wakes>,
    operations: u64,
    /// The key that was swept last.
    swept: Option<Key>,
}

impl Shelf {
    /// Every now and then lets time pass for a key that perhaps nobody will ask about again: else the tails of
    /// jobs, and what lost clients held, would pile up.
    fn sweep(&mut self, now: u64) -> Result<Vec<Promotion>> {
        self.operations += 1;
        if !self.operations.is_multiple_of(SWEEP_EVERY) {
            return Ok(Vec::new());
        }
        let after = self.swept.take().map_or(Bound::Unbounded, Bound::Excluded);
        self.swept = self.books.range((after, Bound::Unbounded)).next().map(|(key, _)| key.clone());
        let Some((key, book)) = self.swept.as_ref().and_then(|key| Some((key, self.books.get_mut(key)?)))
        else {
            return Ok(Vec::new());
        };
        let passed = rule::pass(&mut OpenBook::new(key, book, &mut self.fence, 0), now)?;
        if book.is_empty() {
            self.books.remove(key);
        }
        Ok(passed.promoted)
    }
}

impl Memory {
    /// An empty store on the real clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// An empty store on this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let fence = Fence::default().born(clock.now().as_millis());
        Self { clock, shelf: Arc::new(Mutex::new(Shelf { fence, ..Shelf::default() })) }
    }

    /// How many keys and refused ids it remembers: nothing when everything was released.
    pub fn residue(&self) -> usize {
        let mut shelf = self.lock();
        shelf.fence.prune(self.clock.now().as_millis());
        shelf.books.len() + shelf.fence.refused().count()
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        // Nothing here panics half-way through a change.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one operation of the rule on a key, then tells whom it concerns.
    fn operate<T>(
        &self,
        key: &Key,
        operation: impl FnOnce(&mut OpenBook<'_>, u64) -> Result<Outcome<T>>,
    ) -> Result<T> {
        let now = self.clock.now().as_millis();
        let mut shelf = self.lock();
        let Shelf { books, fence, .. } = &mut *shelf;
        fence.prune(now);
        let book = books.entry(key.clone()).or_default();
        let outcome = operation(&mut OpenBook::new(key, book, fence, 0), now);
        if book.is_empty() {
            books.remove(key);
        }
        let Outcome { answer, mut promoted, ended } = outcome?;
        promoted.extend(shelf.sweep(now)?);
        let inboxes = &shelf.inboxes;
        let told: Vec<_> = promoted.into_iter().map(|p| (inboxes.get(&p.inbox).cloned(), p)).collect();
        let ended: Vec<_> = ended.iter().filter_map(|inbox| inboxes.get(inbox).cloned()).collect();
        drop(shelf);

        for (wakes, promotion) in told {
            if let Some(wakes) = wakes {
                wakes.promoted(&promotion);
            }
        }
        for wakes in ended {
            wakes.look(key);
        }
        Ok(answer)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// A future that is ready: memory never waits.
fn done<'a, T: Send + 'a>(result: Result<T>) -> Fut<'a, T> {
    Box::pin(ready(result))
}

impl Store for Memory {
    fn info(&self) -> &Info {
        &INFO
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        let mut shelf = self.lock();
        shelf.inboxes.retain(|_, wakes| !wakes.is_gone());
        shelf.inboxes.insert(inbox, wakes);
        done(Ok(()))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        done(self.operate(&claim.key, |book, now| rule::claim(book, claim, now)))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        let one = |claim: &Claim| self.operate(&claim.key, |book, now| rule::renew(book, claim, now));
        done(claims.iter().map(one).collect())
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        done(self.operate(&claim.key, |book, now| rule::amend(book, claim, change, now)))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        done(self.operate(&claim.key, |book, now| rule::release(book, &claim.id, refuse_for, now)))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        done(self.operate(key, |book, now| rule::snapshot(book, now)))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        let mut keys: Vec<Key> = {
            let shelf = self.lock();
            let matching = shelf.books.keys().filter(|key| key.as_str().starts_with(prefix));
            matching
                .filter(|key| cursor.is_none_or(|after| key.as_str() > after))
                .take(PAGE + 1)
                .cloned()
                .collect()
        };
        let next =
            (keys.len() > PAGE).then(|| keys.pop()).and_then(|_| keys.last().map(|k| k.as_str().to_owned()));
        let one = |key: &Key| self.operate(key, |book, now| rule::snapshot(book, now)).transpose();
        done(keys.iter().filter_map(one).collect::<Result<_>>().map(|resources| Page { resources, next }))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        done(self.operate(key, |book, now| rule::evict(book, token, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Units;
    use crate::clock::TestClock;

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_on_keys_that_nobody_asks_about_goes_with_the_traffic() {
        let store = Memory::with_clock(Arc::new(TestClock::new()));
        let claim = |key: String| Claim::new(Key::new(key).unwrap(), 1, Units::Exactly(1)).unwrap();
        for n in 0..10 {
            store.claim(&claim(format!("dead {n}"))).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        for _ in 0..12 * SWEEP_EVERY {
            let used = claim("in use".to_owned());
            store.claim(&used).await.unwrap();
            store.release(&used, None).await.unwrap();
        }
        assert_eq!(store.residue(), 0);
    }
}
