//! What each client sent and what it heard, claim by claim: the view from the client's end of the network.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use leasehold_core::{Claim, ClaimId};

use crate::setup::LONGEST_DELAY;

/// A message that arrives this long after an event was sent after it.
pub(crate) const ALL_ARRIVED: Duration =
    LONGEST_DELAY.saturating_mul(2).saturating_add(Duration::from_millis(200));

/// The keeper sends a withdrawal as soon as its task runs.
const MOMENT: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// The claim that each attempt sent last.
    current: HashMap<u64, ClaimId>,
    /// Claims whose attempt has ended without a guard, or goes on with another claim, and since when.
    over: HashMap<ClaimId, Duration>,
    /// Claims of which at least one copy was sent and not answered.
    unanswered: HashSet<ClaimId>,
    /// Claims whose client has sent a withdrawal.
    withdrawn: HashSet<ClaimId>,
    /// Claims whose client has heard that their full lease was started.
    started: HashSet<ClaimId>,
    /// Claims whose client has their guard.
    guarded: HashSet<ClaimId>,
    /// Claims that were renewed before that: such a renewal can be late, and extends the lease.
    renewed_before: HashSet<ClaimId>,
    /// The seat in which a copy of each claim was last served.
    seats: HashMap<ClaimId, u64>,
}

impl Copies {
    /// A copy of a claim is sent.
    pub(crate) fn sent(&mut self, attempt: u64, id: ClaimId, now: Duration) {
        if let Some(before) = self.current.insert(attempt, id).filter(|before| *before != id) {
            self.over.entry(before).or_insert(now);
        }
    }

    pub(crate) fn unanswered(&mut self, id: ClaimId) {
        self.unanswered.insert(id);
    }

    pub(crate) fn withdrawn(&mut self, id: ClaimId) {
        self.withdrawn.insert(id);
    }

    /// An attempt has ended without a guard.
    pub(crate) fn over(&mut self, attempt: u64, now: Duration) {
        if let Some(id) = self.current.get(&attempt) {
            self.over.entry(*id).or_insert(now);
        }
    }

    pub(crate) fn started(&mut self, id: ClaimId) {
        self.started.insert(id);
    }

    pub(crate) fn guarded(&mut self, attempt: u64) {
        self.guarded.extend(self.current.get(&attempt));
    }

    /// An answer alone begins nothing: it may have come too late. A guard alone neither: a promotion starts no lease.
    fn has_begun(&self, id: &ClaimId) -> bool {
        self.started.contains(id) && self.guarded.contains(id)
    }

    /// A renewal of these claims is sent.
    pub(crate) fn renewed(&mut self, claims: &[Claim]) {
        let early: Vec<_> = claims.iter().map(|claim| claim.id).filter(|id| !self.has_begun(id)).collect();
        self.renewed_before.extend(early);
    }

    /// Whether a copy that was served made another claim than the one that this id had. If the claim is the same, the
    /// client may be about to end it: a job leaves its tail first.
    pub(crate) fn makes_another(&mut self, id: ClaimId, seat: u64) -> bool {
        self.seats.insert(id, seat) != Some(seat)
    }

    /// Whether a copy of this claim that is served now belongs to nobody: its attempt is over, the client knows that a
    /// copy was under way, and does nothing about it.
    pub(crate) fn is_forgotten(&self, id: ClaimId, now: Duration) -> bool {
        let is_over = self.over.get(&id).is_some_and(|at| now > *at + MOMENT);
        is_over && self.unanswered.contains(&id) && !self.withdrawn.contains(&id)
    }

    /// Whether the lease has begun, and no renewal was sent before that.
    pub(crate) fn had_begun(&self, id: ClaimId) -> bool {
        self.has_begun(&id) && !self.renewed_before.contains(&id)
    }
}
