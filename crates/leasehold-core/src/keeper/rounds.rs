//! Rounds of renewal: what is due, what goes together, and what the answers mean.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Phase;
use super::leases::{Lease, LeaseKey};
use super::polling::Asker;
use super::tables::Tables;
use super::{RETRY_FIRST, RETRY_LONGEST};
use crate::capability::{Leases, Renewal};
use crate::claim::{Answer, Claim, ClaimId, Extend, Grant};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::{Loss, Stage};
use crate::mutant::Mutant;
use crate::pause::back_off;

/// What is due within this time goes along with what is due now.
const WINDOW: Duration = Duration::from_millis(250);

/// When the task wakes up at the latest.
const IDLE: Duration = Duration::from_secs(3600);

/// A renewal that is to be sent.
#[derive(Debug, Default)]
pub(super) struct Batch {
    number: u64,
    pub(super) claims: Vec<Claim>,
    pub(super) leases: Vec<LeaseKey>,
    /// How long the call may take; `None` while there are no claims.
    pub(super) limit: Option<Duration>,
    askers: Vec<Asker>,
}

/// Whether a claim that was to be extended was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewed {
    Well,
    /// The store says how it stands, and could not extend it in time.
    Not,
}

impl Tables {
    /// Plans when the claim wants attention next.
    pub(super) fn attend(&mut self, id: &ClaimId, now: Moment) {
        let Some(entry) = self.entries.get(id) else { return };
        let key = self.lease_key(&entry.claim);
        let renew_at = self.leases.get(&key).and_then(Lease::renew_at).unwrap_or(now);
        let renewal = match (&entry.phase, entry.renewal, entry.full) {
            (Phase::Parked | Phase::Asked(_), ..) => None,
            (_, Renewal::Never, true) => None,
            // A fixed lease is what its user counts on: it starts in full as soon as it may.
            (Phase::Held, Renewal::Never, false) => Some(now),
            _ => Some(renew_at),
        };
        let given_back = self.given_back_at(entry);
        if let Some(at) = [renewal, entry.ends(), given_back].into_iter().flatten().min() {
            self.schedule(key, at);
        }
    }

