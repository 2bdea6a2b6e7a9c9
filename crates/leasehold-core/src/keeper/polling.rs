//! Asking the store about claims before their next renewal is due.

use std::time::Duration;

use tokio::sync::oneshot;

use super::leases::LeaseKey;
use super::places::Places;
use super::tables::Tables;
use crate::capability::Leases;
use crate::claim::ClaimId;
use crate::clock::Moment;
use crate::error::Result;
use crate::hold::Stage;
use crate::key::Key;

impl Tables {
    /// Renews with this lease as soon as possible. `false` when the claim is not held any more.
    pub(super) fn renew_now(
        &mut self,
        id: &ClaimId,
        length: Duration,
        asker: oneshot::Sender<Result<()>>,
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
            lease.askers.push((*id, asker));
        }
        self.look_at(key, now);
        true
    }

    /// Something happened to this key.
    pub(super) fn look(&mut self, key: &Key, now: Moment) {
        for id in self.by_key.get(key).map(Places::all).unwrap_or_default() {
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
