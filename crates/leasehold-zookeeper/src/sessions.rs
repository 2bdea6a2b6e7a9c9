//! The sessions of one store: opened when they are needed, forgotten when they are over or idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join;
use leasehold_core::{Claim, Error, ErrorKind, Inbox, Info, Result, Wakes};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use zookeeper_client::{AddWatchMode, CreateMode, Error as Fault};

use crate::bell;
use crate::checks::{checks, settings};
#[cfg(not(feature = "tls"))]
use crate::driver;
use crate::fault::unreachable;
use crate::session::Session;
use crate::store::INFO;
use crate::url::Target;

/// The lease of the session that looks and does what belongs to no claim: the default one, so that most clients have
/// one session only.
const USUAL: Duration = Duration::from_secs(30);

/// Which session: one per client and length of lease.
type Name = (Inbox, Duration);

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

/// All sessions of a store.
#[derive(Debug)]
pub(crate) struct Sessions {
    target: Target,
    /// What the store is, with the settings that it found when it connected.
    info: OnceLock<Info>,
    /// Where sessions are served: the runtime that opened the store.
    runtime: OnceLock<Handle>,
    inboxes: Mutex<HashMap<Inbox, Wakes>>,
    slots: Mutex<HashMap<Name, Slot>>,
}

impl Sessions {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            info: OnceLock::new(),
            runtime: OnceLock::new(),
            inboxes: Mutex::default(),
            slots: Mutex::default(),
        }
    }

    pub(crate) fn info(&self) -> &Info {
        self.info.get().unwrap_or(&INFO)
    }

    /// Runs a call where sessions are served, and not where its future is polled: one that nobody polls must not keep
    /// its session from ending. Dropped, it stops; and it takes no longer than calls may.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let limit = self.target.timeout;
        let call = async move {
            timeout(limit, call).await.unwrap_or_else(|_| {
                let message = format!("no answer within {limit:?}: it may have happened");
                Err(Error::new(ErrorKind::Indeterminate, message))
            })
        };
        let mut running = Running(self.runtime.get_or_init(Handle::current).spawn(call));
        (&mut running.0).await.unwrap_or_else(|_| Err(runtime_ended()))
    }

    /// Remembers whom to tell, and opens the first session.
    pub(crate) async fn open(&self, inbox: Inbox, wakes: Wakes) -> Result<()> {
        self.runtime.get_or_init(Handle::current);
        {
            let mut inboxes = locked(&self.inboxes);
            inboxes.retain(|_, wakes| !wakes.is_gone());
            inboxes.insert(inbox, wakes);
        }
        if self.info.get().is_some() {
            return self.get((inbox, USUAL)).await.map(drop);
        }
        let (session, settings) = join(self.get((inbox, USUAL)), settings(&self.target)).await;
        let session = session?;
        let granted = session.zk.session_timeout();
        let checks = checks(&self.target, settings.as_deref(), USUAL, granted);
        let checks = checks.inspect_err(|_| session.end())?;
        // Whoever came first has found the same.
        let _ = self.info.set(Info { checks, ..INFO.clone() });
        Ok(())
    }

    /// The session that a claim lives on, opened if need be.
    pub(crate) async fn of(&self, claim: &Claim) -> Result<Arc<Session>> {
        let session = self.get(name(claim)).await?;
        session.touch();
        Ok(session)
    }

    /// The same, if it is open.
    pub(crate) async fn open_one(&self, claim: &Claim) -> Option<Arc<Session>> {
        let slot = locked(&self.slots).get(&name(claim)).cloned()?;
        // Waits for whoever opens it: a session that is there must not be taken for a new one, which needs no heartbeat.
        let session = slot.lock().await.clone();
        session.filter(|session| !session.is_over())
    }

    /// Any session: to look, and for what belongs to no claim.
    pub(crate) async fn any(&self) -> Result<Arc<Session>> {
        let inbox = locked(&self.inboxes).keys().next().copied().unwrap_or(Inbox(0));
        let session = self.get((inbox, USUAL)).await?;
        if session.own().is_empty() {
            session.touch();
        }
        Ok(session)
    }

    async fn get(&self, name: Name) -> Result<Arc<Session>> {
        let slot = {
            let mut slots = locked(&self.slots);
            slots.retain(|other, slot| *other == name || !is_over(slot));
            slots.entry(name).or_default().clone()
        };
        let weak = Arc::downgrade(&slot);
        let mut slot = slot.lock().await;
        if let Some(session) = slot.as_ref().filter(|session| !session.is_over()) {
            return Ok(session.clone());
        }
        *slot = None;
        let wakes = locked(&self.inboxes).get(&name.0).cloned();
        let (target, lease) = (self.target.clone(), name.1);
        let runtime = self.runtime.get_or_init(Handle::current);
        // On that runtime, and not on the caller's: the session outlives the call.
        let opening = runtime.spawn(async move { connect(&target, lease, wakes).await });
        let opened = match timeout(self.target.timeout, opening).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => return Err(runtime_ended()),
            Err(_) => {
                let message = format!("no server answered within {:?}", self.target.timeout);
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        };
        *slot = Some(opened.clone());
        runtime.spawn(guard(Arc::downgrade(&opened), opened.ending(), weak));
        Ok(opened)
    }
}

