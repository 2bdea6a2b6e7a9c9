//! Warning a task that waits for a lock that it holds itself.
//!
//! A mutex is not re-entrant, so such a task waits forever. It is no error, because the task may have given its guard to
//! another one.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::pending::Pending;
use super::places::Places;
use super::tables::Tables;
use crate::caller::Caller;
use crate::claim::Claim;
use crate::clock::sleep_until;
use crate::hold::Stage;

/// How long a wait is silent.
const AFTER: Duration = Duration::from_secs(1);

/// A key can have thousands of claims of one client, and each of them may look.
const MOST_LOOKED_AT: usize = 64;

impl Pending {
    /// Warns once if the caller's own hold keeps the claim from being granted. Never returns.
    pub(super) async fn warn_of_self_wait(&self) -> Infallible {
        sleep_until(&*self.keeper.clock, self.started + AFTER).await;
        let is_own = self.keeper.lock().is_blocked_by(self.hold.caller, &self.claim);
        if is_own && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                key = %self.claim.key,
                "waiting for a lock that the same task or thread has acquired: if it still has the guard, it waits for \
                 itself; release the guard first, or acquire both times with the same `Owner` (`Options::owner`)"
            );
        }
        std::future::pending().await
    }
}

impl Tables {
    /// Whether the claim cannot be granted while this caller has what it holds.
    fn is_blocked_by(&self, caller: Caller, claim: &Claim) -> bool {
        // Holders have the lowest seats.
        let ids = self.by_key.get(&claim.key).into_iter().flat_map(Places::iter).take(MOST_LOOKED_AT);
        let holds = ids.filter_map(|id| self.entries.get(&id)).map(|entry| &entry.hold);
        let own = holds.filter(|hold| hold.caller == caller && hold.stage() == Stage::Held);
        let held: u64 = own.map(|hold| hold.units()).sum();
        held > 0 && held.saturating_add(claim.units.least()) > claim.limit
    }
}
