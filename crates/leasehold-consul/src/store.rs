//! The store: the adaptor for records, on Consul's.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::Method;
use leasehold_core::record::{Recent, RecordStore};
use leasehold_core::{
    Answer, Capability, Change, Claim, Error, ErrorKind, Fut, Inbox, Info, Key, Leases, Page, Released,
    Result, Snapshot, Store, TokenStrength, Wakes,
};

use crate::checks::checked;
use crate::heirs::Heirs;
use crate::http::{Effect, Http};
use crate::kv;
use crate::listen::{Alive, Inboxes};
use crate::looks::Looks;
use crate::loose::Loose;
use crate::names::Names;
use crate::records::{About, KeyValue};
use crate::session::Table;
use crate::url::Target;

/// The largest value that servers take is 512 KiB; some of that is the transaction's.
const LARGEST: usize = 480 * 1024;

/// What the store is and promises.
pub static INFO: Info = Info {
    name: "consul",
    // Not `Owner`: a claim ends with its giver's session. Not `Member` and `TokenAbove`: its numbers are the cluster's.
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
        Capability::LockDelay,
        Capability::Sum,
        Capability::Ask,
        Capability::List,
        Capability::Evict,
    ],
    tokens: TokenStrength::Durable,
    leases: Leases::Shared,
    ordered: true,
    pushes: true,
    min_lease: Duration::from_secs(10),
    max_lease: Duration::from_secs(24 * 3600),
    rounding: Duration::from_millis(1),
    // Servers wait for twice the TTL: once more the usual lease.
    expiry_slack: Duration::from_secs(30),
    batch: 1024,
    checks: Vec::new(),
};

/// What the clones of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// What the URL says.
    declared: Info,
    /// The same with the settings that the agent told when it was first reached.
    checked: OnceLock<Info>,
    pub(crate) http: Http,
    pub(crate) names: Names,
    pub(crate) sessions: Table,
    pub(crate) recent: Recent<About>,
    pub(crate) alive: Alive,
    pub(crate) inboxes: Inboxes,
    pub(crate) looks: Looks,
    pub(crate) heirs: Heirs,
    pub(crate) loose: Loose,
}

impl Shared {
    pub(crate) fn info(&self) -> &Info {
        self.checked.get().unwrap_or(&self.declared)
    }

    /// Looks at the settings that our promises rest on, once.
    pub(crate) async fn check_settings(&self) -> Result<()> {
        if self.checked.get().is_none() {
            let info = checked(&self.http, &self.declared).await?;
            // Whoever came first has found the same.
            let _ = self.checked.set(info);
        }
        Ok(())
    }

    /// Whether a Consul agent is there that knows a leader.
    pub(crate) async fn check_server(&self) -> Result<()> {
        let reply = self.http.ask(Method::GET, "/v1/status/leader?", Vec::new(), Effect::Reads).await?;
        if reply.status != 200 {
            return Err(kv::refused(&reply, Effect::Reads));
        }
        let leader: String = kv::read(&reply)?;
        if leader.is_empty() {
            let message = "the cluster has no leader: wait, or ask its operator";
            return Err(Error::new(ErrorKind::Unavailable, message).at("consul").transient_if(true));
        }
        Ok(())
    }
}

/// Claims in Consul's key-value store, carried by its sessions. Clones share connections and sessions.
///
/// ```
/// use leasehold_consul::Consul;
/// let store = Consul::from_url("consul://localhost:8500/locks?dc=east")?; // nothing is sent yet
/// assert!(Consul::from_url("consul://localhost?token=secret").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Consul(RecordStore<KeyValue>);

impl Consul {
    /// The store that a URL names: `consul://` or `consuls://`. Nothing is sent before the first use.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn from_url(url: &str) -> Result<Self> {
        let target = Target::parse(url)?;
        let min_lease = target.min_lease;
        let info = Info { min_lease, expiry_slack: min_lease * 3, ..INFO.clone() };
        let names = Names::new(&target.prefix);
        let shared = Shared {
            declared: info,
            checked: OnceLock::new(),
            http: Http::new(target),
            names,
            sessions: Table::default(),
            recent: Recent::default(),
            alive: Alive::default(),
            inboxes: Inboxes::default(),
            looks: Looks::default(),
            heirs: Heirs::default(),
            loose: Loose::default(),
        };
        Ok(Self(RecordStore::with_max_bytes(KeyValue(Arc::new(shared)), LARGEST)))
    }

    /// What traffic does for others: see [`Loose`].
    fn in_passing<T>(&self, answer: T) -> T {
        self.0.records().0.loose.settle_if_due(&self.0);
        answer
    }
}

impl Store for Consul {
    fn info(&self) -> &Info {
        self.0.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.0.open(inbox, wakes)
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move { self.in_passing(self.0.claim(claim).await) })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move { self.in_passing(self.0.renew(claims).await) })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        self.0.amend(claim, change)
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        self.0.release(claim, refuse_for)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        self.0.inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        self.0.list(prefix, cursor)
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        self.0.evict(key, token)
    }
}
