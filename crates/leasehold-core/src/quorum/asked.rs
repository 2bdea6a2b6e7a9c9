//! What the members are asked: the same of each, under the id that this member knows the claim by.

use super::Inner;
use super::ledger::Standing;
use crate::claim::{Claim, ClaimId, IfBusy, QuorumTerms};

/// A claim as the members see it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// With the id that the keeper knows it by.
    pub(super) claim: Claim,
    /// The id that each member knows it by.
    pub(super) ids: Vec<ClaimId>,
}

impl Asked {
    /// What member `n` is asked.
    pub(super) fn on(&self, n: usize) -> Claim {
        Claim { id: self.ids[n], ..self.claim.clone() }
    }
}

impl Inner {
    /// Never to queue, and to grant with the number that all agree on.
    pub(super) fn asked(&self, claim: &Claim, standing: &Standing) -> Asked {
        let claim = Claim {
            if_busy: IfBusy::Leave,
            token_above: standing.token - 1,
            quorum: Some(QuorumTerms { keep: self.max_lease, min_age: self.min_age, again: false }),
            value: standing.value.clone().unwrap_or_else(|| claim.value.clone()),
            ..claim.clone()
        };
        Asked { claim, ids: standing.ids.clone() }
    }
}
