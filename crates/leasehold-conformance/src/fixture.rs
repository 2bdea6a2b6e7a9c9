//! What a store brings to be judged: a way in, a way to look from outside, and the faults it can suffer.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Client, Fut, Key, Snapshot, Store};
use serde_json::Value;

use crate::victim::Killed;

/// One trial's view of a store. [`run`](crate::run) makes a new one for every trial, inside the trial's own
/// tokio runtime; dropping it ends whatever it started.
pub trait Fixture: Debug + Send + Sync + 'static {
    /// A new connection to the store: as if another process had come. All connections of one fixture see
    /// the same claims.
    fn store(&self) -> Fut<'_, Arc<dyn Store>>;

    /// What the store has about a key, asked without the library: by SQL, by the server's own command line,
    /// by reading the file. Otherwise the library would vouch for itself.
    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState>;

    /// The shortest lease that is comfortable for cases about time: long against one call to the store on a
    /// busy machine, short for whoever waits for it to end.
    fn lease(&self) -> Duration;

    /// How many may wait on one key. Stores that keep a key's claims in one record pay for every waiter with every
    /// call, and have a limit.
    fn crowd(&self) -> usize {
        1000
    }

    /// A name that nobody used before.
    fn fresh_key(&self) -> Key {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conformance/{}/{number}", std::process::id());
        Key::new(name).expect("a short name is a key")
    }

    /// A new client on a new connection.
    fn connect(&self) -> Fut<'_, Client> {
        Box::pin(async { Client::new(self.store().await?).await })
    }

    /// How a key stood right after the write that granted `token`, by the server's own history. `None` where the server
    /// keeps none.
    fn at_grant<'a>(&'a self, _key: &'a Key, _token: u64) -> Fut<'a, Option<AtGrant>> {
        Box::pin(async { Ok(None) })
    }

    /// Lets another process take `key` with this lease and kills it without a chance to clean up.
    fn kill_holder<'a>(&'a self, _key: &'a Key, _lease: Duration) -> Hook<'a, Killed> {
        Hook::Cannot("the fixture cannot kill a process that holds")
    }

    /// Cuts the connections between clients and store; calls stay unanswered until [`heal`](Fixture::heal).
    fn cut(&self) -> Hook<'_> {
        Hook::Cannot("the fixture has no network to cut")
    }

    /// Mends what [`cut`](Fixture::cut) cut.
    fn heal(&self) -> Hook<'_> {
        Hook::Cannot("the fixture has no network to heal")
    }

    /// Holds what clients send on the connections that are open now, until [`heal`](Fixture::heal). New connections pass, so
    /// a request can arrive long after its repeat.
    fn stall(&self) -> Hook<'_> {
        Hook::Cannot("the fixture has no network to stall")
    }

    /// Stops the server without warning and starts it again.
    fn restart_server(&self) -> Hook<'_> {
        Hook::Cannot("the store has no server to restart")
    }
}

/// A fault that a fixture may be able to cause.
pub enum Hook<'a, T = ()> {
    /// This causes it.
    Does(Fut<'a, T>),
    /// The store cannot suffer it; the trial is listed as ignored with this reason.
    Cannot(&'static str),
}

impl<T> Debug for Hook<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Does(_) => f.write_str("Does"),
            Self::Cannot(reason) => f.debug_tuple("Cannot").field(reason).finish(),
        }
    }
}

/// How a key stood right after a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtGrant {
    /// The units that all holders had, the new one included.
    pub units: u64,
    /// The limit in force; `None` if that is the one that claims declare.
    pub limit: Option<u64>,
}

/// What a store has about one key, by its own account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawState {
    /// Claims that hold, expired ones that nobody has buried included.
    pub holders: usize,
    /// The units they hold together.
    pub units: u64,
    /// Claims that wait.
    pub waiters: usize,
    /// Everything stored on behalf of the key: rows, nodes, keys, marks. Zero for a key that nobody uses.
    pub residue: usize,
}

impl RawState {
    /// What a store shows that has nothing outside of itself to ask. A job that is not due yet counts as a holder.
    pub fn of_snapshot(seen: Option<&Snapshot>, residue: usize) -> Self {
        let Some(seen) = seen else { return Self { residue, ..Self::default() } };
        Self {
            holders: seen.holders.len() + seen.finished.len(),
            units: seen.held() + seen.finished.iter().map(|job| job.units).sum::<u64>(),
            waiters: seen.waiters.len(),
            residue,
        }
    }

    /// What the records of a store say that keeps one per key, as JSON. At `now` of its clock, in milliseconds.
    ///
    /// ```
    /// use leasehold_conformance::RawState;
    /// let key = leasehold_core::Key::new("orders/42")?;
    /// let record = r#"{"leasehold":1,"key":"orders/42","claims":[{"held":1,"wanted":1},{"wanted":1}]}"#;
    /// let record = serde_json::from_str(record).expect("it is JSON");
    /// let state = RawState::of_records(&[record], &key, 0);
    /// assert_eq!((state.holders, state.units, state.waiters, state.residue), (1, 1, 1, 1));
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn of_records(records: &[Value], key: &Key, now: u64) -> Self {
        let here = records.iter().filter(|record| record["key"] == key.as_str());
        let claims: Vec<&Value> = here.filter_map(|record| record["claims"].as_array()).flatten().collect();
        let held = |claim: &Value| claim["held"].as_u64().unwrap_or(0);
        let wanted = |claim: &Value| claim["wanted"].as_u64().unwrap_or(0);
        Self {
            holders: claims.iter().filter(|claim| held(claim) > 0).count(),
            units: claims.iter().map(|claim| held(claim)).sum(),
            waiters: claims.iter().filter(|claim| wanted(claim) > held(claim)).count(),
            residue: records.iter().filter(|record| is_in_use(record, now)).count(),
        }
    }
}

/// Whether anything in a record matters to anybody: claims, another limit, or refusals that are not over.
fn is_in_use(record: &Value, now: u64) -> bool {
    let refused = record["refused"].as_object().into_iter().flat_map(|refused| refused.values());
    let lasts = |until: &Value| until.as_u64().is_some_and(|until| until > now);
    let is_claimed = record["claims"].as_array().is_some_and(|claims| !claims.is_empty());
    is_claimed || record["effective"].is_u64() || refused.into_iter().any(lasts)
}
