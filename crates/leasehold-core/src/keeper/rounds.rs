//! Rounds of renewal: what is due, what goes together, and what the answers mean.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::entry::Phase;
use super::leases::{Lease, LeaseKey};
use super::polling::Asker;
use super::tables::Tables;
use super::{RETRY_FIRST, RETRY_LONGEST};
use crate::capability::Leases;
use crate::claim::{Answer, Claim, ClaimId, Extend, Grant};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::{Loss, Stage};
use crate::mutant::Mutant;
use crate::pause::back_off;

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
    pub(super) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.chores.is_empty()
    }

    /// What the task must send now.
    pub(super) fn collect(&mut self, now: Moment) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut batch = Batch::default();
        for key in self.due.take_due(now) {
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

    fn collect_lease(&mut self, key: LeaseKey, now: Moment, batch: &mut Batch) {
        self.unschedule(key);
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let looked = lease.look.take().is_some() || !lease.askers.is_empty();
        let askers: HashSet<ClaimId> = lease.askers.iter().map(|asker| asker.id).collect();
        let ids = lease.claims(key);
        let is_shared = matches!(key, LeaseKey::Shared(_));
        let (first, mut is_wanted) = (batch.claims.len(), looked);
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
                        batch.claims.push(Claim { extend, ..entry.claim.clone() });
                    }
                }
            }
        }
        let Some(lease) = self.leases.get_mut(&key) else { return batch.claims.truncate(first) };
        if batch.claims.len() == first || !is_wanted {
            batch.claims.truncate(first);
            for id in &ids {
                self.attend(id, now);
            }
            return;
        }
        if is_shared {
            self.leaving.retain(|_, (_, until)| *until > now);
            let is_on_it = |claim: &&Claim| LeaseKey::of(self.info.leases, claim) == key;
            batch.claims.extend(self.leaving.values().map(|(claim, _)| claim).filter(is_on_it).cloned());
            self.rounds += 1;
            batch.claims[first..].iter_mut().for_each(|claim| claim.round = self.rounds);
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
    }

    /// A renewal came back.
    pub(super) fn renewed(&mut self, batch: Batch, sent: Moment, result: Result<Vec<Answer>>, now: Moment) {
        for key in &batch.leases {
            // A session that has ended may have a successor by now, with a renewal of its own.
            let ours = |lease: &&mut Lease| lease.in_flight == Some(batch.number);
            if let Some(lease) = self.leases.get_mut(key).filter(ours) {
                lease.in_flight = None;
            }
        }
        let askers: HashSet<ClaimId> = batch.askers.iter().map(|asker| asker.id).collect();
        let mut given = HashMap::new();
        let failure = match result {
            Ok(mut answers) => {
                for (claim, answer) in batch.claims.iter().zip(&mut answers) {
                    if self.renewed_one(claim, sent, answer, now) == Renewed::Not {
                        self.retry(self.lease_key(claim), now);
                    }
                    if askers.contains(&claim.id) {
                        given.insert(claim.id, answer.lease());
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
        for mut asker in batch.askers {
            asker.given = given.get(&asker.id).copied().flatten();
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
        let is_over = entry.is_settled() && matches!(entry.hold.stage(), Stage::Over(_));
        if is_over && entry.ends().is_some_and(|end| end > now) {
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
        let deadline = lease.claims(key).iter().filter_map(|id| self.entries.get(id)?.hold.deadline()).min();
        let next = now + pause;
        self.schedule(key, deadline.map_or(next, |at| next.min(at)));
    }
}
