//! Asking the store about claims before their next renewal is due.

use std::time::Duration;

use tokio::sync::oneshot;

use super::leases::LeaseKey;
use super::tables::Tables;
use crate::capability::{Info, Leases};
use crate::claim::ClaimId;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Stage;
use crate::key::Key;

/// A call that waits for the outcome of a renewal.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) id: ClaimId,
    /// The lease that it asked for.
    lease: Duration,
    /// The lease that the store gave.
    pub(super) given: Option<Duration>,
    reply: oneshot::Sender<Result<()>>,
}

impl Asker {
    /// Reports how it went, to a caller that may have gone.
    pub(super) fn reply(self, renewed: Result<()>, info: &Info) {
        let is_extended = |given: Duration| given + info.rounding >= self.lease;
        let renewed = renewed.and_then(|()| match (info.leases, self.given) {
            (Leases::PerClaim, Some(given)) if !is_extended(given) => Err(shorter(self.lease, given)),
            (_, Some(_)) => Ok(()),
            (_, None) => Err(not_extended()),
        });
        let _ = self.reply.send(renewed);
    }
}

pub(super) fn not_extended() -> Error {
    let message = "it holds, but its lease was not extended in time, or nobody knows: try again";
    Error::new(ErrorKind::Indeterminate, message)
}

fn shorter(lease: Duration, given: Duration) -> Error {
    let message = format!("renewed for {given:?}, not for {lease:?}: the store gave no more");
    Error::new(ErrorKind::Unsupported, message)
}

impl Tables {
    /// Renews with this lease as soon as possible. `false` when the claim is not held any more.
    pub(super) fn renew_now(
        &mut self,
        id: &ClaimId,
        length: Duration,
        reply: oneshot::Sender<Result<()>>,
        now: Moment,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.hold.stage() == Stage::Held) else {
            return false;
        };
        if self.info.leases == Leases::PerClaim {
            entry.claim.lease = Some(length);
        }
        let key = LeaseKey::of(self.info.leases, &entry.claim);
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.askers.push(Asker { id: *id, lease: length, given: None, reply });
        }
        self.look_at(key, now);
        true
    }

    /// The next renewals have this lease, and the first of them is due accordingly. Only where every claim
    /// has its own.
    pub(super) fn renew_with(&mut self, id: &ClaimId, length: Duration, now: Moment) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        if self.info.leases == Leases::PerClaim {
            entry.claim.lease = Some(length);
            if let Some(lease) = self.leases.get_mut(&LeaseKey::of(self.info.leases, &entry.claim)) {
                lease.renew_within(length);
            }
            self.attend(id, now);
        }
    }

    /// Something happened to this key.
    pub(super) fn look(&mut self, key: &Key, now: Moment) {
        for id in self.by_key.get(key).map(|places| places.iter().collect::<Vec<_>>()).unwrap_or_default() {
            if let Some(lease) = self.entries.get(&id).map(|entry| self.lease_key(&entry.claim)) {
                self.look_at(lease, now);
            }
        }
    }

    /// Anything may have happened.
    pub(super) fn look_all(&mut self, now: Moment) {
        for key in self.leases.keys().copied().collect::<Vec<_>>() {
            self.look_at(key, now);
        }
    }

    /// Asks again about a claim, at a time that is surely after what we know.
    pub(super) fn look_again(&mut self, id: &ClaimId, now: Moment) {
        if let Some(key) = self.entries.get(id).map(|entry| self.lease_key(&entry.claim)) {
            self.look_at(key, now + Duration::from_millis(1));
        }
    }

    fn look_at(&mut self, key: LeaseKey, then: Moment) {
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.look = Some(lease.look.map_or(then, |other| other.min(then)));
            self.schedule(key, then);
        }
    }
}
