//! What the keeper knows: claims, the leases they live on, and when each wants attention.
//!
//! Plain data: no clock, no network. Everything that can happen to a claim is a method here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::chores::Chore;
use super::leases::{Lease, LeaseKey};
use crate::capability::{Info, Leases, Renewal};
use crate::claim::{Answer, Claim, ClaimId, Grant, Place};
use crate::clock::Moment;
use crate::error::Result;
use crate::hold::{Hold, Loss, Stage};
use crate::key::Key;
use crate::store::Promotion;

/// How a claim stands, for whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    Held,
    Waiting,
    Busy,
    Gone,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Sent, not answered.
    Asked,
    /// In the queue.
    Waiting,
    /// Granted, and nobody has picked it up yet.
    Promoted(Moment),
    /// In somebody's hands.
    Held,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) claim: Claim,
    pub(super) hold: Arc<Hold>,
    pub(super) renewal: Renewal,
    pub(super) phase: Phase,
    pub(super) seat: u64,
    /// When a promotion said that it holds: replies to what was asked before say nothing about it.
    pub(super) promoted_at: Option<Moment>,
    /// Its full lease has started: a fixed one needs no more renewals.
    pub(super) full: bool,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) info: Info,
    pub(super) entries: BTreeMap<ClaimId, Entry>,
    pub(super) leases: BTreeMap<LeaseKey, Lease>,
    pub(super) due: BTreeSet<(Moment, LeaseKey)>,
    by_key: BTreeMap<Key, Vec<ClaimId>>,
    /// Promotions that overtook the reply with their seat.
    early: Vec<Promotion>,
    asked: usize,
    pub(super) chores: VecDeque<Chore>,
    pub(super) closing: bool,
    /// When the task wants to wake up by itself.
    pub(super) wakes_at: Option<Moment>,
}

impl Tables {
    pub(super) fn new(info: Info) -> Self {
        Self {
            info,
            entries: BTreeMap::new(),
            leases: BTreeMap::new(),
            due: BTreeSet::new(),
            by_key: BTreeMap::new(),
            early: Vec::new(),
            asked: 0,
            chores: VecDeque::new(),
            closing: false,
            wakes_at: None,
        }
    }

    pub(super) fn lease_key(&self, claim: &Claim) -> LeaseKey {
        LeaseKey::of(self.info.leases, claim)
    }

    pub(super) fn enter(&mut self, claim: Claim, hold: Arc<Hold>, renewal: Renewal) {
        let (id, lease) = (claim.id, self.lease_key(&claim));
        self.leases.entry(lease).or_insert_with(Lease::new).claims.push(id);
        self.by_key.entry(claim.key.clone()).or_default().push(id);
        self.asked += 1;
        let entry =
            Entry { claim, hold, renewal, phase: Phase::Asked, seat: 0, promoted_at: None, full: false };
        self.entries.insert(id, entry);
    }

