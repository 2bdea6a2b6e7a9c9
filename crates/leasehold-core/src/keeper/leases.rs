//! A lease: what keeps one claim, or a session full of them, alive.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::polling::Asker;
use crate::capability::Leases;
use crate::claim::{Claim, ClaimId};
use crate::clock::Moment;
use crate::mutant::Mutant;

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

/// A request that extended a lease: when it was sent, and to what length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extension {
    pub(super) sent: Moment,
    pub(super) length: Duration,
}

impl Extension {
    /// Until when the store may still honour it.
    pub(super) fn ends(self) -> Moment {
        self.sent + self.length
    }

    /// Until when it may be believed: counted from before the request was sent.
    pub(super) fn trusted_until(self, rounding: Duration) -> Moment {
        let trusted = if Mutant::NoMarginForClocks.lives() { 1.0 } else { TRUSTED };
        self.sent + self.length.mul_f64(trusted) - rounding
    }

    /// Replies can be late: the best one counts.
    pub(super) fn or_better(self, other: Option<Self>) -> Self {
        other.filter(|other| other.ends() >= self.ends()).unwrap_or(self)
    }
}

#[derive(Debug)]
pub(super) struct Lease {
    /// The claims of a session. A lease of its own has one claim, which its key names.
    pub(super) on_session: BTreeSet<ClaimId>,
    /// The best request that extended it, and when we heard of that.
    extended: Option<(Extension, Moment)>,
    /// The last such request, with the lease that it asked for: a longer one may be left.
    renewed: Option<Extension>,
    /// When the task should look at it next.
    pub(super) due: Option<Moment>,
    /// The same, while a renewal is under way.
    pub(super) wanted: Option<Moment>,
    /// The renewal that is under way: at most one, so that replies cannot be confused.
    pub(super) in_flight: Option<u64>,
    /// Somebody has a reason to look at its claims then.
    pub(super) look: Option<Moment>,
    /// Renewals that failed in a row, and why the last one did.
    pub(super) failed: u32,
    pub(super) failure: Option<Arc<str>>,
    /// The calls that wait for the next renewal's outcome.
    pub(super) askers: Vec<Asker>,
}

impl Lease {
    pub(super) fn new() -> Self {
        Self {
            on_session: BTreeSet::new(),
            extended: None,
            renewed: None,
            due: None,
            wanted: None,
            in_flight: None,
            look: None,
            failed: 0,
            failure: None,
            askers: Vec::new(),
        }
    }

    /// The claims that live on it. `key` is its own.
    pub(super) fn claims(&self, key: LeaseKey) -> Vec<ClaimId> {
        match key {
            LeaseKey::Own(id) => vec![id],
            LeaseKey::Shared(_) => self.on_session.iter().copied().collect(),
        }
    }

    /// A request extended it, and we hear of that now. `asked` is the lease that the request asked for.
    pub(super) fn extend(&mut self, extension: Extension, asked: Option<Duration>, now: Moment) {
        if self.extended.is_none_or(|(best, _)| extension.ends() > best.ends()) {
            self.extended = Some((extension, now));
        }
        self.renewed = Some(extension);
        self.renew_within(asked.unwrap_or(Duration::MAX));
        (self.failed, self.failure) = (0, None);
    }

    /// The next renewal is due as if no more than this had been left after the last one.
    pub(super) fn renew_within(&mut self, length: Duration) {
        if let Some(renewed) = &mut self.renewed {
            renewed.length = renewed.length.min(length);
        }
    }

    /// How it was last extended.
    pub(super) fn extended(&self) -> Option<Extension> {
        self.extended.map(|(best, _)| best)
    }

    /// The same, if we knew that by then.
    pub(super) fn known_by(&self, then: Moment) -> Option<Extension> {
        self.extended.filter(|(_, heard)| *heard <= then).map(|(best, _)| best)
    }

    /// The last request that extended it, or left a longer lease as it was: from there the next renewal is planned.
    pub(super) fn renewed(&self) -> Option<Extension> {
        self.renewed
    }
}
