//! Which claims of this process live on which session: what a renewal is compared with.
//!
//! Only this process makes claims for its clients' sessions, so what it ever sent and has not seen gone is all that a
//! session can carry.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Session;
use crate::book::Fence;
use crate::claim::{Claim, ClaimId, Inbox};
use crate::clock::{BootClock, Clock};

/// One session per client and lease length.
type Name = (Inbox, Duration);

#[derive(Debug)]
struct Carried {
    session: Session,
    claims: HashMap<ClaimId, Claim>,
}

/// The sessions of this process, and what they carry.
#[derive(Debug, Default)]
pub(super) struct Roll {
    carried: Mutex<HashMap<Name, Carried>>,
    /// Claims that were withdrawn, and until when another copy of them is refused. Nobody else makes claims for our
    /// sessions, so nobody else needs to know.
    refused: Mutex<Fence>,
}

fn name(claim: &Claim) -> Option<Name> {
    claim.lease.map(|lease| (claim.inbox, lease))
}

impl Roll {
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Carried>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a claim for so long.
    pub(super) fn refuse(&self, id: &ClaimId, length: Duration) {
        let now = BootClock.now();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.prune(now.as_millis());
        refused.refuse(*id, (now + length).as_millis());
    }

    pub(super) fn is_refused(&self, id: &ClaimId) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.prune(BootClock.now().as_millis());
        refused.refuses(id)
    }

    /// A claim is about to be made on this session. Answers whether that may have happened already: an earlier request was
    /// not answered.
    pub(super) fn enter(&self, session: &Session, claim: &Claim) -> bool {
        let Some(name) = name(claim) else { return false };
        let mut roll = self.lock();
        let carried =
            roll.entry(name).or_insert_with(|| Carried { session: session.clone(), claims: HashMap::new() });
        if carried.session != *session {
            // The one before is over, and everything on it.
            *carried = Carried { session: session.clone(), claims: HashMap::new() };
        }
        carried.claims.insert(claim.id, claim.clone()).is_some()
    }

    /// A claim is surely not there any more. Answers its session if it carries nothing now.
    pub(super) fn leave(&self, claim: &Claim) -> Option<Session> {
        let mut roll = self.lock();
        let name = name(claim)?;
        let carried = roll.get_mut(&name)?;
        carried.claims.remove(&claim.id)?;
        if !carried.claims.is_empty() {
            return None;
        }
        roll.remove(&name).map(|carried| carried.session)
    }

    /// A session is over.
    pub(super) fn drop_session(&self, session: &Session) {
        self.lock().retain(|_, carried| carried.session != *session);
    }

    /// Clients are gone, and will renew nothing any more.
    pub(super) fn forget_clients(&self, gone: &[Inbox]) {
        self.lock().retain(|(inbox, _), _| !gone.contains(inbox));
    }

    /// The session that carries a claim.
    pub(super) fn session(&self, claim: &Claim) -> Option<Session> {
        let roll = self.lock();
        let carried = roll.get(&name(claim)?)?;
        carried.claims.contains_key(&claim.id).then(|| carried.session.clone())
    }

    /// What the session carries beyond `named`, if it is older than that round.
    pub(super) fn ghosts(&self, session: &Session, named: &[&Claim]) -> Vec<Claim> {
        let Some(round) = named.iter().map(|claim| claim.round).max() else { return Vec::new() };
        let named: HashSet<ClaimId> = named.iter().map(|claim| claim.id).collect();
        let is_ghost = |claim: &&Claim| claim.round < round && !named.contains(&claim.id);
        let roll = self.lock();
        let Some(carried) = roll.values().find(|carried| carried.session == *session) else {
            return Vec::new();
        };
        carried.claims.values().filter(is_ghost).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Units;
    use crate::key::Key;

    /// The least processor time of this thread for one comparison of a session with a renewal that names its `n` claims.
    fn cost(n: usize) -> Duration {
        let time = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
        };
        let (roll, session) = (Roll::default(), Session("session".into()));
        let claim = Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap();
        let claim = || Claim { id: ClaimId::random().unwrap(), ..claim.clone() };
        let mut named: Vec<Claim> = std::iter::repeat_with(claim).take(n).collect();
        named.iter().for_each(|claim| assert!(!roll.enter(&session, claim)));
        named.iter_mut().for_each(|claim| claim.round = 1);
        let named: Vec<&Claim> = named.iter().collect();
        let costs = std::iter::repeat_with(|| {
            let before = time();
            assert!(roll.ghosts(&session, &named).is_empty());
            time() - before
        });
        costs.take(3).min().unwrap()
    }

    #[test]
    fn renewal_is_compared_with_its_session_in_linear_time() {
        let (few, many) = (cost(500), cost(10_000));
        // Twenty times as many claims: four hundred times the cost if each is compared with each.
        assert!(many < few * 100, "{few:?} for 500 claims, {many:?} for 10,000");
    }
}
