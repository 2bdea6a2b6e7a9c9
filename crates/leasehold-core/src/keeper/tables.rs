//! What the keeper knows: claims, the leases they live on, and when each wants attention.
//!
//! Plain data: no clock, no network. Everything that can happen to a claim is a method here.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::chores::Chore;
use super::entry::{Entry, Phase};
use super::leases::{Extension, Lease, LeaseKey};
use super::places::Places;
use super::relay::Relays;
use super::schedule::Schedule;
use crate::capability::{Capability, Info, Renewal};
use crate::claim::{Answer, Claim, ClaimId, Grant, Place};
use crate::clock::Moment;
use crate::hold::{Hold, Loss, Stage};
use crate::key::Key;
use crate::mutant::Mutant;
use crate::store::Promotion;

/// How a claim stands, for whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    Held,
    Waiting,
    Busy,
    Gone,
}

/// Who hears an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The future that made the claim, while it is polled.
    ByAsker,
    /// The keeper. Nobody may be polling the future.
    ByKeeper,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) info: Info,
    pub(super) entries: HashMap<ClaimId, Entry>,
    pub(super) leases: HashMap<LeaseKey, Lease>,
    pub(super) due: Schedule,
    pub(super) by_key: HashMap<Key, Places>,
    /// Promotions that overtook the reply with their seat.
    pub(super) early: Vec<Promotion>,
    pub(super) asked: usize,
    /// How long a future that is polled can be without an answer to its claim.
    longest_ask: Duration,
    /// How many renewals of sessions were sent.
    pub(super) rounds: u64,
    /// How many batches were sent.
    pub(super) batches: u64,
    pub(super) chores: VecDeque<Chore>,
    /// Claims on sessions that are being released and were held or leave a tail: still named in renewals, or
    /// the next one would end them, and the release could neither tell what it found nor leave the tail. Each
    /// until a time, in case nobody polls its release.
    pub(super) leaving: BTreeMap<ClaimId, (Claim, Moment)>,
    /// Claims that go on to one another.
    pub(super) relays: Relays,
    pub(super) closing: bool,
}

impl Tables {
    pub(super) fn new(info: Info, call_timeout: Duration) -> Self {
        Self {
            info,
            // The last repeat of a claim begins before one call's time has passed, and takes as long.
            longest_ask: call_timeout * 2,
            entries: HashMap::new(),
            leases: HashMap::new(),
            due: Schedule::new(fastrand::f64()),
            by_key: HashMap::new(),
            early: Vec::new(),
            asked: 0,
            rounds: 0,
            batches: 0,
            chores: VecDeque::new(),
            leaving: BTreeMap::new(),
            relays: Relays::default(),
            closing: false,
        }
    }

    pub(super) fn lease_key(&self, claim: &Claim) -> LeaseKey {
        LeaseKey::of(self.info.leases, claim)
    }

    pub(super) fn enter(&mut self, claim: Claim, hold: Arc<Hold>, renewal: Renewal, now: Moment) {
        let (id, lease) = (claim.id, self.lease_key(&claim));
        let on_lease = self.leases.entry(lease).or_insert_with(Lease::new);
        if matches!(lease, LeaseKey::Shared(_)) {
            on_lease.on_session.insert(id);
        }
        match self.by_key.entry(claim.key.clone()) {
            MapEntry::Vacant(vacant) => {
                vacant.insert(Places::One(0, id));
            }
            MapEntry::Occupied(mut others) => others.get_mut().insert(0, id),
        }
        self.asked += 1;
        self.entries.insert(id, Entry::new(claim, hold, renewal, now));
        self.attend(&id, now);
    }

    /// When the keeper takes the claim back because nobody polls its future.
    pub(super) fn given_back_at(&self, entry: &Entry) -> Option<Moment> {
        entry.given_back_at(self.longest_ask)
    }

