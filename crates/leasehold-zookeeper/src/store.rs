//! The store: each verb on the session that its claims live on.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join;
use leasehold_core::{
    Answer, Capability, Change, Claim, ClaimId, Error, ErrorKind, Fut, Inbox, Info, Key, Leases, Page,
    Released, Result, Snapshot, Store, TokenStrength, Wakes, rule,
};
use tokio::time::Instant;

use crate::bell::ring;
use crate::fault::said;
use crate::names;
use crate::session::{Depth, Session};
use crate::sessions::Sessions;
use crate::turn::First;
use crate::url::Target;

/// How many locks a page of `list` has.
const PAGE: usize = 100;

/// What the ZooKeeper store is and promises.
///
/// No hand-over, because a claim ends with the session of its giver; and tokens are the numbers of the servers' own
/// writes, so nobody else can propose them.
pub static INFO: Info = Info {
    name: "zookeeper",
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
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(100 * 365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::from_secs(15),
    batch: 1024,
    checks: Vec::new(),
};

/// Claims on a ZooKeeper server or ensemble. Clones share the sessions; the last one ends them.
///
/// ```
/// use leasehold_zookeeper::ZooKeeper;
/// let store = ZooKeeper::from_url("zookeeper://one:2181,two:2181/apps?timeout=2s")?; // nothing is sent yet
/// assert!(ZooKeeper::from_url("zookeeper://one:port").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ZooKeeper {
    sessions: Arc<Sessions>,
    /// Ids that were withdrawn, or whose resize was made and must not be made again, and until when they are refused.
    /// Here and not on the servers: a claim reaches them only through this store's session, whose requests cannot overtake
    /// each other, and an old session's are refused.
    refused: Arc<Mutex<HashMap<ClaimId, Instant>>>,
    /// Latches that were set. A repeat of the request finds its latch, or it has ended and is not set again.
    latches: Arc<Mutex<HashMap<ClaimId, Instant>>>,
    /// Latches that may have been set: the connection broke before the answer came.
    doubtful: Arc<Mutex<HashMap<ClaimId, Instant>>>,
}

