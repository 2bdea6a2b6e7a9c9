//! Sessions of Consul: opened when a claim needs one, renewed through the majority, closed when idle.
//!
//! A session ends by its TTL alone (no health checks: a false alarm would end a healthy holder's locks), and the keys
//! that it holds go with it. One of them, `alive/SESSION`, stands for it: every claim is written on condition that this
//! key has the index that we know. It changes when a request was given up, so that no copy of it can arrive later.
//!
//! `PUT session/renew` is answered by whoever believes to lead, without asking the others. So a renewal counts
//! only together with a write after it, which the majority accepted and which needs the session alive. An old leader
//! that swallowed one renewal does no harm: servers wait for twice the TTL, and a session that was not renewed for
//! most of its lease is given up here ([`CARE`]).

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::Method;
use leasehold_core::record::{Joined, Session};
use leasehold_core::{BootClock, Clock, Error, ErrorKind, Inbox, Moment, Result, Wakes};
use serde::{Deserialize, Serialize};

use crate::http::Effect;
use crate::kv::{self, Op, Outcome};
use crate::store::Shared;

/// The share of a lease after which a session that was not renewed is given up.
const CARE: f64 = 0.9;

/// The share of a lease that must be left for a claim to join without renewing the session first.
const FRESH: f64 = 0.6;

/// How long a session is kept that carries nothing, at most: the next claim may come soon.
const GRACE: Duration = Duration::from_secs(5);
/// How often somebody looks whether it is time.
pub(crate) const GLANCE: Duration = Duration::from_millis(200);

/// A session that this process opened.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) session: Session,
    pub(crate) inbox: Inbox,
    /// Its client, if that wants to be told anything.
    pub(crate) wakes: Option<Wakes>,
    lease: Duration,
    /// The index of its `alive` key.
    alive: AtomicU64,
    /// Before its last renewal was sent.
    renewed: Mutex<Moment>,
    beats: AtomicU64,
    /// Requests that were given up, and how many of them can do no harm any more.
    given_up: AtomicU64,
    fenced: AtomicU64,
    /// How often it was joined; what is idle was not joined since.
    joined: AtomicU64,
    idle: AtomicBool,
    over: AtomicBool,
}

impl Live {
    pub(crate) fn id(&self) -> &str {
        &self.session.0
    }

    pub(crate) fn index(&self) -> u64 {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether it was renewed so lately that it cannot have ended.
    pub(crate) fn surely_lives(&self) -> bool {
        !self.is_over() && BootClock.now().since(self.renewed()) < self.lease.mul_f64(CARE)
    }

    /// Whether no request that was given up can happen any more.
    fn is_fenced(&self) -> bool {
        self.given_up.load(Ordering::Acquire) == self.fenced.load(Ordering::Acquire)
    }

    fn is_client_gone(&self) -> bool {
        self.wakes.as_ref().is_some_and(|wakes| wakes.is_gone())
    }

    fn renewed(&self) -> Moment {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the session has left for whoever asks now: the guard takes a tenth off what it is told, and must not come
    /// to believe in more than nine tenths of the lease, counted from the renewal.
    fn left(&self, now: Moment) -> Duration {
        self.lease.saturating_sub(now.since(self.renewed()).div_f64(CARE))
    }
}

/// A request for a session that may still be on its way when it is dropped.
#[derive(Debug)]
pub(crate) struct Doubt<'a>(Option<&'a Live>);

impl<'a> Doubt<'a> {
    pub(crate) fn about(live: Option<&'a Live>) -> Self {
        Self(live)
    }

