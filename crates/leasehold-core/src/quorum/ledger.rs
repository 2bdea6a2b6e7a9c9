//! What the quorum remembers of its claims: the number it proposed for each, and who has not answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::claim::{Answer, ClaimId};
use crate::error::{ErrorKind, Result};

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
    /// The members, a bit each, that are being asked to grant it. Who asks them cleans up if it is over by then.
    in_flight: u64,
    /// The members that may have granted it and did not say so: their grant may still come.
    unknown: u64,
    /// When it was last asked about.
    touched: Instant,
}

/// A claim that is being released.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaving {
    in_flight: u64,
    unknown: u64,
}

impl Leaving {
    /// Whether the member is being asked to grant it right now.
    pub(super) fn is_in_flight(self, member: usize) -> bool {
        self.in_flight & (1 << member) != 0
    }

    /// Whether its grant may still come to the member.
    pub(super) fn is_unknown(self, member: usize) -> bool {
        self.unknown & (1 << member) != 0
    }
}

/// Whether the member may have granted and did not say so.
pub(super) fn is_unknown(said: &Result<Answer>) -> bool {
    matches!(said, Err(error) if error.kind() == ErrorKind::Indeterminate)
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
    pub(super) fn propose(&self, id: ClaimId, above: u64) -> Standing {
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
        let standing = Standing { token, value: None, in_flight: 0, unknown: 0, touched: Instant::now() };
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
        standing.in_flight |= 1 << member;
        true
    }

    /// A member has said whether it grants, or has not. `false` when the claim was released meanwhile.
    pub(super) fn heard(&self, id: &ClaimId, member: usize, said: &Result<Answer>) -> bool {
        let mut table = self.lock();
        if let Ok(Answer::Granted(grant)) = said {
            table.last = table.last.max(grant.token);
        }
        let Some(standing) = table.claims.get_mut(id) else { return false };
        standing.in_flight &= !(1 << member);
        if is_unknown(said) {
            standing.unknown |= 1 << member;
        }
        true
    }

    /// Forgets a claim and says what has to be done about it on each member.
    pub(super) fn forget(&self, id: &ClaimId) -> Leaving {
        self.lock().claims.remove(id).map_or(Leaving::default(), |standing| Leaving {
            in_flight: standing.in_flight,
            unknown: standing.unknown,
        })
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
