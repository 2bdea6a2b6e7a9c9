//! Sessions: the etcd leases that carry claims, one per client and lease length.
//!
//! A keep-alive is answered by whoever thinks that it leads, without asking the others: a leader that was frozen, and
//! replaced meanwhile, confirms leases that have ended. So its answer counts only together with a write or a
//! linearizable read that was sent no earlier, answered by the same member under the same term. That answer needed
//! the majority's leader of that term. Either the keep-alive reached it too, or it was replaced after we asked,
//! and a new leader starts every lease again in full.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Claim, ErrorKind, Inbox, Moment};
use tokio::sync::OnceCell;

use crate::wire::message::{Header, KeptAlive};
use crate::wire::{Connection, Fault};

/// The share of a lease for which a session need not be extended again for the next claim.
const FRESH: f64 = 0.1;

/// Which session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    inbox: Inbox,
    lease: Duration,
}

impl Name {
    /// The session of a claim; `None` for state that no process owns, like a latch.
    pub(crate) fn of(claim: &Claim) -> Option<Self> {
        let lease = claim.lease.filter(|_| claim.count.is_none())?;
        Some(Self { inbox: claim.inbox, lease })
    }

    /// What to say of a lease of so many seconds: no more than was asked for.
    pub(crate) fn said(self, ttl: i64) -> Duration {
        self.lease.min(Duration::from_secs(u64::try_from(ttl).unwrap_or(0)))
    }
}

/// Where a session will be when it is open.
#[derive(Debug, Default)]
struct Place {
    id: OnceCell<i64>,
    /// Its key in the client's inbox was written.
    greeted: AtomicBool,
    /// Before the request was sent that surely extended it last, and to what.
    extended: Mutex<Option<(Moment, Duration)>>,
}

impl Place {
    fn extended(&self) -> MutexGuard<'_, Option<(Moment, Duration)>> {
        self.extended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sessions of one store's clients.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<Name, Arc<Place>>>);

/// A session to claim on.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: i64,
    /// What was said of its length, if it was opened for whoever has this.
    pub(crate) opened: Option<Duration>,
    place: Arc<Place>,
}

impl Session {
    /// What it has left for whoever asks now, if it was extended so lately that it need not be again. The guard takes a tenth
    /// off what it is told, and must not come to believe in more than nine tenths of the lease.
    pub(crate) fn left(&self, now: Moment) -> Option<Duration> {
        let (sent, length) = (*self.place.extended())?;
        let age = now.since(sent);
        (age <= length.mul_f64(FRESH)).then(|| length.saturating_sub(age.div_f64(0.9)))
    }

    /// A request that was sent then extended it, beyond doubt.
    pub(crate) fn extended(&self, sent: Moment, length: Duration) {
        let mut last = self.place.extended();
        if last.is_none_or(|(before, _)| before < sent) {
            *last = Some((sent, length));
        }
    }

    /// Whether its key in the client's inbox is still to be written.
    pub(crate) fn is_new(&self) -> bool {
        !self.place.greeted.load(Ordering::Relaxed)
    }

    /// That was written.
    pub(crate) fn greeted(&self) {
        self.place.greeted.store(true, Ordering::Relaxed);
    }
}

impl Sessions {
    /// The session of this name, opened if there is none: on a task of its own, because others wait for it too, and
    /// whoever asked first may not be polled any more.
    pub(crate) async fn join(&self, member: &Arc<Connection>, name: Name) -> Result<Session, Fault> {
        let place = self.lock().entry(name).or_default().clone();
        if let Some(id) = place.id.get() {
            return Ok(Session { id: *id, opened: None, place });
        }
        let member = member.clone();
        let opening = tokio::spawn(async move {
            let mut opened = None;
            let open = async || {
                let granted = member.grant(seconds(name.lease)).await?;
                opened = Some(name.said(granted.ttl));
                Ok::<_, Fault>(granted.id)
            };
            let id = *place.id.get_or_try_init(open).await?;
            Ok(Session { id, opened, place })
        });
        opening.await.unwrap_or_else(|e| Err(Fault::lost(ErrorKind::Unavailable, "the runtime has ended", e)))
    }

    /// The session of this name, if we opened one.
    pub(crate) fn get(&self, name: Name) -> Option<i64> {
        self.lock().get(&name)?.id.get().copied()
    }

    /// It has ended: the next claim opens another.
    pub(crate) fn forget(&self, name: Name, ended: i64) {
        let mut open = self.lock();
        if open.get(&name).is_some_and(|place| place.id.get() == Some(&ended)) {
            open.remove(&name);
        }
    }

    /// The sessions of a client that is gone; from now on it has none.
    pub(crate) fn take_of(&self, inbox: Inbox) -> Vec<i64> {
        self.take(|name| name.inbox == inbox)
    }

    /// The sessions that are open; from now on none is.
    pub(crate) fn take_all(&self) -> Vec<i64> {
        self.take(|_| true)
    }

    fn take(&self, which: impl Fn(&Name) -> bool) -> Vec<i64> {
        let over = self.lock().extract_if(|name, _| which(name)).collect::<Vec<_>>();
        over.iter().filter_map(|(_, place)| place.id.get().copied()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Arc<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends sessions. What fails ends by itself.
pub(crate) async fn revoke(member: &Connection, sessions: &[i64]) {
    for id in sessions {
        if let Err(fault) = member.revoke(*id).await {
            tracing::debug!(?fault, "a session is left to its end");
        }
    }
}

/// Whether a keep-alive surely extended the lease, given the answer to another request. For what length, in seconds.
pub(crate) fn proven(kept: &KeptAlive, proof: Header) -> Option<i64> {
    let same = |header: Header| header.member == proof.member && header.term == proof.term;
    (kept.ttl > 0 && kept.header.is_some_and(same)).then_some(kept.ttl)
}

/// Whole seconds, as etcd counts: never less than asked for.
pub(crate) fn seconds(length: Duration) -> i64 {
    let up = u64::from(length.subsec_nanos() > 0);
    i64::try_from(length.as_secs() + up).unwrap_or(i64::MAX).max(1)
}