    /// Looks at the lease at this time; a shared one at the earliest that any of its claims wants.
    pub(super) fn schedule(&mut self, key: LeaseKey, at: Moment) {
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let earliest = |other: Option<Moment>| other.map_or(at, |other| at.min(other));
        let is_shared = matches!(key, LeaseKey::Shared(_));
        if lease.in_flight.is_some() {
            // The answer plans anew, but only for the claims that were named.
            lease.wanted = is_shared.then(|| earliest(lease.wanted));
            return;
        }
        let at = if is_shared { earliest(lease.due) } else { at };
        self.unschedule(key);
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.due = Some(at);
            self.due.insert((at, key));
        }
    }

    pub(super) fn unschedule(&mut self, key: LeaseKey) {
        if let Some(old) = self.leases.get_mut(&key).and_then(|lease| lease.due.take()) {
            self.due.remove(&(old, key));
        }
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Whether the task must be woken for what is due. Once: it is noted as told, and a lock that was taken and given
    /// back before the task could look need not wake it again.
    pub(super) fn must_wake(&mut self) -> bool {
        let earlier = self.next_due().filter(|due| self.wakes_at.is_none_or(|at| *due < at));
        self.wakes_at = earlier.or(self.wakes_at);
        earlier.is_some() || !self.chores.is_empty()
    }

    /// When the task wakes by itself. A time that was chosen before stays if it is the earlier one, though nothing may
    /// be due then any more: waking once in vain costs less than being woken for every lock.
    pub(super) fn wake_up(&mut self, now: Moment) -> Moment {
        let due = self.next_due().unwrap_or(now + IDLE);
        let at = self.wakes_at.filter(|at| *at > now).map_or(due, |at| at.min(due));
        self.wakes_at = Some(at);
        at
    }

    pub(super) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.chores.is_empty()
    }

    /// What the task must send now.
    pub(super) fn collect(&mut self, now: Moment) -> Vec<Batch> {
        if self.next_due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let soon = self.due.range(..=(now + WINDOW, LeaseKey::Shared(Duration::MAX)));
        let soon: Vec<_> =
            soon.copied().filter(|(due, key)| *due <= now || self.may_come_along(key)).collect();
        let mut batches = Vec::new();
        let mut batch = Batch::default();
        for (_, key) in soon {
            self.collect_lease(key, now, &mut batch);
            let full = batch.claims.len() >= self.info.batch || matches!(key, LeaseKey::Shared(_));
            if full && !batch.claims.is_empty() {
                batches.push(std::mem::take(&mut batch));
            }
        }
        if !batch.claims.is_empty() {
            batches.push(batch);
        }
        batches
    }

    /// Whether a lease that is nearly due may be renewed with others that are: where that is early by little,
    /// and not for those who wait, who look at a time that the store chose.
    fn may_come_along(&self, key: &LeaseKey) -> bool {
        let LeaseKey::Own(id) = key else { return false };
        let is_held = self.entries.get(id).is_some_and(|entry| entry.phase == Phase::Held);
        is_held
            && self.leases.get(key).and_then(Lease::extended).is_some_and(|last| last.length > WINDOW * 20)
    }

    fn collect_lease(&mut self, key: LeaseKey, now: Moment, batch: &mut Batch) {
        self.unschedule(key);
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let looked = lease.look.take().is_some() || !lease.askers.is_empty();
        let askers: Vec<ClaimId> = lease.askers.iter().map(|asker| asker.id).collect();
        let ids = lease.claims.clone();
        let is_shared = matches!(key, LeaseKey::Shared(_));
        let (mut named, mut is_wanted) = (Vec::new(), looked);
        for id in &ids {
            let Some(entry) = self.entries.get(id) else { continue };
            match (&entry.phase, entry.hold.stage()) {
                (_, Stage::Over(loss)) if !is_shared || entry.ends().is_none_or(|end| end <= now) => {
                    tracing::warn!(key = %entry.claim.key, %loss, "lock lost");
                    // Its own lease ends it; a session goes on, and would keep it for ever.
                    if is_shared { self.leave(id, now) } else { self.remove(id) }
                }
                _ if self.given_back_at(entry).is_some_and(|at| at <= now) => {
                    // Its future is not being polled: others wait, so it goes back.
                    entry.hold.end(Loss::Gone);
                    self.leave(id, now);
                }
                (Phase::Parked, _) => {}
                (Phase::Asked(_), _) if !is_shared => {}
                (phase, _) => {
                    let is_idle = entry.is_asked() || (*phase == Phase::Held && entry.is_settled());
                    is_wanted |= !is_idle;
                    // On a session all are named that live on it: the others would be withdrawn.
                    if is_shared || looked || !is_idle {
                        // A fixed lease that has begun ends when it ends, however often the claim is polled.
                        let is_poll = entry.is_settled() && !askers.contains(id);
                        let extend = if is_poll { Extend::Nothing } else { Extend::Lease };
                        named.push(Claim { extend, ..entry.claim.clone() });
                    }
                }
            }
        }
        let Some(lease) = self.leases.get_mut(&key) else { return };
        if named.is_empty() || !is_wanted {
            for id in &ids {
                self.attend(id, now);
            }
            return;
        }
        if is_shared {
            self.leaving.retain(|_, (_, until)| *until > now);
            let is_on_it = |claim: &&Claim| LeaseKey::of(self.info.leases, claim) == key;
            named.extend(self.leaving.values().map(|(claim, _)| claim).filter(is_on_it).cloned());
            self.rounds += 1;
            named.iter_mut().for_each(|claim| claim.round = self.rounds);
        }
        // A call that hangs must leave time for another.
        let third = lease.extended().map_or(Duration::MAX, |last| last.length) / 3;
        batch.limit = batch.limit.map_or(Some(third), |limit| Some(limit.min(third)));
        if batch.leases.is_empty() {
            self.batches += 1;
            batch.number = self.batches;
        }
        lease.in_flight = Some(batch.number);
        batch.askers.append(&mut lease.askers);
        batch.leases.push(key);
        batch.claims.append(&mut named);
    }

    /// A renewal came back.
    pub(super) fn renewed(
        &mut self,
        mut batch: Batch,
        sent: Moment,
        result: Result<Vec<Answer>>,
        now: Moment,
    ) {
        for key in &batch.leases {
            // A session that has ended may have a successor by now, with a renewal of its own.
            let ours = |lease: &&mut Lease| lease.in_flight == Some(batch.number);
            if let Some(lease) = self.leases.get_mut(key).filter(ours) {
                lease.in_flight = None;
            }
        }
        let failure = match result {
            Ok(mut answers) => {
                for (claim, answer) in batch.claims.iter().zip(&mut answers) {
                    if self.renewed_one(claim, sent, answer, now) == Renewed::Not {
                        self.retry(self.lease_key(claim), now);
                    }
                    for asker in batch.askers.iter_mut().filter(|asker| asker.id == claim.id) {
                        asker.given = answer.lease();
                    }
                }
                None
            }
            Err(error) => {
                tracing::debug!(%error, claims = batch.claims.len(), "renewal failed");
                let reason: Arc<str> = error.reason().into();
                for key in &batch.leases {
                    if let Some(lease) = self.leases.get_mut(key) {
                        lease.failure = Some(reason.clone());
                    }
                    self.retry(*key, now);
                }
                Some(error)
            }
        };
        for key in &batch.leases {
            let Some(lease) = self.leases.get_mut(key) else { continue };
            let asks = (!lease.askers.is_empty()).then_some(now);
            for at in [asks, lease.look, lease.wanted.take()].into_iter().flatten() {
                self.schedule(*key, at);
            }
        }
        for asker in batch.askers {
            let renewed = match &failure {
                Some(error) => Err(Error::new(error.kind(), error.to_string())),
                None if self.entries.contains_key(&asker.id) => Ok(()),
                None => Err(super::lost_already()),
            };
            asker.reply(renewed, &self.info);
        }
    }

    fn renewed_one(&mut self, claim: &Claim, sent: Moment, answer: &mut Answer, now: Moment) -> Renewed {
        let Some(entry) = self.entries.get(&claim.id) else { return Renewed::Well };
        if Mutant::NoReconciliation.lives() && entry.phase == Phase::Held && *answer == Answer::Gone {
            let (seat, token, units) = (entry.seat, entry.hold.token(), entry.hold.units());
            *answer = Answer::Granted(Grant { seat, token, units, lease: claim.lease, asked: false });
        }
        if *answer == Answer::Gone && entry.may_be_overtaken(sent) {
            // It was still on its way, and perhaps is: that it was not there yet proves nothing.
            if !entry.is_asked() {
                self.look_again(&claim.id, now);
            }
            return Renewed::Well;
        }
        if matches!(entry.hold.stage(), Stage::Over(_)) && entry.ends().is_some_and(|end| end > now) {
            // A fixed lease that nobody believes in any more, but the store keeps to its end.
            self.attend(&claim.id, now);
            return Renewed::Well;
        }
        let mut renewed = Renewed::Well;
        if let Answer::Granted(grant) = &mut *answer {
            if claim.extend == Extend::Nothing {
                // Also where a session was renewed that carries it.
                grant.lease = None;
            } else if grant.lease.is_none() && claim.lease.is_some() && self.info.leases == Leases::PerClaim {
                renewed = Renewed::Not;
            }
        }
        self.answered(&claim.id, sent, answer, now);
        renewed
    }

    /// Renewals that fail are tried again until the deadline, soon at first.
    fn retry(&mut self, key: LeaseKey, now: Moment) {
        if Mutant::RenewalStopsAfterError.lives() {
            return;
        }
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let left = lease.extended().map_or(Duration::from_secs(6), |last| last.ends().since(now));
        let pause = back_off(lease.failed, RETRY_FIRST, (left / 6).clamp(RETRY_FIRST, RETRY_LONGEST));
        lease.failed += 1;
        let deadline = lease.claims.iter().filter_map(|id| self.entries.get(id)?.hold.deadline()).min();
        let next = now + pause;
        self.schedule(key, deadline.map_or(next, |at| next.min(at)));
    }
}
