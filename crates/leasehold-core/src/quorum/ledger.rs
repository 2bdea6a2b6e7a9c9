//! What the quorum remembers of its claims: the ids that members know them by, their tokens, and who has not answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::numbers::Numbers;
use crate::claim::{Answer, ClaimId};
use crate::error::{ErrorKind, Result};
use crate::mutant::Mutant;

/// After how many claims those are forgotten that nobody released, because their runtime or their store ended.
const PRUNE_EVERY: u64 = 1024;
/// Longer than any lease that is worth renewing.
const DEAD_AFTER: Duration = Duration::from_secs(24 * 3600);

/// One claim.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// The id that each member knows the claim by. Every attempt has an id of its own, and an id that was released on a
    /// member is never used there again: a release can be late by any time, and must then find nothing.
    pub(super) ids: Vec<ClaimId>,
    /// The token that was proposed; the one that it holds with once a majority granted it.
    pub(super) token: u64,
    /// The value that replaced the claim's own.
    pub(super) value: Option<Arc<[u8]>>,
    /// The members, a bit each, that are being asked to grant it. Who asks them cleans up if it is over by then.
    in_flight: u64,
    /// The members that may have granted it and did not say so: their grant may still come.
    unknown: u64,
    /// It is being released. Kept until a majority has confirmed that, so that a repeated release names the same ids.
    is_leaving: bool,
    /// When it was last asked about.
    touched: Instant,
}

impl Standing {
    /// Whether the member is being asked to grant it right now.
    pub(super) fn is_in_flight(&self, member: usize) -> bool {
        self.in_flight & (1 << member) != 0
    }

    /// Whether its grant may still come to the member.
    pub(super) fn is_unknown(&self, member: usize) -> bool {
        self.unknown & (1 << member) != 0
    }
}

/// Whether the member may have granted and did not say so.
pub(super) fn is_unknown(said: &Result<Answer>) -> bool {
    matches!(said, Err(error) if error.kind() == ErrorKind::Indeterminate)
}

/// All claims of this process on the quorum.
#[derive(Debug)]
pub(super) struct Standings {
    members: usize,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    claims: HashMap<ClaimId, Standing>,
    /// Claims that were withdrawn and may still come, and until when they are refused. Members cannot know them: they
    /// never hear of this id.
    refused: HashMap<ClaimId, Instant>,
    numbers: Numbers,
    proposals: u64,
}

impl Table {
    fn standing(&mut self, id: &ClaimId) -> Option<&mut Standing> {
        self.claims.get_mut(id).filter(|standing| !standing.is_leaving)
    }

    /// The claim, if the member still knows it by this id.
    fn attempt(&mut self, id: &ClaimId, member: usize, known_as: &ClaimId) -> Option<&mut Standing> {
        self.standing(id).filter(|standing| standing.ids[member] == *known_as)
    }

    fn prune(&mut self) {
        let now = Instant::now();
        self.claims.retain(|_, standing| now.duration_since(standing.touched) < DEAD_AFTER);
        self.refused.retain(|_, until| *until > now);
    }
}

