//! A lease: what keeps one claim, or a session full of them, alive.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::capability::Leases;
use crate::claim::{Claim, ClaimId};
use crate::clock::Moment;
use crate::error::Result;

/// Which lease a claim lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LeaseKey {
    /// The claim's own.
    Own(ClaimId),
    /// The session for this lease length.
    Shared(Duration),
}

impl LeaseKey {
    pub(super) fn of(kind: Leases, claim: &Claim) -> Self {
        match (kind, claim.lease) {
            (Leases::Shared, Some(length)) => Self::Shared(length),
            _ => Self::Own(claim.id),
        }
    }
}

/// The share of a lease that a guard relies on: the rest is for clocks that run at different rates.
const TRUSTED: f64 = 0.9;

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) claims: Vec<ClaimId>,
    /// When a request that extended it was sent, and to what length.
    extended: Option<(Moment, Duration)>,
    /// The same for the last such request, which may have left a longer lease as it was.
    renewed: Option<(Moment, Duration)>,
    /// When the task should look at it next.
    pub(super) due: Option<Moment>,
    /// A renewal is under way: at most one, so that replies cannot be confused.
    pub(super) in_flight: bool,
    /// Somebody has a reason to look at its claims now.
    pub(super) look: bool,
    /// Renewals that failed in a row.
    pub(super) failed: u32,
    /// Who waits for the next renewal's outcome.
    pub(super) askers: Vec<(ClaimId, oneshot::Sender<Result<()>>)>,
}

impl Lease {
    pub(super) fn new() -> Self {
        Self {
            claims: Vec::new(),
            extended: None,
            renewed: None,
            due: None,
            in_flight: false,
            look: false,
            failed: 0,
            askers: Vec::new(),
        }
    }

    /// A request sent at `sent` extended it to `length`. Replies can be late: the best one counts.
    pub(super) fn extend(&mut self, sent: Moment, length: Duration) {
        let better = self.extended.is_none_or(|(at, long)| sent + length > at + long);
        if better {
            self.extended = Some((sent, length));
        }
        self.renewed = Some((sent, length));
        self.failed = 0;
    }

    /// Until when its claims may be believed: counted from before the request was sent.
    pub(super) fn valid_until(&self, rounding: Duration) -> Option<Moment> {
        self.extended.map(|(sent, length)| sent + length.mul_f64(TRUSTED) - rounding)
    }

    /// How long it was the last time it was extended.
    pub(super) fn length(&self) -> Option<Duration> {
        self.extended.map(|(_, length)| length)
    }

    /// Until when the store may still honour it.
    pub(super) fn ends(&self) -> Option<Moment> {
        self.extended.map(|(sent, length)| sent + length)
    }

    /// When to renew it again: a third of it after the last time, a little earlier at random, so that a
    /// thousand locks taken at once do not all come back at once.
    pub(super) fn renew_at(&self) -> Option<Moment> {
        self.renewed.map(|(sent, length)| sent + length.mul_f64((0.85 + 0.15 * fastrand::f64()) / 3.0))
    }
}
