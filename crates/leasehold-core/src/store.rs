//! The one trait between the client runtime and a store. Its documentation is the law.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::error::Result;
use crate::key::Key;

/// The future of a store's call.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The sink that a store reports to; handed over by [`Store::open`].
pub type Wakes = Arc<dyn Wake>;

/// What a store can tell a client without being asked. Everything here is a hint that may be lost,
/// repeated or late: the client also polls.
pub trait Wake: Debug + Send + Sync + 'static {
    /// A waiting claim of this client holds now.
    fn promoted(&self, promotion: &Promotion);
    /// Something about this key changed: ask again.
    fn look(&self, key: &Key);
    /// Anything may have changed (after a reconnect): ask again about everything.
    fn look_all(&self);
    /// Whether the client is gone, so that its inbox can be forgotten.
    fn is_gone(&self) -> bool;
}

/// A claim that was granted while it waited.
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = || Claim::new(key.clone(), 1, Units::Exactly(1));
/// let (first, second) = (claim()?, claim()?);
/// rule::claim(&mut ledger, &first, 1_000)?;
/// rule::claim(&mut ledger, &second, 1_000)?;
/// // To be told after the commit.
/// let promoted = rule::release(&mut ledger, &first.id, None, 2_000)?.promoted;
/// assert!(promoted.len() == 1 && promoted[0].token > promoted[0].seat);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The resource.
    pub key: Key,
    /// Whose inbox it belongs to.
    pub inbox: Inbox,
    /// The place that was promoted; believed only by the claim that has this seat.
    pub seat: u64,
    /// The token of the grant.
    pub token: u64,
    /// The units that it holds now.
    pub units: u64,
}

/// A store of claims.
///
/// A store never hears of mutexes or semaphores: it keeps, per key, an ordered queue of claims and
/// applies one rule, [`settle`](crate::rule), after every change. There are no default bodies, because a
/// wrapper that forgets to forward a call must not compile.
///
/// # Laws
/// 1. **Exclusion**: no grant makes the units held exceed the limit.
/// 2. **Order**: grants follow the queue, unless [`Info::ordered`] is false or the claim barges.
/// 3. **Token**: every grant carries a number larger than that of every earlier grant of the key, and at most `i64::MAX`.
/// 4. **Lease**: a claim that is not renewed for its lease (or, waiting, for its patience) ends, by the
///    store's own clock, and a dead claim never revives. Promotion does not move a lease.
/// 5. **Every call** ends: with an answer, `Unavailable` (nothing was sent) or `Indeterminate`.
/// 6. **Atomic**: a call happens completely or not at all, also when its future is dropped.
/// 7. **Kind**: while any claim is on the key, a claim with another limit is refused with `Conflict`.
/// 8. **Cost**: one round trip each, and nothing is left of a key that nobody claims.
///
/// The conformance suite holds every store to them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Claim, Key, Memory, Released, Store, Units};
/// let store = Memory::new();
/// let claim = Claim::new(Key::new("orders/42")?, 1, Units::Exactly(1))?;
/// store.claim(&claim).await?;
/// assert_eq!(store.inspect(&claim.key).await?.map(|seen| seen.held()), Some(1));
/// assert_eq!(store.release(&claim, None).await?, Released::Held);
/// # Ok(()) }
/// ```
pub trait Store: Debug + Send + Sync + 'static {
    /// What this store is and what it can do.
    fn info(&self) -> &Info;

    /// Connects, checks that this is the right kind of server, and from now on tells `wakes` what happens
    /// to claims with this `inbox`. Called for each client before anything else, and again if it failed: what an attempt
    /// that failed has left does no harm.
    ///
    /// Where servers answer, but none can serve at the moment, the error is [transient](crate::Error::is_transient).
    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()>;

    /// Asks for units. Answers `Granted`, `Waiting`, `Busy`, or `Gone` when the claim was withdrawn
    /// before it arrived. A repeat with the same id renews what is there and answers like a renewal.
    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer>;

    /// Extends leases: conditional, never re-creates. One answer per claim, in order: `Granted`,
    /// `Waiting` or `Gone`.
    ///
    /// Where a session carries the claims ([`Leases::Shared`](crate::Leases::Shared)), `claims` are all that
    /// this client knew on it when it sent this. What the store has beyond them is withdrawn if it is older: if it was
    /// made with a smaller [`Claim::round`] than the one that these carry. Requests can overtake each other, and
    /// a late renewal must not end what was claimed since.
    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>>;

    /// Changes a claim, if it is there. Repeating it does no harm.
    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer>;

    /// Gives back or leaves the queue, whichever it is, and says what it found. When `refuse_for` is given the
    /// id is refused for that long: its claim, or another copy of it, may still be on the way.
    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released>;

    /// Everybody on a key, by the store's own account, and jobs that are not due yet; `None` when there is
    /// neither.
    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>>;

    /// The keys in use that start with `prefix`, a page at a time, each key once.
    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page>;

    /// Ends the claim that holds `key` with `token`, whoever owns it, and raises the fence. `false` when no
    /// claim holds with that token. Ending a latch ends those who wait for it too.
    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn info(&self) -> &Info {
        (**self).info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        (**self).open(inbox, wakes)
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        (**self).claim(claim)
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        (**self).renew(claims)
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        (**self).amend(claim, change)
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        (**self).release(claim, refuse_for)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        (**self).inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        (**self).list(prefix, cursor)
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        (**self).evict(key, token)
    }
}