    /// Forgets a claim. `true` when it had never been answered.
    pub(super) fn remove(&mut self, id: &ClaimId) -> bool {
        let Some(entry) = self.entries.remove(id) else { return false };
        if let Some(ids) = self.by_key.get_mut(&entry.claim.key) {
            ids.retain(|other| other != id);
            if ids.is_empty() {
                self.by_key.remove(&entry.claim.key);
            }
        }
        let key = self.lease_key(&entry.claim);
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.claims.retain(|other| other != id);
            if lease.claims.is_empty() {
                self.unschedule(key);
                self.leases.remove(&key);
            }
        }
        let unanswered = entry.phase == Phase::Asked;
        if unanswered {
            self.answered_one();
        }
        unanswered
    }

    fn answered_one(&mut self) {
        self.asked -= 1;
        if self.asked == 0 {
            self.early.clear();
        }
    }

    /// An answer to a request of the claim that was sent at `sent`.
    pub(super) fn answered(&mut self, id: &ClaimId, sent: Moment, answer: &Answer, now: Moment) -> Stand {
        let Some(entry) = self.entries.get_mut(id) else { return Stand::Gone };
        let was_asked = entry.phase == Phase::Asked;
        match answer {
            Answer::Granted(grant) => self.granted(id, sent, grant, now),
            Answer::Waiting(place)
                if place.held == 0 && matches!(entry.phase, Phase::Promoted(_) | Phase::Held) =>
            {
                if entry.promoted_at.is_some_and(|at| sent <= at) {
                    // Asked before the promotion, answered before it, and overtaken by the news of it: look again,
                    // at a time that is surely after it.
                    let key = LeaseKey::of(self.info.leases, &entry.claim);
                    self.look_at(key, now + Duration::from_millis(1));
                    return Stand::Held;
                }
                // The store has forgotten our grant: what we hold is nobody's.
                self.end(id, Loss::Gone);
                Stand::Gone
            }
            Answer::Waiting(place) => self.waiting(id, sent, place, was_asked, now),
            Answer::Busy => {
                self.remove(id);
                Stand::Busy
            }
            Answer::Gone | Answer::Left(_) | Answer::Done => {
                self.end(id, Loss::Gone);
                Stand::Gone
            }
        }
    }

    fn granted(&mut self, id: &ClaimId, sent: Moment, grant: &Grant, now: Moment) -> Stand {
        let Some(entry) = self.entries.get_mut(id) else { return Stand::Gone };
        let was_asked = entry.phase == Phase::Asked;
        entry.seat = grant.seat;
        entry.full |= grant.lease.is_some();
        let (hold, key) = (entry.hold.clone(), LeaseKey::of(self.info.leases, &entry.claim));
        if grant.asked {
            hold.ask();
        }
        let Some(lease) = self.leases.get_mut(&key) else { return Stand::Gone };
        if let Some(length) = grant.lease {
            lease.extend(sent, length);
        }
        let valid_until = lease.valid_until(self.info.rounding);
        let Some(valid_until) = valid_until else {
            // On a session that nobody has heard from yet: believe nothing before it answers.
            self.set_phase(id, Phase::Waiting, was_asked);
            self.schedule(key, now);
            return Stand::Waiting;
        };
        if !hold.grant(grant.token, grant.units, valid_until, sent) {
            self.end(id, Loss::Expired);
            return Stand::Gone;
        }
        let phase = match self.entries.get(id).map(|entry| &entry.phase) {
            Some(Phase::Waiting) => Phase::Promoted(now),
            Some(Phase::Promoted(at)) => Phase::Promoted(*at),
            _ => Phase::Held,
        };
        self.set_phase(id, phase, was_asked);
        self.attend(id, now);
        Stand::Held
    }

    fn waiting(&mut self, id: &ClaimId, sent: Moment, place: &Place, was_asked: bool, now: Moment) -> Stand {
        let Some(entry) = self.entries.get_mut(id) else { return Stand::Gone };
        entry.seat = place.seat;
        let (hold, claim) = (entry.hold.clone(), entry.claim.clone());
        let key = self.lease_key(&claim);
        if let (Some(lease), Some(length)) = (self.leases.get_mut(&key), place.lease) {
            lease.extend(sent, length);
            if let Some(valid_until) = lease.valid_until(self.info.rounding) {
                hold.extend(valid_until);
            }
        }
        // Before the phase is set: the last answer outstanding clears what came early.
        let early = self.early.iter().position(|p| p.seat == place.seat && p.key == claim.key);
        let early = early.map(|i| self.early.swap_remove(i));
        if place.held == 0 {
            self.set_phase(id, Phase::Waiting, was_asked);
        }
        // Not at once even when the store says so: it may be asking to be left alone for a moment.
        let look_in = place.look_in.clamp(Duration::from_millis(1), claim.patience / 3);
        self.schedule(key, now + look_in);
        let stand = early.map_or(Stand::Waiting, |promotion| self.promoted(&promotion, now));
        if was_asked && stand == Stand::Held {
            // Whoever asked takes it from here: there is no wait to wake.
            self.picked_up(id, now);
        }
        stand
    }

    fn set_phase(&mut self, id: &ClaimId, phase: Phase, was_asked: bool) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.phase = phase;
        }
        if was_asked {
            self.answered_one();
        }
    }

    /// The store says that a waiting claim of ours holds now.
    pub(super) fn promoted(&mut self, promotion: &Promotion, now: Moment) -> Stand {
        let ids = self.by_key.get(&promotion.key).map_or(&[][..], Vec::as_slice);
        // Believed only for the seat that we have: an old message must not revive a dead claim.
        let found = ids.iter().find(|id| self.entries.get(id).is_some_and(|e| e.seat == promotion.seat));
        let Some(id) = found.copied() else {
            let may_be_early =
                ids.iter().any(|id| self.entries.get(id).is_some_and(|e| e.phase == Phase::Asked));
            if may_be_early && self.early.len() < 1024 {
                self.early.push(promotion.clone());
            }
            return Stand::Gone;
        };
        let Some(entry) = self.entries.get(&id) else { return Stand::Gone };
        let key = self.lease_key(&entry.claim);
        let hold = entry.hold.clone();
        let first = entry.phase == Phase::Waiting;
        let valid_until = self.leases.get(&key).and_then(|lease| lease.valid_until(self.info.rounding));
        match valid_until.filter(|at| *at > now) {
            Some(at) if hold.grant(promotion.token, promotion.units, at, now) => {
                if first {
                    self.set_phase(&id, Phase::Promoted(now), false);
                }
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.promoted_at = Some(now);
                }
                self.attend(&id, now);
                Stand::Held
            }
            _ => {
                self.schedule(key, now);
                Stand::Waiting
            }
        }
    }

    /// A promoted claim has reached its future.
    pub(super) fn picked_up(&mut self, id: &ClaimId, now: Moment) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.phase = Phase::Held;
        self.attend(id, now);
    }

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
        for id in self.by_key.get(key).cloned().unwrap_or_default() {
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

    fn look_at(&mut self, key: LeaseKey, now: Moment) {
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.look = true;
            self.schedule(key, now);
        }
    }

    /// Ends a claim that the store does not have any more, or that we may not believe in.
    fn end(&mut self, id: &ClaimId, loss: Loss) {
        if let Some(entry) = self.entries.get(id)
            && entry.hold.end(loss)
        {
            tracing::warn!(key = %entry.claim.key, %loss, "lock lost");
        }
        self.remove(id);
    }

    /// Everything goes: the client is closed.
    pub(super) fn leave_all(&mut self, loss: Loss, now: Moment) {
        for id in self.entries.keys().copied().collect::<Vec<_>>() {
            let Some(entry) = self.entries.get(&id) else { continue };
            entry.hold.end(loss);
            let claim = entry.claim.clone();
            self.leave(&claim, now);
        }
    }

    /// Takes a claim out of the renewals for good and says what is left to do about it.
    pub(super) fn part(&mut self, claim: &Claim, now: Moment) -> Chore {
        let ends = self.leases.get(&self.lease_key(claim)).and_then(Lease::ends);
        let unanswered = self.remove(&claim.id);
        let until = ends.unwrap_or(now + claim.lease.unwrap_or(claim.patience));
        Chore::new(claim.clone(), unanswered, until)
    }

    /// The same, for the task to do.
    pub(super) fn leave(&mut self, claim: &Claim, now: Moment) {
        let chore = self.part(claim, now);
        self.chores.push_back(chore);
    }
}