impl Standings {
    pub(super) fn new(members: usize, numbers: Numbers) -> Self {
        let (claims, refused) = (HashMap::new(), HashMap::new());
        Self { members, table: Mutex::new(Table { claims, refused, numbers, proposals: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new attempt to get the claim granted, or the one that is still open. `None` when the claim was withdrawn.
    pub(super) fn propose(&self, id: ClaimId, above: u64) -> Result<Option<Standing>> {
        let mut table = self.lock();
        table.proposals += 1;
        if table.proposals.is_multiple_of(PRUNE_EVERY) {
            table.prune();
        }
        if table.refused.get(&id).is_some_and(|until| *until > Instant::now()) {
            return Ok(None);
        }
        if let Some(standing) = table.standing(&id) {
            return Ok(Some(standing.clone()));
        }
        let known_as = if Mutant::QuorumReusesIds.lives() { id } else { ClaimId::random()? };
        let standing = Standing {
            ids: vec![known_as; self.members],
            token: table.numbers.propose(above)?,
            value: None,
            in_flight: 0,
            unknown: 0,
            is_leaving: false,
            touched: Instant::now(),
        };
        table.claims.insert(id, standing.clone());
        Ok(Some(standing))
    }

    pub(super) fn get(&self, id: &ClaimId) -> Option<Standing> {
        let mut table = self.lock();
        let standing = table.standing(id)?;
        standing.touched = Instant::now();
        Some(standing.clone())
    }

    pub(super) fn set_value(&self, id: &ClaimId, value: &Arc<[u8]>) {
        if let Some(standing) = self.lock().standing(id) {
            standing.value = Some(value.clone());
        }
    }

    /// A member is about to be asked to grant the claim. `false` when the attempt is over.
    pub(super) fn asks(&self, id: &ClaimId, member: usize, known_as: &ClaimId) -> bool {
        let mut table = self.lock();
        let Some(standing) = table.attempt(id, member, known_as) else { return false };
        standing.in_flight |= 1 << member;
        true
    }

    /// A member has said whether it grants, or has not. `false` when the attempt is over.
    pub(super) fn heard(
        &self,
        id: &ClaimId,
        member: usize,
        known_as: &ClaimId,
        said: &Result<Answer>,
    ) -> bool {
        let mut table = self.lock();
        if let Ok(Answer::Granted(grant)) = said {
            table.numbers.note(grant.token);
        }
        let Some(standing) = table.attempt(id, member, known_as) else { return false };
        standing.in_flight &= !(1 << member);
        if is_unknown(said) {
            standing.unknown |= 1 << member;
        }
        true
    }

    /// A majority granted with this token. `false` when the claim was released meanwhile.
    ///
    /// # Errors
    /// The token is too far ahead of the clock.
    pub(super) fn agree(&self, id: &ClaimId, token: u64) -> Result<bool> {
        let mut table = self.lock();
        table.numbers.check(token)?;
        Ok(table.standing(id).map(|standing| standing.token = token).is_some())
    }

    /// Whether a token of this size may be used.
    pub(super) fn check(&self, token: u64) -> Result<()> {
        self.lock().numbers.check(token)
    }

    /// The claim is about to be released on one member and goes on elsewhere, so it gets another id there.
    /// Says whether a copy with the old id may still arrive; `None` if the member knows the claim by another
    /// id already.
    pub(super) fn replace_id(&self, id: &ClaimId, member: usize, known_as: &ClaimId) -> Result<Option<bool>> {
        let fresh = ClaimId::random()?;
        let mut table = self.lock();
        let Some(standing) = table.attempt(id, member, known_as) else { return Ok(None) };
        let may_come = standing.is_unknown(member);
        standing.ids[member] = fresh;
        // No copy was sent with the new id.
        standing.unknown &= !(1 << member);
        standing.in_flight &= !(1 << member);
        Ok(Some(may_come))
    }

    /// The claim is about to be released. Says what has to be done about it on each member.
    pub(super) fn leave(&self, id: &ClaimId, refuse_for: Option<Duration>) -> Option<Standing> {
        let mut table = self.lock();
        if let Some(length) = refuse_for {
            table.refused.insert(*id, Instant::now() + length);
        }
        let standing = table.claims.get_mut(id)?;
        standing.is_leaving = true;
        Some(standing.clone())
    }

    /// An attempt is over, or a claim is released. `None` when the claim has another attempt by now, or none.
    pub(super) fn forget(&self, id: &ClaimId, ids: &[ClaimId]) -> Option<Standing> {
        let mut table = self.lock();
        table.claims.get(id).filter(|standing| standing.ids == ids)?;
        table.claims.remove(id)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().claims.len()
    }
}
