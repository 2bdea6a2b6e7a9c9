//! One claim as the keeper knows it.

use std::sync::Arc;

use super::leases::Extension;
use crate::capability::Renewal;
use crate::claim::Claim;
use crate::clock::Moment;
use crate::hold::{Hold, Loss, Stage};
use crate::mutant::Mutant;

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
    /// The best extension of its lease by a request that made or named it. On a session its own, because the session
    /// can end and another be opened: what extends that one says nothing about claims of the first.
    pub(super) extension: Option<Extension>,
    /// When we heard that it is there, or that it holds: what was asked before that may have been answered before it.
    pub(super) heard: Option<Moment>,
    /// Its full lease has started: a fixed one needs no more renewals.
    pub(super) full: bool,
}

impl Entry {
    pub(super) fn new(claim: Claim, hold: Arc<Hold>, renewal: Renewal) -> Self {
        let (phase, extension, heard) = (Phase::Asked, None, None);
        Self { claim, hold, renewal, phase, seat: 0, extension, heard, full: false }
    }

    /// Whether nobody renews it any more: a fixed lease that has begun.
    pub(super) fn is_settled(&self) -> bool {
        self.renewal == Renewal::Never && self.full
    }

    /// Whether a message about this seat is about it.
    pub(super) fn is_in(&self, seat: u64) -> bool {
        self.seat == seat || (Mutant::PromotionForAnySeat.lives() && self.phase == Phase::Waiting)
    }

    /// Whether the answer to what was asked then may be older than what we know.
    pub(super) fn may_be_overtaken(&self, sent: Moment) -> bool {
        self.heard.is_none_or(|at| sent <= at) && !Mutant::LateReplyUndoesPromotion.lives()
    }

    /// When it ends if nothing is done: the deadline of who holds it; after that the end of a fixed lease, which the
    /// store keeps for longer than its user may believe in it.
    pub(super) fn ends(&self) -> Option<Moment> {
        match self.hold.stage() {
            Stage::Over(Loss::Expired) if self.is_settled() => self.extension.map(Extension::ends),
            _ => self.hold.deadline(),
        }
    }
}
