//! What the quorum remembers of its claims: the number it proposed for each, and who has not answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::claim::ClaimId;

/// After how many claims those are forgotten that nobody released, because their runtime or their store ended.
const PRUNE_EVERY: u64 = 1024;
/// Longer than any lease that is worth renewing.
const DEAD_AFTER: Duration = Duration::from_secs(24 * 3600);

/// One claim.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// The token that it holds with, once a majority granted it.
    pub(super) token: u64,
    /// The value that replaced the claim's own.
    pub(super) value: Option<Arc<[u8]>>,
    /// The members, a bit each, that were asked to grant it and have not answered: their grant may still come.
    unanswered: u64,
    /// When it was last asked about.
    touched: Instant,
}

/// All claims of this process on the quorum.
#[derive(Debug, Default)]
pub(super) struct Standings(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    claims: HashMap<ClaimId, Standing>,
    /// The largest number that was proposed or seen.
    last: u64,
    proposals: u64,
}

impl Standings {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number to propose for a claim: the same when it is asked again.
    pub(super) fn propose(&self, id: ClaimId, above: u64, members: usize) -> Standing {
        let mut table = self.lock();
        table.proposals += 1;
        if table.proposals.is_multiple_of(PRUNE_EVERY) {
            table.claims.retain(|_, standing| standing.touched.elapsed() < DEAD_AFTER);
        }
        if let Some(standing) = table.claims.get(&id) {
            return standing.clone();
        }
        let token = table.last.max(above).saturating_add(1).max(wall_micros());
        table.last = token;
        let standing =
            Standing { token, value: None, unanswered: (1 << members) - 1, touched: Instant::now() };
        table.claims.insert(id, standing.clone());
        standing
    }

    pub(super) fn get(&self, id: &ClaimId) -> Option<Standing> {
        let mut table = self.lock();
        let standing = table.claims.get_mut(id)?;
        standing.touched = Instant::now();
        Some(standing.clone())
    }

    pub(super) fn set_value(&self, id: &ClaimId, value: &Arc<[u8]>) {
        if let Some(standing) = self.lock().claims.get_mut(id) {
            standing.value = Some(value.clone());
        }
    }

    /// A member is about to be asked to grant the claim. `false` when the claim was released meanwhile.
    pub(super) fn asks(&self, id: &ClaimId, member: usize) -> bool {
        let mut table = self.lock();
        let Some(standing) = table.claims.get_mut(id) else { return false };
        standing.unanswered |= 1 << member;
        true
    }

    /// A member has said whether it grants, and with which token.
    pub(super) fn heard(&self, id: &ClaimId, member: usize, token: u64) {
        let mut table = self.lock();
        if let Some(standing) = table.claims.get_mut(id) {
            standing.unanswered &= !(1 << member);
        }
        table.last = table.last.max(token);
    }

    /// Forgets a claim and says who may still grant it.
    pub(super) fn forget(&self, id: &ClaimId) -> u64 {
        self.lock().claims.remove(id).map_or(0, |standing| standing.unanswered)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().claims.len()
    }
}

/// The time, so that proposals rise by themselves where nobody remembers the last one.
fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