    /// The request was answered.
    pub(crate) fn settle(mut self) {
        self.0 = None;
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(live) = self.0 {
            live.given_up.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The sessions of this process.
#[derive(Debug, Default)]
pub(crate) struct Table {
    live: Mutex<HashMap<(Inbox, Duration), Arc<Live>>>,
    /// One session at a time is opened or renewed by a claim: the others find it.
    opening: tokio::sync::Mutex<()>,
}

impl Table {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(Inbox, Duration), Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, session: &Session) -> Option<Arc<Live>> {
        self.lock().values().find(|live| live.session == *session).cloned()
    }

    pub(crate) fn is_ours(&self, session: &str) -> bool {
        self.lock().values().any(|live| live.id() == session)
    }

    /// Takes a session out that nobody joined since: from now on nobody can.
    fn take_unused(&self, live: &Live, joined: u64) -> bool {
        let mut all = self.lock();
        let is_unused = live.joined.load(Ordering::Acquire) == joined;
        if is_unused {
            live.over.store(true, Ordering::Release);
            all.retain(|_, other| other.session != live.session);
        }
        is_unused
    }

    fn forget(&self, live: &Live) {
        live.over.store(true, Ordering::Release);
        self.lock().retain(|_, other| other.session != live.session);
    }

    /// The session for this, if it was renewed lately.
    fn fresh(&self, inbox: Inbox, lease: Duration) -> Option<Joined> {
        let live = self.lock();
        let live = live.get(&(inbox, lease))?;
        let left = live.left(BootClock.now());
        if left < lease.mul_f64(FRESH) {
            return None;
        }
        live.joined.fetch_add(1, Ordering::AcqRel);
        live.idle.store(false, Ordering::Release);
        Some(Joined { session: live.session.clone(), left })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Create {
    name: &'static str,
    #[serde(rename = "TTL")]
    ttl: String,
    behavior: &'static str,
    lock_delay: &'static str,
    node_checks: [String; 0],
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

impl Shared {
    /// A session that a claim can live on.
    pub(crate) async fn join(self: &Arc<Self>, inbox: Inbox, lease: Duration) -> Result<Joined> {
        if let Some(joined) = self.sessions.fresh(inbox, lease) {
            return Ok(joined);
        }
        let _opening = self.sessions.opening.lock().await;
        if let Some(joined) = self.sessions.fresh(inbox, lease) {
            return Ok(joined);
        }
        let known = self.sessions.lock().get(&(inbox, lease)).cloned();
        if let Some(live) = known {
            if self.renew(&live).await?.is_some()
                && let Some(joined) = self.sessions.fresh(inbox, lease)
            {
                return Ok(joined);
            }
            self.sessions.forget(&live);
        }
        self.open_session(inbox, lease).await
    }

    async fn open_session(self: &Arc<Self>, inbox: Inbox, lease: Duration) -> Result<Joined> {
        let now = BootClock.now();
        let create = Create {
            name: "leasehold",
            ttl: format!("{}ms", lease.as_millis()),
            behavior: "delete",
            lock_delay: "0s",
            node_checks: [],
        };
        let body = serde_json::to_vec(&create).map_err(|e| kv::protocol("cannot be sent").because(e))?;
        let reply = self.http.ask(Method::PUT, "/v1/session/create?", body, Effect::Writes).await?;
        if reply.status != 200 {
            return Err(refused_ttl(&reply));
        }
        let Created { id } = kv::read(&reply)?;
        let ops = vec![
            Op::hold(self.names.alive(&id), &id, b"0"),
            Op::hold(self.names.beat(&id), &id, b"0"),
            Op::hold(self.names.open(&id), &id, b""),
        ];
        let Outcome::Done(entries) = self.http.transact(ops).await? else {
            return Err(kv::protocol("a new session is not valid: ask again"));
        };
        let alive = entries.first().map(|entry| entry.modify_index);
        let alive = alive.ok_or_else(|| kv::protocol("a transaction without results"))?;
        let live = Live {
            session: Session(id.into()),
            inbox,
            wakes: self.inboxes.get(inbox),
            lease,
            alive: AtomicU64::new(alive),
            renewed: Mutex::new(now),
            beats: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            joined: AtomicU64::new(1),
            idle: AtomicBool::new(false),
            over: AtomicBool::new(false),
        };
        let live = Arc::new(live);
        let joined = Joined { session: live.session.clone(), left: live.left(BootClock.now()) };
        self.sessions.lock().insert((inbox, lease), live.clone());
        self.loose.fall_due();
        let shared = self.clone();
        tokio::spawn(async move { shared.look_after(&live).await });
        Ok(joined)
    }

    /// Renews a session: what it has left then, or `None` when it is over.
    pub(crate) async fn renew(&self, live: &Live) -> Result<Option<Duration>> {
        let sent = BootClock.now();
        if live.is_over() || sent.since(live.renewed()) >= live.lease.mul_f64(CARE) {
            self.sessions.forget(live);
            return Ok(None);
        }
        let path = format!("/v1/session/renew/{}?", live.id());
        let reply = self.http.ask(Method::PUT, &path, Vec::new(), Effect::Writes).await?;
        match reply.status {
            200 => {}
            // A leader that has not applied its log yet says so of sessions that live.
            404 if !self.look_again(live).await? => return Ok(None),
            404 => {
                let message = "a server does not know the session, but the majority does: ask again";
                return Err(Error::new(ErrorKind::Unavailable, message).at("consul"));
            }
            _ => return Err(kv::refused(&reply, Effect::Writes)),
        }
        let beat = (live.beats.fetch_add(1, Ordering::AcqRel) + 1).to_string();
        let beat = || Op::hold(self.names.beat(live.id()), live.id(), beat.as_bytes());
        if !self.confirm(live, beat).await? {
            return Ok(None);
        }
        *live.renewed.lock().unwrap_or_else(PoisonError::into_inner) = sent;
        self.loose.fall_due();
        Ok(Some(live.lease))
    }

    /// After this no request that was given up can happen any more.
    pub(crate) async fn fence(&self, live: &Live) -> Result<()> {
        if live.is_fenced() {
            return Ok(());
        }
        let touch = || Op::hold(self.names.open(live.id()), live.id(), b"");
        self.confirm(live, touch).await.map(|_| ())
    }

    /// Writes on condition that the session lives; `false` when it does not. If a request may still be on its way that was
    /// given up, the session's key gets another index in the same step.
    async fn confirm(&self, live: &Live, write: impl Fn() -> Op + Send + Sync) -> Result<bool> {
        for _ in 0..3 {
            let given_up = live.given_up.load(Ordering::Acquire);
            let alive = self.names.alive(live.id());
            let first = match live.is_fenced() {
                true => Op::check(alive, live.index()),
                false => Op::cas(alive, live.index(), given_up.to_string().as_bytes()),
            };
            match self.http.transact(vec![first, write()]).await? {
                Outcome::Done(entries) => {
                    let alive = entries.iter().find(|entry| entry.key == self.names.alive(live.id()));
                    alive.iter().for_each(|entry| live.alive.store(entry.modify_index, Ordering::Release));
                    live.fenced.fetch_max(given_up, Ordering::AcqRel);
                    return Ok(true);
                }
                Outcome::Failed(_) if self.look_again(live).await? => {}
                Outcome::Failed(_) => return Ok(false),
            }
        }
        Err(kv::protocol("the session's own key changes all the time: somebody else writes it"))
    }

    /// Finds out what became of a session whose key has another index than we know. `false` when it is over.
    pub(crate) async fn look_again(&self, live: &Live) -> Result<bool> {
        let entry = self.http.get(&self.names.alive(live.id())).await?;
        match entry.filter(|entry| entry.session.as_deref() == Some(live.id())) {
            Some(entry) => {
                live.alive.store(entry.modify_index, Ordering::Release);
                Ok(true)
            }
            None => {
                self.sessions.forget(live);
                Ok(false)
            }
        }
    }

    /// The session carries nothing: its task closes it in a while, unless somebody joins it.
    pub(crate) fn idle(&self, session: &Session) {
        if let Some(live) = self.sessions.find(session) {
            live.idle.store(true, Ordering::Release);
        }
    }

    /// Looks after a session until it is over: delivers its news, and closes it when nobody needs it any more.
    async fn look_after(&self, live: &Live) {
        let grace = (live.lease / 3).min(GRACE);
        let mut idle_since = None;
        let mut news = pin!(self.hear(live));
        loop {
            let heard = tokio::time::timeout(GLANCE, &mut news).await;
            let now = BootClock.now();
            let joined = live.joined.load(Ordering::Acquire);
            idle_since = match idle_since {
                _ if !live.idle.load(Ordering::Acquire) => None,
                Some((since, then)) if then == joined => Some((since, then)),
                _ => Some((now, joined)),
            };
            let is_unused = idle_since.is_some_and(|(since, _)| now.since(since) >= grace);
            let is_over = heard.is_ok() || live.is_over() || now.since(live.renewed()) > live.lease * 3;
            if is_over {
                self.sessions.forget(live);
                return;
            }
            if (is_unused || live.is_client_gone()) && self.sessions.take_unused(live, joined) {
                let path = format!("/v1/session/destroy/{}?", live.id());
                if let Err(error) = self.http.ask(Method::PUT, &path, Vec::new(), Effect::Writes).await {
                    tracing::debug!(%error, "a session could not be closed: its TTL ends it");
                }
                return;
            }
        }
    }
}

/// A lease that is too short for the servers says so in words that help.
fn refused_ttl(reply: &crate::http::Reply) -> Error {
    let text = reply.text();
    if !text.contains("Invalid Session TTL") {
        return kv::refused(reply, Effect::Writes);
    }
    let message = "the servers refuse so short a session: use a longer lease, or lower their session_ttl_min";
    Error::new(ErrorKind::Invalid, message).at("consul").because(text)
}
