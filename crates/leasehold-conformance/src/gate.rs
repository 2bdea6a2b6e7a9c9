//! A store behind a gate that can be shut: outages, lost replies and lost notifications for any store.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Answer, Change, Claim, Fut, Inbox, Info, Key, Page, Promotion, Released, Snapshot, Store, Wake, Wakes,
};
use tokio::sync::watch;

/// What passes a [`Gate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Passing {
    /// Everything.
    Everything,
    /// Requests and their replies, but no notifications.
    NoNotifications,
    /// Everything but the replies to renewals: those come late.
    LateRenewals,
    /// Requests, but no replies and no notifications: what was asked happens, and nobody hears of it.
    NoReplies,
    /// Nothing: requests wait in front of the gate, and are lost when their caller gives up.
    Nothing,
}

/// A store whose traffic can be stopped. Clones share the gate.
#[derive(Clone, Debug)]
pub struct Gate {
    inner: Arc<dyn Store>,
    passing: Arc<watch::Sender<Passing>>,
    under_way: Arc<watch::Sender<usize>>,
}

impl Gate {
    /// An open gate in front of a store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let passing = Arc::new(watch::Sender::new(Passing::Everything));
        Self { inner, passing, under_way: Arc::default() }
    }

    /// Waits until everybody who asked has heard the answer.
    pub async fn all_answered(&self) {
        // The sender lives as long as `self` does.
        let _ = self.under_way.subscribe().wait_for(|calls| *calls == 0).await;
    }

    /// From now on lets only this pass.
    pub fn let_pass(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }

    /// Waits until something like this may pass.
    async fn until(&self, may_pass: impl Fn(Passing) -> bool + Send + Sync) {
        let mut passing = self.passing.subscribe();
        // The sender lives as long as `self` does.
        let _ = passing.wait_for(|now| may_pass(*now)).await;
    }

    async fn through<T>(&self, call: Fut<'_, T>) -> leasehold_core::Result<T> {
        let _counted = Counted::new(&self.under_way);
        self.until(|now| now != Passing::Nothing).await;
        let reply = call.await;
        self.until(|now| !matches!(now, Passing::NoReplies | Passing::Nothing)).await;
        reply
    }
}

/// A call under way, until it ends or its caller leaves.
struct Counted<'a>(&'a watch::Sender<usize>);

impl<'a> Counted<'a> {
    fn new(calls: &'a watch::Sender<usize>) -> Self {
        calls.send_modify(|calls| *calls += 1);
        Self(calls)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

/// Passes notifications on while the gate is open.
#[derive(Debug)]
struct Notices {
    inner: Wakes,
    passing: watch::Receiver<Passing>,
}

impl Notices {
    fn may_pass(&self) -> bool {
        matches!(*self.passing.borrow(), Passing::Everything | Passing::LateRenewals)
    }
}

impl Wake for Notices {
    fn promoted(&self, promotion: &Promotion) {
        if self.may_pass() {
            self.inner.promoted(promotion);
        }
    }

    fn look(&self, key: &Key) {
        if self.may_pass() {
            self.inner.look(key);
        }
    }

    fn look_all(&self) {
        if self.may_pass() {
            self.inner.look_all();
        }
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }
}

impl Store for Gate {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        let notices = Notices { inner: wakes, passing: self.passing.subscribe() };
        Box::pin(self.through(Box::pin(async move { self.inner.open(inbox, Arc::new(notices)).await })))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(self.through(Box::pin(async move { self.inner.claim(claim).await })))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            let reply = self.through(Box::pin(async move { self.inner.renew(claims).await })).await;
            self.until(|now| now != Passing::LateRenewals).await;
            reply
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(self.through(Box::pin(async move { self.inner.amend(claim, change).await })))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(self.through(Box::pin(async move { self.inner.release(claim, refuse_for).await })))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(self.through(Box::pin(async move { self.inner.inspect(key).await })))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(self.through(Box::pin(async move { self.inner.list(prefix, cursor).await })))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(self.through(Box::pin(async move { self.inner.evict(key, token).await })))
    }
}
