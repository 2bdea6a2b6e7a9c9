//! Claims that wait behind another task of their client, and ask the store themselves when that takes too long.

use std::sync::Arc;

use super::entry::Phase;
use super::relay::MustAsk;
use super::tables::{Heard, Tables};
use crate::claim::{Answer, ClaimId};
use crate::clock::Moment;
use crate::key::Key;
use crate::mutant::Mutant;

/// What the requests of one claim say about the store.
#[derive(Debug, Default)]
pub(super) struct Contact {
    /// The claim was never sent.
    pub(super) is_parked: bool,
    /// When the store last answered.
    pub(super) answered: Option<Moment>,
    /// Why the last request failed, if none was answered since.
    pub(super) failure: Option<Arc<str>>,
}

impl Tables {
    /// Parks the claim behind another task of this client, if there is one that can pass the lock on to it.
    pub(super) fn park(&mut self, id: &ClaimId) -> Option<MustAsk> {
        let entry = self.entries.get_mut(id)?;
        let must_ask = self.relays.join(&entry.claim, entry.renewal)?;
        entry.phase = Phase::Parked;
        self.answered_one();
        Some(must_ask)
    }

    /// A parked claim is about to be sent.
    pub(super) fn unpark(&mut self, id: &ClaimId, now: Moment) {
        if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.phase == Phase::Parked) {
            self.relays.leave(&entry.claim);
            entry.phase = Phase::Asked(now);
            self.asked += 1;
            self.attend(id, now);
        }
    }

    /// The claim that the tasks parked on this key wait for, if it needs a poll to get any further. A guard is released
    /// and a waiter gets its turn, or the keeper gives it back; neither depends on a future that perhaps nobody polls.
    pub(super) fn blocks_parked(&self, key: &Key) -> Option<ClaimId> {
        let runner = self.relays.runner(key)?;
        let gets_on = |phase: &Phase| matches!(phase, Phase::Held | Phase::Waiting);
        let is_blocked = self.entries.get(&runner).is_none_or(|entry| !gets_on(&entry.phase));
        is_blocked.then_some(runner)
    }

    /// What is known about the store from the requests of this claim.
    pub(super) fn contact(&self, id: &ClaimId) -> Contact {
        let Some(entry) = self.entries.get(id) else { return Contact::default() };
        let lease = self.leases.get(&self.lease_key(&entry.claim));
        Contact {
            is_parked: entry.phase == Phase::Parked,
            answered: entry.answered,
            failure: lease.and_then(|lease| lease.failure.clone()),
        }
    }

    /// The answer to the request that made it the heir of another claim.
    pub(super) fn inherited(&mut self, id: &ClaimId, sent: Moment, answer: &Answer, now: Moment) {
        if let Some(entry) = self.entries.get(id).filter(|entry| entry.phase == Phase::Parked) {
            // No copy of its own claim was ever sent.
            entry.hold.no_doubt();
        }
        let heard = if Mutant::UnpolledHeirHolds.lives() { Heard::ByAsker } else { Heard::ByKeeper };
        self.hear(id, sent, answer, heard, now);
    }
}