    /// Forgets a claim.
    pub(super) fn remove(&mut self, id: &ClaimId) {
        let Some(entry) = self.entries.remove(id) else { return };
        self.relays.ended(&entry.claim);
        if self.by_key.get_mut(&entry.claim.key).is_some_and(|places| places.remove(entry.seat, *id)) {
            self.by_key.remove(&entry.claim.key);
        }
        let key = self.lease_key(&entry.claim);
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.on_session.remove(id);
            if lease.on_session.is_empty() {
                self.unschedule(key);
                self.leases.remove(&key);
            }
        }
        if entry.is_asked() {
            self.answered_one();
        }
    }

    pub(super) fn answered_one(&mut self) {
        self.asked -= 1;
        if self.asked == 0 {
            self.early.clear();
        }
    }

    /// An answer for whoever made the claim: it takes what it is granted from here, there is no wait to wake.
    pub(super) fn answered_asker(
        &mut self,
        id: &ClaimId,
        sent: Moment,
        answer: &Answer,
        now: Moment,
    ) -> Stand {
        let stand = self.hear(id, sent, answer, Heard::ByAsker, now);
        if stand == Stand::Held {
            self.picked_up(id, now);
        }
        stand
    }

    /// An answer to a renewal of the claim that was sent at `sent`.
    pub(super) fn answered(&mut self, id: &ClaimId, sent: Moment, answer: &Answer, now: Moment) -> Stand {
        let heard = if Mutant::UnpolledClaimHolds.lives() { Heard::ByAsker } else { Heard::ByKeeper };
        self.hear(id, sent, answer, heard, now)
    }

    /// An answer to any request of the claim that was sent at `sent`.
    pub(super) fn hear(
        &mut self,
        id: &ClaimId,
        sent: Moment,
        answer: &Answer,
        heard: Heard,
        now: Moment,
    ) -> Stand {
        let Some(entry) = self.entries.get_mut(id) else { return Stand::Gone };
        entry.answered = Some(now);
        if entry.is_outdated(sent, answer) && self.info.can(Capability::Queue) {
            self.look_again(id, now);
            return Stand::Waiting;
        }
        let Some(entry) = self.entries.get_mut(id) else { return Stand::Gone };
        let was_asked = entry.is_asked();
        let sent = if Mutant::DeadlineFromReply.lives() { now } else { sent };
        match answer {
            Answer::Granted(grant) => self.granted(id, sent, grant, heard, now),
            Answer::Waiting(place)
                if place.held == 0 && matches!(entry.phase, Phase::Promoted(_) | Phase::Held) =>
            {
                if entry.may_be_overtaken(sent) && entry.hold.stage() == Stage::Held {
                    // Asked before it held, answered before it did, and overtaken by the news of it.
                    self.look_again(id, now);
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

    fn granted(&mut self, id: &ClaimId, sent: Moment, grant: &Grant, heard: Heard, now: Moment) -> Stand {
        let Some(entry) = self.entries.get_mut(id) else { return Stand::Gone };
        let was_asked = entry.is_asked();
        let was_granted = matches!(entry.phase, Phase::Promoted(_) | Phase::Held);
        if was_granted && entry.seat != grant.seat && self.info.can(Capability::Queue) {
            // The store ended the claim, and a late copy of its request made another one with the same id. Other claims
            // may have been granted in between.
            if entry.hold.end(Loss::Gone) {
                tracing::warn!(key = %entry.claim.key, loss = %Loss::Gone, "lock lost");
            }
            self.leave(id, now);
            return Stand::Gone;
        }
        let (hold, key) = (entry.hold.clone(), LeaseKey::of(self.info.leases, &entry.claim));
        let unsaid = entry.claim.lease.filter(|_| Mutant::GrantExtendsSession.lives());
        if entry.seat != grant.seat {
            self.set_seat(id, grant.seat);
        }
        if grant.asked {
            hold.ask();
        }
        let valid_until = self.extend(id, sent, grant.lease.or(unsaid), now);
        let is_new = hold.stage() == Stage::Pending;
        let Some(valid_until) = valid_until.filter(|at| *at > now || !is_new) else {
            // On a session that was not heard from yet, or not for long: believe nothing before it answers.
            self.set_phase(id, Phase::Waiting, was_asked, now);
            self.schedule(key, now);
            return Stand::Waiting;
        };
        if !hold.grant(grant.token, grant.units, valid_until, sent) {
            self.end(id, Loss::Expired);
            return Stand::Gone;
        }
        let Some(entry) = self.entries.get_mut(id) else { return Stand::Gone };
        // Only now: a fixed lease that ended before its answer came has not begun.
        entry.full |= grant.lease.is_some();
        let phase = match (&entry.phase, heard) {
            (Phase::Held, _) => Phase::Held,
            (Phase::Promoted(at), _) => Phase::Promoted(*at),
            // Its future has it in this very poll.
            (Phase::Asked(_) | Phase::Parked, Heard::ByAsker) => Phase::Held,
            _ => Phase::Promoted(now),
        };
        self.set_phase(id, phase, was_asked, now);
        self.attend(id, now);
        Stand::Held
    }

    fn waiting(&mut self, id: &ClaimId, sent: Moment, place: &Place, was_asked: bool, now: Moment) -> Stand {
        self.set_seat(id, place.seat);
        let Some(entry) = self.entries.get(id) else { return Stand::Gone };
        let (hold, claim) = (entry.hold.clone(), entry.claim.clone());
        let key = self.lease_key(&claim);
        if let Some(valid_until) = self.extend(id, sent, place.lease, now) {
            hold.extend(valid_until);
        }
        // Before the phase is set: the last answer outstanding clears what came early.
        let early = self.early.iter().position(|p| p.seat == place.seat && p.key == claim.key);
        let early = early.map(|i| self.early.swap_remove(i));
        if place.held == 0 {
            self.set_phase(id, Phase::Waiting, was_asked, now);
        }
        // Not at once even when the store says so: it may be asking to be left alone for a moment.
        let look_in = place.look_in.clamp(Duration::from_millis(1), claim.patience / 3);
        let look_in = if Mutant::NoSafetyPoll.lives() { Duration::from_secs(3600) } else { look_in };
        self.schedule(key, now + look_in);
        early.map_or(Stand::Waiting, |promotion| self.promoted(&promotion, now))
    }

    /// What the answer to a request says about the lease of a claim that it made or named: the new `length`, or nothing.
    /// Answers until when the claim may be believed.
    fn extend(
        &mut self,
        id: &ClaimId,
        sent: Moment,
        length: Option<Duration>,
        now: Moment,
    ) -> Option<Moment> {
        let entry = self.entries.get_mut(id)?;
        let lease = self.leases.get_mut(&LeaseKey::of(self.info.leases, &entry.claim))?;
        if let Some(length) = length {
            let extension = Extension { sent, length };
            lease.extend(extension, entry.claim.lease, now);
            entry.extension = Some(extension.or_better(entry.extension));
        } else if entry.extension.is_none() {
            // It joined a session. What we knew of that before we asked is true for it too; what we heard since may be
            // about a session that was opened when this one had ended.
            entry.extension = lease.known_by(sent);
        }
        entry.extension.map(|extension| extension.trusted_until(self.info.rounding))
    }

    fn set_seat(&mut self, id: &ClaimId, seat: u64) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let old = std::mem::replace(&mut entry.seat, seat);
        if old != seat
            && let Some(places) = self.by_key.get_mut(&entry.claim.key)
        {
            places.change_seat(*id, old, seat);
        }
    }

    fn set_phase(&mut self, id: &ClaimId, phase: Phase, was_asked: bool, now: Moment) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.phase = phase;
            entry.heard = if was_asked { Some(now) } else { entry.heard };
        }
        if was_asked {
            self.answered_one();
        }
    }

    /// The store says that a waiting claim of ours holds now.
    pub(super) fn promoted(&mut self, promotion: &Promotion, now: Moment) -> Stand {
        let Some(places) = self.by_key.get(&promotion.key) else { return Stand::Gone };
        let has = |id: &ClaimId, test: fn(&Entry) -> bool| self.entries.get(id).is_some_and(test);
        // Believed only for the seat that we have: an old message must not revive a dead claim.
        let mut found = places.at(promotion.seat).next();
        if Mutant::PromotionForAnySeat.lives() {
            found = found.or(places.iter().find(|id| has(id, |entry| entry.phase == Phase::Waiting)));
        }
        let Some(id) = found else {
            let may_be_early = places.at(0).any(|id| has(&id, Entry::is_asked));
            if may_be_early && self.early.len() < 1024 {
                self.early.push(promotion.clone());
            }
            return Stand::Gone;
        };
        let Some(entry) = self.entries.get(&id) else { return Stand::Gone };
        let key = self.lease_key(&entry.claim);
        let hold = entry.hold.clone();
        if hold.stage() == Stage::Held && promotion.token <= hold.token() {
            // Known already. Late or told twice, it would bring back the units from before a downgrade.
            return Stand::Held;
        }
        let first = entry.phase == Phase::Waiting;
        let fresh = entry.claim.lease.filter(|_| Mutant::PromotionExtendsLease.lives());
        let extension = fresh.map(|length| Extension { sent: now, length }).or(entry.extension);
        let valid_until = extension.map(|extension| extension.trusted_until(self.info.rounding));
        match valid_until.filter(|at| *at > now) {
            Some(at) if hold.grant(promotion.token, promotion.units, at, now) => {
                if first {
                    self.set_phase(&id, Phase::Promoted(now), false, now);
                }
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.heard = Some(now);
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

    /// A granted claim has reached its future. `false` when the keeper has taken it back.
    pub(super) fn picked_up(&mut self, id: &ClaimId, now: Moment) -> bool {
        let Some(entry) = self.entries.get_mut(id) else { return false };
        // What was granted at once is in its hands already.
        if entry.phase != Phase::Held {
            entry.phase = Phase::Held;
            self.attend(id, now);
        }
        true
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
}
