//! A store that passes every call on and shows it to an observer: what counts round trips and writes histories.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, Fut, Inbox, Info, Key, Page, Released, Snapshot, Store, Wakes};

/// A call that a store has answered.
#[derive(Debug)]
#[non_exhaustive]
pub enum Call<'a> {
    /// `open`.
    Open,
    /// `claim`, with its answer unless it failed.
    Claim(&'a Claim, Option<&'a Answer>),
    /// `renew`, with its answers unless it failed.
    Renew(&'a [Claim], Option<&'a [Answer]>),
    /// `amend`, with its answer unless it failed.
    Amend(&'a Claim, Option<&'a Answer>),
    /// `release`, with what it found unless it failed.
    Release(&'a Claim, Option<Released>),
    /// `inspect`, `list` or `evict`.
    Other,
}

type Observer = dyn Fn(&Call<'_>) + Send + Sync;

/// Passes every call on to a store and shows it, once answered, to an observer.
#[derive(Clone)]
pub struct Spy {
    inner: Arc<dyn Store>,
    observer: Arc<Observer>,
}

impl Spy {
    /// Watches `inner`.
    pub fn new(inner: Arc<dyn Store>, observer: impl Fn(&Call<'_>) + Send + Sync + 'static) -> Self {
        Self { inner, observer: Arc::new(observer) }
    }

    /// Watches `inner` and counts.
    pub fn counting(inner: Arc<dyn Store>) -> (Self, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let counted = counts.clone();
        (Self::new(inner, move |call| counted.note(call)), counts)
    }
}

impl fmt::Debug for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spy").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// How many calls of each kind a store has answered.
#[derive(Debug, Default)]
pub struct Counts {
    claims: AtomicU64,
    renewals: AtomicU64,
    renewed: AtomicU64,
    amendments: AtomicU64,
    releases: AtomicU64,
    others: AtomicU64,
}

impl Counts {
    fn note(&self, call: &Call<'_>) {
        let counter = match call {
            Call::Open => return,
            Call::Claim(..) => &self.claims,
            Call::Renew(claims, _) => {
                self.renewed.fetch_add(claims.len() as u64, Ordering::SeqCst);
                &self.renewals
            }
            Call::Amend(..) => &self.amendments,
            Call::Release(..) => &self.releases,
            Call::Other => &self.others,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }

    /// Calls of `claim`.
    pub fn claims(&self) -> u64 {
        self.claims.load(Ordering::SeqCst)
    }

    /// Calls of `renew`.
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::SeqCst)
    }

    /// Claims that those calls of `renew` carried.
    pub fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::SeqCst)
    }

    /// Calls of `release`.
    pub fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    /// All calls but `open`.
    pub fn total(&self) -> u64 {
        let rest = [&self.amendments, &self.others].map(|counter| counter.load(Ordering::SeqCst));
        self.claims() + self.renewals() + self.releases() + rest.iter().sum::<u64>()
    }
}

impl Store for Spy {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            let answer = self.inner.open(inbox, wakes).await;
            (self.observer)(&Call::Open);
            answer
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move {
            let answer = self.inner.claim(claim).await;
            (self.observer)(&Call::Claim(claim, answer.as_ref().ok()));
            answer
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            let answers = self.inner.renew(claims).await;
            (self.observer)(&Call::Renew(claims, answers.as_deref().ok()));
            answers
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            let answer = self.inner.amend(claim, change).await;
            (self.observer)(&Call::Amend(claim, answer.as_ref().ok()));
            answer
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(async move {
            let answer = self.inner.release(claim, refuse_for).await;
            (self.observer)(&Call::Release(claim, answer.as_ref().ok().copied()));
            answer
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move {
            let answer = self.inner.inspect(key).await;
            (self.observer)(&Call::Other);
            answer
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(async move {
            let answer = self.inner.list(prefix, cursor).await;
            (self.observer)(&Call::Other);
            answer
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move {
            let answer = self.inner.evict(key, token).await;
            (self.observer)(&Call::Other);
            answer
        })
    }
}
