//! Who waits at a store that has no queue: whoever was told that it is busy, and will ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Answer, Capability, Fut, IfBusy, Inbox, Key, Store};

use crate::fixture::{AtGrant, Fixture, Hook, RawState};
use crate::spy::{Call, Spy};
use crate::victim::Killed;

/// The clients that would wait and were told that it is busy.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<Key, BTreeSet<u64>>>);

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, BTreeSet<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, call: &Call<'_>) {
        if let Call::Claim(claim, Some(Answer::Busy)) = call
            && claim.if_busy == IfBusy::Queue
        {
            let Inbox(client) = claim.inbox;
            self.lock().entry(claim.key.clone()).or_default().insert(client);
        }
    }

    /// How many were told since the key was forgotten. Several tasks of one client count as one.
    pub(crate) fn count(&self, key: &Key) -> usize {
        self.lock().get(key).map_or(0, BTreeSet::len)
    }

    /// Whoever still waits will be told again.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

/// A fixture whose connections note refusals.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Arc<dyn Fixture>,
    refusals: Arc<Refusals>,
}

impl Watched {
    /// Watches a fixture if its store has no queue; `store` is a connection that it made.
    pub(crate) fn if_needed(
        inner: Arc<dyn Fixture>,
        store: Arc<dyn Store>,
    ) -> (Arc<dyn Fixture>, Arc<dyn Store>, Arc<Refusals>) {
        let refusals = Arc::new(Refusals::default());
        if store.info().can(Capability::Queue) {
            return (inner, store, refusals);
        }
        let watched = Self { inner, refusals: refusals.clone() };
        let store = watched.watch(store);
        (Arc::new(watched), store, refusals)
    }

    fn watch(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let refusals = self.refusals.clone();
        Arc::new(Spy::new(store, move |call| refusals.note(call)))
    }
}

impl Fixture for Watched {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(self.watch(self.inner.store().await?)) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        self.inner.raw_state(key)
    }

    fn lease(&self) -> Duration {
        self.inner.lease()
    }

    fn crowd(&self) -> usize {
        self.inner.crowd()
    }

    fn fresh_key(&self) -> Key {
        self.inner.fresh_key()
    }

    fn at_grant<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, Option<AtGrant>> {
        self.inner.at_grant(key, token)
    }

    fn kill_holder<'a>(&'a self, key: &'a Key, lease: Duration) -> Hook<'a, Killed> {
        self.inner.kill_holder(key, lease)
    }

    fn cut(&self) -> Hook<'_> {
        self.inner.cut()
    }

    fn heal(&self) -> Hook<'_> {
        self.inner.heal()
    }

    fn restart_server(&self) -> Hook<'_> {
        self.inner.restart_server()
    }
}
