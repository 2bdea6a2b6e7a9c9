//! One claim as the keeper knows it.

use std::sync::Arc;
use std::time::Duration;

use super::leases::Extension;
use crate::capability::Renewal;
use crate::claim::{Answer, Claim};
use crate::clock::Moment;
use crate::hold::{Hold, Loss, Stage};
use crate::mutant::Mutant;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Behind another task of this client: the store has not heard of it.
    Parked,
    /// Sent at this time, not answered.
    Asked(Moment),
    /// In the queue.
    Waiting,
    /// Granted at this time, but its future has not taken it yet.
    Promoted(Moment),
    /// Taken by its future. Only the future's own poll makes a claim `Held`.
    Held,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) claim: Claim,
    pub(super) hold: Arc<Hold>,
    pub(super) renewal: Renewal,
    pub(super) phase: Phase,
    pub(super) seat: u64,
    /// The best extension of its lease by a request that made or named it. On a session its own, because the session
    /// can end and another be opened: what extends that one says nothing about claims of the first.
    pub(super) extension: Option<Extension>,
    /// When we heard that it is there, or that it holds: what was asked before that may have been answered before it.
    pub(super) heard: Option<Moment>,
    /// When the store last answered a request of it.
    pub(super) answered: Option<Moment>,
    /// Its full lease has started: a fixed one needs no more renewals.
    pub(super) full: bool,
    /// Until when nobody may have its units, even if it is given back before: a job's `at_least`.
    pub(super) keep_until: Option<Moment>,
}

impl Entry {
    pub(super) fn new(claim: Claim, hold: Arc<Hold>, renewal: Renewal, now: Moment) -> Self {
        let (phase, extension, heard, answered) = (Phase::Asked(now), None, None, None);
        let (full, keep_until) = (false, None);
        Self { claim, hold, renewal, phase, seat: 0, extension, heard, answered, full, keep_until }
    }

    pub(super) fn is_asked(&self) -> bool {
        matches!(self.phase, Phase::Asked(_))
    }

    /// When the keeper takes the claim back because nobody polls its future: other clients wait for the lock.
    ///
    /// A future that is polled hears an answer, or that there is none, within `longest_ask`.
    pub(super) fn given_back_at(&self, longest_ask: Duration) -> Option<Moment> {
        match self.phase {
            Phase::Asked(at) => Some(at + longest_ask + self.claim.patience),
            Phase::Promoted(at) if !Mutant::PromotedForNobody.lives() => Some(at + self.claim.patience),
            Phase::Promoted(_) | Phase::Parked | Phase::Waiting | Phase::Held => None,
        }
    }

    /// Whether nobody renews it any more: a fixed lease that has begun.
    pub(super) fn is_settled(&self) -> bool {
        self.renewal == Renewal::Never && self.full
    }

    /// Whether the answer to what was asked then may be older than what we know.
    pub(super) fn may_be_overtaken(&self, sent: Moment) -> bool {
        self.heard.is_none_or(|at| sent <= at) && !Mutant::LateReplyUndoesPromotion.lives()
    }

    /// Whether the answer to what was sent then is about an earlier claim with the same id: the store ended that one, and a
    /// late copy of its request made this one, which waits.
    pub(super) fn is_outdated(&self, sent: Moment, answer: &Answer) -> bool {
        let seat = match answer {
            Answer::Granted(grant) => grant.seat,
            Answer::Waiting(place) => place.seat,
            _ => return false,
        };
        self.phase == Phase::Waiting && seat != self.seat && self.heard.is_some_and(|at| sent <= at)
    }

    /// When it ends if nothing is done: the deadline of who holds it; after that the end of a fixed lease, which the
    /// store keeps for longer than its user may believe in it.
    pub(super) fn ends(&self) -> Option<Moment> {
        if self.is_settled() && self.hold.stage() == Stage::Over(Loss::Expired) {
            return self.extension.map(Extension::ends);
        }
        self.hold.deadline()
    }
}