/// A page of [`Store::list`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Claim, Key, Memory, Page, Store, Units};
/// let store = Memory::new();
/// store.claim(&Claim::new(Key::new("orders/42")?, 1, Units::Exactly(1))?).await?;
/// let Page { resources, next } = store.list("orders/", None).await?;
/// assert!(resources.len() == 1 && next.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The resources, in the store's order.
    pub resources: Vec<Snapshot>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<String>,
}

/// One resource as the store sees it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory};
/// # let client = Client::new(Memory::new()).await?;
/// let guard = client.semaphore("api calls", 3).permits(2).acquire().await?;
/// let now = client.inspect("api calls").await?.expect("somebody holds it");
/// assert_eq!((now.limit, now.held(), now.available()), (3, 2, 1));
/// assert_eq!(now.holders[0].token, guard.token());
/// # guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub key: Key,
    /// The limit that claims must declare.
    pub limit: u64,
    /// The limit in force, after a resize.
    pub effective_limit: u64,
    /// Who holds, by token.
    pub holders: Vec<Holder>,
    /// Jobs that have finished and are not due yet, by token.
    pub finished: Vec<Finished>,
    /// Who waits, in order.
    pub waiters: Vec<Waiter>,
}

impl Snapshot {
    /// What a resource looks like that nobody claims.
    pub fn free(key: Key, limit: u64) -> Self {
        let (holders, finished, waiters) = (Vec::new(), Vec::new(), Vec::new());
        Self { key, limit, effective_limit: limit, holders, finished, waiters }
    }

    /// The units held by all holders together.
    pub fn held(&self) -> u64 {
        self.holders.iter().map(|holder| holder.units).sum()
    }

    /// The units that a claim could have now: neither held nor kept closed by a finished job.
    pub fn available(&self) -> u64 {
        let closed: u64 = self.finished.iter().map(|finished| finished.units).sum();
        self.effective_limit.saturating_sub(self.held()).saturating_sub(closed)
    }

    /// Who stands before the waiter with this seat: everybody who holds, and everybody who waits ahead of it.
    ///
    /// ```
    /// # use leasehold_core::{Holder, Key, Snapshot, Waiter};
    /// # use std::time::Duration;
    /// # let (mut now, zero) = (Snapshot::free(Key::new("k")?, 1), Duration::ZERO);
    /// # let waiter = |seat| Waiter { seat, units: 1, label: String::new(), waiting_for: zero, lease_left: None };
    /// # now.waiters = vec![waiter(5), waiter(6)];
    /// let (holders, ahead) = now.blockers(6);
    /// assert_eq!((holders.len(), ahead[0].seat), (0, 5));
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn blockers(&self, seat: u64) -> (&[Holder], &[Waiter]) {
        let place = self.waiters.iter().position(|waiter| waiter.seat == seat);
        (&self.holders, &self.waiters[..place.unwrap_or(self.waiters.len())])
    }
}

/// A claim that holds, as anybody may see it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let guard = client.mutex("k").acquire().await?;
/// let seen = client.inspect("k").await?.expect("it is held");
/// assert_eq!(seen.holders[0].token, guard.token());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its place.
    pub seat: u64,
    /// Its fencing token.
    pub token: u64,
    /// The units it holds: the permits of a semaphore. Of a lock, [`Snapshot::mode`] says what they mean.
    pub units: u64,
    /// Its label.
    pub label: String,
    /// How long it has held.
    pub held_for: Duration,
    /// What is left of its lease; `None` where it has none of its own: on a session, and for state that no process owns.
    pub lease_left: Option<Duration>,
    /// Its published value.
    pub value: Arc<[u8]>,
    /// Its count, for a latch.
    pub count: Option<u64>,
}

/// A job that has finished and is not due yet, as anybody may see it: no process owns its units.
///
/// Where a session carries the claims, the [lock delay](crate::Options::lock_delay) of a lost claim is shown
/// in the same way.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// client.job("nightly report").at_least(Duration::from_secs(60)).run(|_| async {}).await?;
/// let seen = client.inspect("nightly report").await?.expect("it is not due yet");
/// assert!(seen.holders.is_empty() && seen.finished[0].due_in > Duration::from_secs(50));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The place of the claim that left it.
    pub seat: u64,
    /// The token of that claim. [`Client::evict`](crate::Client::evict) with this token makes the job due.
    pub token: u64,
    /// The units that stay closed.
    pub units: u64,
    /// The label of the process that ran it.
    pub label: String,
    /// How long ago it started.
    pub started: Duration,
    /// When it is due again.
    pub due_in: Duration,
}

/// A claim that waits, as anybody may see it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Claim, Key, Memory, Store, Units};
/// let store = Memory::new();
/// let claim = || Claim::new(Key::new("k")?, 1, Units::Exactly(1));
/// store.claim(&claim()?).await?;
/// store.claim(&claim()?).await?;
/// let seen = store.inspect(&Key::new("k")?).await?.expect("it is held");
/// assert_eq!(seen.waiters.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its place.
    pub seat: u64,
    /// The units it waits for, as in [`Holder::units`].
    pub units: u64,
    /// Its label.
    pub label: String,
    /// How long it has waited.
    pub waiting_for: Duration,
    /// As in [`Holder::lease_left`].
    pub lease_left: Option<Duration>,
}
