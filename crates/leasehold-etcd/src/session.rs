//! Sessions: the etcd leases that carry claims, one per client and lease length.
//!
//! A keep-alive is answered by whoever thinks that it leads, without asking the others: a leader that was frozen, and
//! replaced meanwhile, confirms leases that have ended. So its answer counts only together with a write or a
//! linearizable read that was sent no earlier, answered by the same member under the same term. That answer needed
//! the majority's leader of that term. Either the keep-alive reached it too, or it was replaced after we asked,
//! and a new leader starts every lease again in full.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Claim, Inbox};
use tokio::sync::OnceCell;

use crate::wire::message::{Header, KeptAlive};
use crate::wire::{Connection, Fault};

/// Which session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    inbox: Inbox,
    lease: Duration,
}

impl Name {
    /// The session of a claim; `None` for state that no process owns.
    pub(crate) fn of(claim: &Claim) -> Option<Self> {
        Some(Self { inbox: claim.inbox, lease: claim.lease? })
    }

    /// What to say of a lease of so many seconds: no more than was asked for.
    pub(crate) fn said(self, ttl: i64) -> Duration {
        self.lease.min(Duration::from_secs(u64::try_from(ttl).unwrap_or(0)))
    }
}

/// Where the number of an etcd lease will be when there is one.
type Place = Arc<OnceCell<i64>>;

/// The sessions of one store's clients.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<Name, Place>>);

/// A session to claim on.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: i64,
    /// What was said of its length, if it was opened for whoever has this.
    pub(crate) opened: Option<Duration>,
}

impl Sessions {
    /// The session of this name, opened if there is none.
    pub(crate) async fn join(&self, member: &Connection, name: Name) -> Result<Session, Fault> {
        let place = self.lock().entry(name).or_default().clone();
        let mut opened = None;
        let open = async || {
            let granted = member.grant(seconds(name.lease)).await?;
            opened = Some(name.said(granted.ttl));
            Ok(granted.id)
        };
        let id = *place.get_or_try_init(open).await?;
        Ok(Session { id, opened })
    }

    /// The session of this name, if we opened one.
    pub(crate) fn get(&self, name: Name) -> Option<i64> {
        self.lock().get(&name)?.get().copied()
    }

    /// It has ended: the next claim opens another.
    pub(crate) fn forget(&self, name: Name, ended: i64) {
        let mut open = self.lock();
        if open.get(&name).is_some_and(|place| place.get() == Some(&ended)) {
            open.remove(&name);
        }
    }

    /// Ends the sessions of a client that is gone. What fails ends by itself.
    pub(crate) async fn close(&self, member: &Connection, inbox: Inbox) {
        let over: Vec<_> = self.lock().extract_if(|name, _| name.inbox == inbox).collect();
        for id in over.iter().filter_map(|(_, place)| place.get()) {
            if let Err(fault) = member.revoke(*id).await {
                tracing::debug!(?fault, "a session is left to its end");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
