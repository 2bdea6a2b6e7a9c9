//! A test store whose claims live on shared sessions, as on ZooKeeper, etcd and Consul: the keeper's other kind of
//! lease, without a server.
//!
//! It wraps [`Memory`], gives every claim there a lease that never ends, and ends all claims of a session together
//! when the session was not renewed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use crate::capability::{Capability, Info, Leases};
use crate::claim::{Answer, Change, Claim, ClaimId, Inbox, Released};
use crate::clock::{Clock, Moment};
use crate::error::Result;
use crate::key::Key;
use crate::memory::Memory;
use crate::store::{Fut, Page, Snapshot, Store, Wakes};

/// Long enough that only the session matters.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// What needs a lease per claim: a claim ends with the session of its giver, the server that ends a session knows nothing of
/// delays, and a quorum counts on the lease of every claim.
const LACKS: [Capability; 3] = [Capability::Owner, Capability::LockDelay, Capability::Member];

static CAPABILITIES: LazyLock<Vec<Capability>> =
    LazyLock::new(|| Capability::ALL.iter().copied().filter(|able| !LACKS.contains(able)).collect());

/// Which session: one per client and lease length.
type Name = (Inbox, Duration);

#[derive(Debug)]
struct Session {
    ends: Moment,
    claims: HashMap<ClaimId, Claim>,
}

/// Claims on shared sessions, in memory. For tests.
#[derive(Clone, Debug)]
pub struct Sessions {
    memory: Memory,
    clock: Arc<dyn Clock>,
    info: Info,
    sessions: Arc<Mutex<HashMap<Name, Session>>>,
}

impl Sessions {
    /// An empty store on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let memory = Memory::with_clock(clock.clone());
        let (name, leases) = ("sessions", Leases::Shared);
        let info = Info { name, leases, capabilities: &CAPABILITIES, ..memory.info().clone() };
        Self { memory, clock, info, sessions: Arc::default() }
    }

    /// Says that it can delay: then it is the client that leaves a tail, and a session that ends leaves none.
    #[cfg(test)]
    pub(crate) fn with_lock_delay(mut self) -> Self {
        self.info.capabilities = Capability::ALL;
        self
    }

    /// How many keys it remembers.
    pub fn residue(&self) -> usize {
        self.memory.residue()
    }

    /// Runs `work` on the session of a claim, if there is one.
    fn with_session<T>(&self, claim: &Claim, work: impl FnOnce(&mut HashMap<Name, Session>, Name) -> T) -> T {
        let name = (claim.inbox, claim.lease.unwrap_or(FOR_EVER));
        work(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner), name)
    }

    /// Ends the claims of sessions that are over, as the server would by itself.
    async fn bury_dead_sessions(&self) -> Result<()> {
        let now = self.clock.now();
        let dead: Vec<Session> = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let over: Vec<Name> =
                sessions.iter().filter(|(_, s)| s.ends <= now).map(|(name, _)| *name).collect();
            over.iter().filter_map(|name| sessions.remove(name)).collect()
        };
        for claim in dead.iter().flat_map(|session| session.claims.values()) {
            self.memory.release(claim, None).await?;
        }
        Ok(())
    }

    /// Puts a claim on its session, opening that if need be. `true` when it was opened.
    fn join(&self, claim: &Claim) -> bool {
        let ends = self.clock.now() + claim.lease.unwrap_or(FOR_EVER);
        self.with_session(claim, |sessions, name| {
            let mut opened = false;
            let session = sessions.entry(name).or_insert_with(|| {
                opened = true;
                Session { ends, claims: HashMap::new() }
            });
            session.claims.insert(claim.id, claim.clone());
            opened
        })
    }

    fn part(&self, claim: &Claim) {
        self.with_session(claim, |sessions, name| {
            if let Some(session) = sessions.get_mut(&name) {
                session.claims.remove(&claim.id);
                if session.claims.is_empty() {
                    sessions.remove(&name);
                }
            }
        });
    }
}

impl Store for Sessions {
    fn info(&self) -> &Info {
        &self.info
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.memory.open(inbox, wakes)
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move {
            self.bury_dead_sessions().await?;
            if claim.count.is_some() {
                // A latch outlives the session of whoever set it.
                return self.memory.claim(claim).await;
            }
            let opened = self.join(claim);
            let answer = self.memory.claim(&claim.on_session()).await;
            if !matches!(answer, Ok(Answer::Granted(_) | Answer::Waiting(_))) {
                self.part(claim);
            }
            Ok(answer?.on_session(claim.lease.filter(|_| opened)))
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            self.bury_dead_sessions().await?;
            let Some(first) = claims.first() else { return Ok(Vec::new()) };
            let ends = self.clock.now() + first.lease.unwrap_or(FOR_EVER);
            let known: HashSet<ClaimId> = claims.iter().map(|claim| claim.id).collect();
            // One heartbeat, and one look at what the session carries.
            let ghosts: Option<Vec<Claim>> = self.with_session(first, |sessions, name| {
                let session = sessions.get_mut(&name)?;
                session.ends = ends;
                let is_ghost = |claim: &&Claim| !known.contains(&claim.id) && claim.round < first.round;
                Some(session.claims.values().filter(is_ghost).cloned().collect())
            });
            let Some(ghosts) = ghosts else { return Ok(vec![Answer::Gone; claims.len()]) };
            for ghost in &ghosts {
                self.memory.release(ghost, None).await?;
                self.part(ghost);
            }
            let below: Vec<Claim> = claims.iter().map(Claim::on_session).collect();
            let answers = self.memory.renew(&below).await?;
            Ok(answers.into_iter().map(|answer| answer.on_session(first.lease)).collect())
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            self.bury_dead_sessions().await?;
            let answer = self.memory.amend(&claim.on_session(), change).await?;
            if matches!(change, Change::Tail(_)) && answer == Answer::Done {
                // Nobody's any more: it ends by itself. A claim that waits has no tail, and stays on its session.
                self.part(claim);
            }
            Ok(answer.on_session(None))
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(async move {
            self.bury_dead_sessions().await?;
            self.part(claim);
            self.memory.release(claim, refuse_for).await
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move {
            self.bury_dead_sessions().await?;
            self.memory.inspect(key).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(async move {
            self.bury_dead_sessions().await?;
            self.memory.list(prefix, cursor).await
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move {
            self.bury_dead_sessions().await?;
            self.memory.evict(key, token).await
        })
    }
}