impl ZooKeeper {
    /// The store that a URL names: `zookeeper://host1:port,host2:port/path`. Nothing is sent before the first use.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn from_url(url: &str) -> Result<Self> {
        let sessions = Arc::new(Sessions::new(Target::parse(url)?));
        Ok(Self { sessions, refused: Arc::default(), latches: Arc::default(), doubtful: Arc::default() })
    }

    /// Runs a call with a store of its own.
    fn call<'a, T, F>(&'a self, call: impl FnOnce(Self) -> F + Send + 'a) -> Fut<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        Box::pin(async move { self.sessions.run(call(self.clone())).await })
    }

    fn refuse(&self, id: ClaimId, length: Duration) {
        remember(&self.refused, id, length);
    }

    fn is_refused(&self, id: &ClaimId) -> bool {
        is_remembered(&self.refused, id)
    }

    async fn claimed(&self, claim: &Claim) -> Result<Answer> {
        if self.is_refused(&claim.id) {
            return Ok(Answer::Gone);
        }
        let session = self.sessions.of(claim).await?;
        if claim.count.is_some() {
            return self.latched(&session, claim).await;
        }
        let answer = session.claim(claim).await?;
        if matches!(answer, Answer::Waiting(_)) {
            crate::turn::expect(&session, claim, First::Nothing);
        }
        Ok(answer)
    }

    /// Sets a latch. Whoever ends it leaves no mark on the servers, so this store remembers what it has set.
    async fn latched(&self, session: &Arc<Session>, claim: &Claim) -> Result<Answer> {
        let late = claim.lease.unwrap_or_default().saturating_add(rule::LATE);
        let was_set = is_remembered(&self.latches, &claim.id);
        if was_set || is_remembered(&self.doubtful, &claim.id) {
            let ids = [claim.id];
            let view = session.load_fresh(&session.lock(&claim.key), Depth::Ids(&ids)).await?;
            if view.node(&claim.id).is_none() {
                if was_set {
                    return Ok(Answer::Gone);
                }
                let message = "the latch may have been set and have ended since: look at its count";
                return Err(Error::new(ErrorKind::Indeterminate, message).on(&claim.key));
            }
        }
        let answer = session.claim(claim).await;
        match &answer {
            Ok(Answer::Granted(_)) => remember(&self.latches, claim.id, late),
            Err(error) if error.kind() == ErrorKind::Indeterminate => {
                remember(&self.doubtful, claim.id, late);
            }
            _ => {}
        }
        answer
    }

    async fn amended(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        if matches!(change, Change::Limit(_)) && self.is_refused(&claim.id) {
            // A copy of a resize that was made or withdrawn: a later one may have been made since.
            return Ok(Answer::Done);
        }
        let session = self.sessions.of(claim).await?;
        let ids = [claim.id];
        // These concern others, who are told.
        let is_about_all = matches!(change, Change::Ask(_) | Change::Limit(_));
        let depth = if is_about_all { Depth::All } else { Depth::Ids(&ids) };
        let operation =
            |ledger: &mut leasehold_core::OpenBook<'_>, now| rule::amend(ledger, claim, change, now);
        let (outcome, view, plan, number) =
            session.operate(&claim.key, Some(claim), depth, operation).await?;
        let told = outcome.ended.iter().chain(outcome.promoted.iter().map(|promotion| &promotion.inbox));
        let mut told: Vec<usize> = told.filter_map(|n| usize::try_from(n.0).ok()).collect();
        if matches!(change, Change::Limit(_)) {
            // Which claims are passed over has changed, and so has the one that each waiter has to watch.
            told.extend((0..view.nodes.len()).filter(|n| view.nodes[*n].waits()));
        }
        ring(&session, &claim.key, &view, told).await;
        let mut answer = match plan.steps.is_empty() {
            true => session.answered(claim, &view, outcome.answer),
            false => session.written(claim, &view, &plan, number, outcome.answer),
        };
        match &mut answer {
            // None of these moves a lease.
            Answer::Granted(grant) => grant.lease = None,
            Answer::Waiting(place) => {
                place.lease = None;
                crate::turn::expect(&session, claim, First::Nothing);
            }
            Answer::Done if matches!(change, Change::Limit(_)) => self.refuse(claim.id, rule::LATE),
            Answer::Done if matches!(change, Change::Tail(_)) => {
                session.own().remove(&claim.id);
                session.lanes.forget(&claim.key);
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn seen(&self, key: &Key) -> Result<Option<Snapshot>> {
        let session = self.sessions.any().await?;
        let view = session.load_fresh(&session.lock(key), Depth::All).await?;
        let mut book = view.book(key, &[]);
        let mut fence = leasehold_core::Fence::default();
        let mut ledger = leasehold_core::OpenBook::new(key, &mut book, &mut fence, 0);
        Ok(rule::snapshot(&mut ledger, view.now)?.answer)
    }

    async fn listed(&self, prefix: &str, cursor: Option<&str>) -> Result<Page> {
        let session = self.sessions.any().await?;
        let locks = session.locks();
        let (synced, nodes) = join(session.zk.sync(&locks), session.zk.list_children(&locks)).await;
        let nodes = synced.and(nodes).map_err(said)?;
        let mut keys: Vec<Key> = nodes.iter().filter_map(|node| names::decode(node)).collect();
        keys.retain(|key| {
            key.as_str().starts_with(prefix) && cursor.is_none_or(|after| key.as_str() > after)
        });
        keys.sort();
        let is_last = keys.len() <= PAGE;
        keys.truncate(PAGE);
        let next = keys.last().filter(|_| !is_last).map(|key| key.as_str().to_owned());
        let seen = futures_util::future::try_join_all(keys.iter().map(|key| self.seen(key))).await?;
        Ok(Page { resources: seen.into_iter().flatten().collect(), next })
    }

    async fn evicted(&self, key: &Key, token: u64) -> Result<bool> {
        let session = self.sessions.any().await?;
        let operation = |ledger: &mut leasehold_core::OpenBook<'_>, now| rule::evict(ledger, token, now);
        let (outcome, view, ..) = session.operate(key, None, Depth::All, operation).await?;
        ring(&session, key, &view, outcome.ended.iter().filter_map(|n| usize::try_from(n.0).ok())).await;
        Ok(outcome.answer)
    }
}

fn remember(ids: &Mutex<HashMap<ClaimId, Instant>>, id: ClaimId, length: Duration) {
    let now = Instant::now();
    let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
    ids.retain(|_, until| *until > now);
    ids.insert(id, now + length);
}

fn forget(ids: &Mutex<HashMap<ClaimId, Instant>>, id: &ClaimId) {
    ids.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
}

fn is_remembered(ids: &Mutex<HashMap<ClaimId, Instant>>, id: &ClaimId) -> bool {
    let ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
    ids.get(id).is_some_and(|until| *until > Instant::now())
}

impl Store for ZooKeeper {
    fn info(&self) -> &Info {
        self.sessions.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        let opened = self.call(move |store| async move { store.sessions.open(inbox, wakes).await });
        Box::pin(async {
            opened.await.map_err(|error| match error.kind() {
                // Nothing was asked for yet.
                ErrorKind::Indeterminate => {
                    let message = "no server answers in time: check that they run and can be reached";
                    Error::new(ErrorKind::Unavailable, message)
                }
                _ => error,
            })
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        let claim = claim.clone();
        self.call(|store| async move { store.claimed(&claim).await })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        let claims = claims.to_vec();
        self.call(|store| crate::renew::renew(store.sessions, claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        let (claim, change) = (claim.clone(), change.clone());
        self.call(|store| async move { store.amended(&claim, &change).await })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        if let Some(length) = refuse_for {
            self.refuse(claim.id, length);
        }
        let claim = claim.clone();
        self.call(|store| async move {
            let found = store.sessions.of(&claim).await?.release(&claim).await?;
            if found != Released::Gone {
                // A latch that its setter took back has left nothing. Only a mark refuses its id from now on.
                forget(&store.latches, &claim.id);
            }
            Ok(found)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        let key = key.clone();
        self.call(|store| async move { store.seen(&key).await })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        let (prefix, cursor) = (prefix.to_owned(), cursor.map(str::to_owned));
        self.call(|store| async move { store.listed(&prefix, cursor.as_deref()).await })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        let key = key.clone();
        self.call(move |store| async move { store.evicted(&key, token).await })
    }
}