/// A call that ends when this is dropped.
struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn runtime_ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime has ended: connect again")
}

fn name(claim: &Claim) -> Name {
    (claim.inbox, claim.lease.unwrap_or(USUAL))
}

fn is_over(slot: &Slot) -> bool {
    // In use by a call when somebody else has it too.
    let free = Arc::strong_count(slot).eq(&1).then(|| slot.try_lock().ok()).flatten();
    free.is_some_and(|slot| slot.as_ref().is_none_or(|session| session.is_over()))
}

/// Ends a session that its client does not renew. The driver would keep it for ever, and its claims with it.
async fn guard(
    session: Weak<Session>,
    mut ending: watch::Receiver<bool>,
    slot: Weak<tokio::sync::Mutex<Option<Arc<Session>>>>,
) {
    loop {
        let Some(ends_at) = session.upgrade().map(|session| session.ends_at()) else { return };
        tokio::select! {
            () = tokio::time::sleep_until(ends_at) => {}
            _ = ending.wait_for(|ended| *ended) => return,
        }
        let (Some(strong), Some(slot)) = (session.upgrade(), slot.upgrade()) else { return };
        let mut slot = slot.lock().await;
        if strong.ends_at() <= Instant::now() {
            strong.end();
            slot.take_if(|open| Arc::ptr_eq(open, &strong));
            return;
        }
    }
}

async fn connect(target: &Target, lease: Duration, wakes: Option<Wakes>) -> Result<Arc<Session>> {
    // The driver wants to be connected within the session's timeout: do not ask for less than that takes.
    let connector = target.connector().with_session_timeout(Session::timeout_for(lease, target.tick));
    // The keeper tries again, and knows for how long.
    let connector = connector.with_fail_eagerly();
    let ended = watch::Sender::new(false);
    #[cfg(feature = "tls")]
    let zk = crate::tls::connect(connector, target, &ended).await?;
    #[cfg(not(feature = "tls"))]
    let zk = match driver::connect(connector, &target.cluster(), &ended).await {
        Ok(zk) => zk,
        Err(fault) => return Err(crate::probe::why_not(target, fault).await),
    };
    let session = Arc::new(Session::new(zk, ended, target, lease, wakes));
    let path = format!("{}/{}", session.clients(), session.node);
    let options = CreateMode::Ephemeral.with_acls(session.acls);
    if let Err(fault) = session.zk.create(&path, b"", &options).await {
        if fault != Fault::NoNode {
            return Err(unreachable(fault));
        }
        session.make_base().await.map_err(unreachable)?;
        session.zk.create(&path, b"", &options).await.map_err(unreachable)?;
    }
    let watch = session.zk.watch(&path, AddWatchMode::Persistent);
    let watcher = watch.await.map_err(unreachable)?;
    tokio::spawn(bell::listen(Arc::downgrade(&session), session.ending(), watcher));
    Ok(session)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below the lock panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
