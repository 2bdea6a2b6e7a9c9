//! Rounds of renewal: what is due, what goes together, and what the answers mean.

use std::time::Duration;

use tokio::sync::oneshot;

use super::leases::LeaseKey;
use super::tables::{Phase, Tables};
use crate::capability::Renewal;
use crate::claim::{Answer, Claim, ClaimId};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Loss, Stage};

/// What is due within this time goes along with what is due now.
const WINDOW: Duration = Duration::from_millis(250);

/// A renewal that is to be sent.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) claims: Vec<Claim>,
    pub(super) leases: Vec<LeaseKey>,
    pub(super) askers: Vec<(ClaimId, oneshot::Sender<Result<()>>)>,
}

impl Tables {
    /// When the lease wants attention next, going by its claims.
    pub(super) fn plan(&mut self, key: LeaseKey, now: Moment) {
        let Some(lease) = self.leases.get(&key) else { return };
        let renew_at = lease.renew_at().unwrap_or(now);
        let mut due: Option<Moment> = None;
        for entry in lease.claims.iter().filter_map(|id| self.entries.get(id)) {
            let renewal = match (entry.renewal, entry.full) {
                (Renewal::Never, true) => None,
                // A fixed lease is what its user counts on: it starts in full as soon as it may.
                (Renewal::Never, false) => Some(now),
                (Renewal::Automatic, _) => Some(renew_at),
            };
            let soonest = [renewal, entry.hold.deadline(), due].into_iter().flatten().min();
            due = soonest;
        }
        self.schedule(key, due);
    }

    pub(super) fn schedule(&mut self, key: LeaseKey, due: Option<Moment>) {
        let Some(lease) = self.leases.get_mut(&key) else { return };
        if let Some(old) = lease.due.take() {
            self.due.remove(&(old, key));
        }
        if let Some(due) = due {
            lease.due = Some(due);
            self.due.insert((due, key));
        }
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(super) fn is_due_before_wake(&self) -> bool {
        !self.chores.is_empty()
            || match (self.next_due(), self.wakes_at) {
                (Some(due), Some(wake)) => due < wake,
                (Some(_), None) => true,
                (None, _) => false,
            }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.chores.is_empty()
    }

    /// Whether anybody still uses the client is the caller's business; this is what the task must send now.
    pub(super) fn collect(&mut self, now: Moment) -> Vec<Batch> {
        let soon: Vec<_> =
            self.due.range(..=(now + WINDOW, LeaseKey::Shared(Duration::MAX))).copied().collect();
        let mut batches = Vec::new();
        let mut batch = Batch::default();
        for (due, key) in soon {
            // What is nearly due comes along only where that is early by little.
            let early = due.since(now);
            let Some(lease) = self.leases.get(&key) else { continue };
            if lease.in_flight
                || (!early.is_zero() && lease.ends().is_some_and(|end| early * 20 > end.since(now)))
            {
                continue;
            }
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
        let ids = self.leases.get(&key).map(|lease| lease.claims.clone()).unwrap_or_default();
        let mut renewed = Vec::new();
        for id in ids {
            let Some(entry) = self.entries.get(&id) else { continue };
            match (&entry.phase, entry.hold.stage()) {
                (_, Stage::Over(loss)) => {
                    tracing::warn!(key = %entry.claim.key, %loss, "lock lost");
                    self.remove(&id);
                }
                (Phase::Promoted(at), _) if now.since(*at) >= entry.claim.patience => {
                    // Its future is not being polled: others wait, so it goes back.
                    entry.hold.end(Loss::Gone);
                    let claim = entry.claim.clone();
                    self.leave(&claim, now);
                }
                (Phase::Held, _) if entry.renewal == Renewal::Never && entry.full => {
                    let asked = self.leases.get(&key).is_some_and(|l| l.askers.iter().any(|(a, _)| *a == id));
                    if asked {
                        renewed.push(entry.claim.clone());
                    }
                }
                (Phase::Asked, _) if matches!(key, LeaseKey::Own(_)) => {}
                _ => renewed.push(entry.claim.clone()),
            }
        }
        let Some(lease) = self.leases.get_mut(&key) else { return };
        if renewed.is_empty() {
            self.plan(key, now);
            return;
        }
        lease.in_flight = true;
        lease.again = false;
        batch.askers.append(&mut lease.askers);
        batch.leases.push(key);
        batch.claims.append(&mut renewed);
        self.schedule(key, None);
    }

    /// A renewal came back.
    pub(super) fn renewed(&mut self, batch: Batch, sent: Moment, result: Result<Vec<Answer>>, now: Moment) {
        for key in &batch.leases {
            if let Some(lease) = self.leases.get_mut(key) {
                lease.in_flight = false;
            }
        }
        let outcome = match result {
            Ok(answers) => {
                for (claim, answer) in batch.claims.iter().zip(&answers) {
                    let unsent = self.entries.get(&claim.id).is_some_and(|e| e.phase == Phase::Asked);
                    // A claim that is still on its way is not there yet: that proves nothing.
                    if !(unsent && *answer == Answer::Gone) {
                        self.answered(&claim.id, sent, answer, now);
                    }
                }
                None
            }
            Err(error) => {
                tracing::debug!(%error, claims = batch.claims.len(), "renewal failed");
                for key in &batch.leases {
                    self.retry(*key, now);
                }
                Some(error)
            }
        };
        for key in &batch.leases {
            if self.leases.get_mut(key).is_some_and(|lease| std::mem::take(&mut lease.again)) {
                self.schedule(*key, Some(now));
            }
        }
        for (id, asker) in batch.askers {
            let reply = match &outcome {
                Some(error) => Err(Error::new(error.kind(), error.to_string())),
                None if self.entries.contains_key(&id) => Ok(()),
                None => Err(Error::new(ErrorKind::Lost, "lost already: acquire it again")),
            };
            // Whoever asked may have gone.
            let _ = asker.send(reply);
        }
    }

    /// Renewals that fail are tried again until the deadline, soon at first.
    fn retry(&mut self, key: LeaseKey, now: Moment) {
        let Some(lease) = self.leases.get_mut(&key) else { return };
        let most = lease
            .ends()
            .map_or(Duration::from_secs(1), |end| (end.since(now) / 6).max(Duration::from_millis(10)));
        let pause = super::back_off(lease.failed, most.min(Duration::from_secs(1)));
        lease.failed += 1;
        let deadline = lease.claims.iter().filter_map(|id| self.entries.get(id)?.hold.deadline()).min();
        let next = now + pause;
        self.schedule(key, Some(deadline.map_or(next, |at| next.min(at))));
    }
}
