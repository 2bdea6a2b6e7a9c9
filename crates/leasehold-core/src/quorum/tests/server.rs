//! A member that a test can restart, and that looks at its settings when it is opened.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::clock::Clock;
use crate::store::{Fut, Wakes};
use crate::{Answer, Change, Check, Claim, Inbox, Info, Key, Memory, Page, Released, Snapshot, Store};

/// A store in memory. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Server(Arc<State>);

#[derive(Debug)]
struct State {
    clock: Arc<dyn Clock>,
    memory: Mutex<Memory>,
    checks: Vec<Check>,
    declared: Info,
    opened: OnceLock<Info>,
    opens: AtomicUsize,
}

impl Server {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_checks(clock, Vec::new())
    }

    /// A server that finds these settings when it is opened.
    pub(super) fn with_checks(clock: Arc<dyn Clock>, checks: Vec<Check>) -> Self {
        let memory = Memory::with_clock(clock.clone());
        let declared = memory.info().clone();
        let (memory, opened, opens) = (Mutex::new(memory), OnceLock::new(), AtomicUsize::new(0));
        Self(Arc::new(State { clock, memory, checks, declared, opened, opens }))
    }

    /// Forgets everything.
    pub(super) fn restart(&self) {
        *self.0.memory.lock().unwrap() = Memory::with_clock(self.0.clock.clone());
    }

    /// How often a client has tried to open it.
    pub(super) fn opens(&self) -> usize {
        self.0.opens.load(Ordering::SeqCst)
    }

    fn memory(&self) -> Memory {
        self.0.memory.lock().unwrap().clone()
    }
}

impl Store for Server {
    fn info(&self) -> &Info {
        self.0.opened.get().unwrap_or(&self.0.declared)
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.0.opens.fetch_add(1, Ordering::SeqCst);
            let State { checks, declared, opened, .. } = &*self.0;
            Check::judge(checks, "server")?;
            opened.get_or_init(|| Info { checks: checks.clone(), ..declared.clone() });
            self.memory().open(inbox, wakes).await
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move { self.memory().claim(claim).await })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move { self.memory().renew(claims).await })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move { self.memory().amend(claim, change).await })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(async move { self.memory().release(claim, refuse_for).await })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move { self.memory().inspect(key).await })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(async move { self.memory().list(prefix, cursor).await })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move { self.memory().evict(key, token).await })
    }
}
