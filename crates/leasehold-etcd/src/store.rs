//! The store: what it is, and where each call is carried out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{
    Answer, Capability, Change, Check, Claim, Error, ErrorKind, Fut, Inbox, Info, Key, Leases, Page,
    Released, Result, Snapshot, Store, TokenStrength, Wakes,
};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::checks::checks;
use crate::inbox::listen;
use crate::labels::Labels;
use crate::names::Names;
use crate::releasing::Marks;
use crate::session::{Sessions, revoke};
use crate::url::Target;
use crate::wire::message::{Range, Status};
use crate::wire::{Connection, Fault, Link, header};
use crate::words::range;

/// What the store can do: everything but what needs a lease per claim, or numbers that others choose.
pub static INFO: Info = Info {
    name: "etcd",
    capabilities: &[
        Capability::Sight,
        Capability::Readers,
        Capability::Units,
        Capability::Queue,
        Capability::AmendUnits,
        Capability::Count,
        Capability::Value,
        Capability::Tail,
        Capability::Limit,
        Capability::Sum,
        Capability::Ask,
        Capability::List,
        Capability::Evict,
    ],
    tokens: TokenStrength::Durable,
    leases: Leases::Shared,
    ordered: true,
    pushes: true,
    min_lease: Duration::from_secs(1),
    max_lease: Duration::from_secs(365 * 24 * 3600),
    rounding: Duration::ZERO,
    expiry_slack: Duration::from_secs(2),
    batch: 10_000,
    checks: Vec::new(),
};

/// The pause before something is tried on another member.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks in an etcd cluster.
///
/// ```no_run
/// # async fn story() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::Client;
/// use leasehold_etcd::Etcd;
/// let client = Client::new(Etcd::from_url("etcd://one,two,three")?).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// println!("holding with token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Etcd(pub(crate) Arc<Shared>);

/// What all clients of one store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Arc<Link>,
    pub(crate) names: Names,
    pub(crate) sessions: Sessions,
    pub(crate) marks: Marks,
    pub(crate) labels: Labels,
    /// What the store is, with the settings that it found when it connected.
    info: OnceLock<Info>,
    listeners: Mutex<Vec<AbortHandle>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let listeners = self.listeners.get_mut().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(AbortHandle::abort);
        // Nobody is left who could use them: whoever looks should not have to wait for their end.
        let over = self.sessions.take_all();
        if let (false, Ok(runtime)) = (over.is_empty(), Handle::try_current()) {
            let link = self.link.clone();
            runtime.spawn(async move {
                match link.connection().await {
                    Ok(member) => revoke(&member, &over).await,
                    Err(error) => tracing::debug!(%error, "sessions are left to their end"),
                }
            });
        }
    }
}

impl Etcd {
    /// The cluster that a URL names. Sends nothing yet.
    ///
    /// ```
    /// use leasehold_etcd::Etcd;
    /// assert!(Etcd::from_url("etcd://user:secret@localhost:2379?timeout=500ms").is_ok());
    /// assert!(Etcd::from_url("etcd://localhost?tiemout=500ms").is_err());
    /// ```
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong with it.
    pub fn from_url(url: &str) -> Result<Self> {
        let target = Target::parse(url)?;
        let names = Names::new(&target.prefix);
        let (sessions, marks, labels) = (Sessions::default(), Marks::default(), Labels::default());
        let shared = Shared {
            link: Arc::new(Link::new(target)),
            names,
            sessions,
            marks,
            labels,
            info: OnceLock::new(),
            listeners: Mutex::default(),
        };
        Ok(Self(Arc::new(shared)))
    }
}

impl Shared {
    /// Does something on a connection. What surely did not happen is tried again, on other members, for as long as one
    /// call may take: a login that ran out, a member without a leader. What may have happened is for the caller to repeat,
    /// who must know of it.
    pub(crate) async fn on_a_member<T, W>(&self, work: impl Fn(Arc<Connection>) -> W) -> Result<T>
    where
        W: Future<Output = Result<T, Fault>>,
    {
        let limit = Instant::now() + self.link.timeout();
        loop {
            let connection = self.link.connection().await?;
            match work(connection.clone()).await {
                Ok(done) => return Ok(done),
                Err(fault) => {
                    self.link.note(&connection, &fault);
                    if !fault.did_nothing() || Instant::now() >= limit {
                        return Err(fault.into());
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Shared {
    /// What a member says about itself, unless that is known already.
    async fn status(&self, member: &Connection) -> Option<Status> {
        match self.info.get() {
            Some(_) => None,
            None => member.status().await.ok(),
        }
    }

    /// Looks at the settings that our promises rest on, once.
    fn check_settings(&self, status: Option<&Status>) -> Result<()> {
        if self.info.get().is_some() {
            return Ok(());
        }
        let checks = checks(status, self.link.login());
        Check::judge(&checks, INFO.name)?;
        // Whoever came first has found the same.
        let _ = self.info.set(Info { checks, ..INFO.clone() });
        Ok(())
    }
}

/// The time, for people: nothing is decided by it.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Store for Etcd {
    fn info(&self) -> &Info {
        self.0.info.get().unwrap_or(&INFO)
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            let inboxes = self.0.names.inboxes(inbox);
            let look = Range { count_only: true, ..range(&inboxes) };
            let look = &look;
            let has_answered = AtomicBool::new(false);
            let has_answered = &has_answered;
            let ask = |member: Arc<Connection>| async move {
                has_answered.store(true, Ordering::Relaxed);
                let (looked, status) = tokio::join!(member.range(look), self.0.status(&member));
                if looked.is_ok() || status.is_some() {
                    self.0.check_settings(status.as_ref()).map_err(Fault::Final)?;
                }
                header(looked?.header)
            };
            let looked = self.0.on_a_member(ask).await.map_err(|error| match error.kind() {
                // Nothing was asked for that could have happened.
                ErrorKind::Indeterminate => {
                    let message =
                        "a member can be reached, but does not answer: check that the cluster has a leader";
                    Error::new(ErrorKind::Unavailable, message).transient_if(true)
                }
                _ => {
                    let has_no_leader = error.is_retryable() && has_answered.load(Ordering::Relaxed);
                    error.transient_if(has_no_leader)
                }
            })?;
            let listener = tokio::spawn(listen(Arc::downgrade(&self.0), inbox, wakes, looked.revision + 1));
            let mut listeners = self.0.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|listener| !listener.is_finished());
            listeners.push(listener.abort_handle());
            Ok(())
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(self.0.claim(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(self.0.renew(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(self.0.amend(claim, change))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(self.0.release(claim, refuse_for))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(self.0.inspect(key))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(self.0.list(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(self.0.evict(key, token))
    }
}
