//! Which claims are on which line: this process's own account of what its connections have.
//!
//! The server decides between lines. On one line it would let the same lock be taken twice, so that is decided here.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{Claim, ClaimId, Inbox, Key, WHOLE, Wakes};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

use crate::database::Sharing;
use crate::line::Line;
use crate::pinned::Carries;

/// The share of a lease that a guard relies on.
const TRUSTED: f64 = 0.9;

/// The token of a claim that holds. Whoever asks the server about the claim has it locked meanwhile.
pub(crate) type Slot = Arc<Mutex<Option<u64>>>;

#[derive(Debug)]
pub(crate) struct Entry<C> {
    pub(crate) claim: Claim,
    pub(crate) line: Arc<Line<C>>,
    pub(crate) since: Instant,
    pub(crate) slot: Slot,
}

impl<C> Clone for Entry<C> {
    fn clone(&self) -> Self {
        let Self { claim, line, since, slot } = self;
        Self { claim: claim.clone(), line: line.clone(), since: *since, slot: slot.clone() }
    }
}

#[derive(Debug)]
struct Desk<C> {
    line: Arc<Line<C>>,
    /// How each lock is held on it, and by how many claims.
    taken: HashMap<Key, (Sharing, usize)>,
    /// When the last statement was sent that the server has answered.
    heard: Instant,
    /// One waits on it for its lock at the server, so that nothing can be said there.
    waits: bool,
}

/// Where a claim can be.
pub(crate) enum Room<C> {
    /// On this line; it is noted there, and its slot is ours.
    Here(Arc<Line<C>>, OwnedMutexGuard<Option<u64>>),
    /// Not on a line that is there.
    Nowhere,
    /// Another claim of ours is in the way.
    Taken,
    /// It was withdrawn before it arrived.
    Refused,
}

#[derive(Debug)]
pub(crate) struct Book<C> {
    desks: HashMap<u64, Desk<C>>,
    entries: HashMap<ClaimId, Entry<C>>,
    refused: HashMap<ClaimId, Instant>,
    wakes: HashMap<Inbox, Wakes>,
}

impl<C> Default for Book<C> {
    fn default() -> Self {
        let (desks, entries, refused, wakes) = Default::default();
        Self { desks, entries, refused, wakes }
    }
}

/// How a claim holds: readers ask for one unit of very many, everybody else is alone.
pub(crate) fn sharing(claim: &Claim) -> Sharing {
    let reads = claim.limit == WHOLE && claim.units.most() == 1;
    if reads { Sharing::Shared } else { Sharing::Exclusive }
}

impl<C> Book<C> {
    pub(crate) fn open(&mut self, inbox: Inbox, wakes: Wakes) {
        self.wakes.retain(|_, wakes| !wakes.is_gone());
        self.wakes.insert(inbox, wakes);
    }

    pub(crate) fn add(&mut self, line: Arc<Line<C>>, sent: Instant) {
        self.desks.insert(line.id, Desk { line, taken: HashMap::new(), heard: sent, waits: false });
    }

    /// Notes a claim on a line that has room for it. One that waits has a line of its own meanwhile.
    pub(crate) fn seat(&mut self, claim: &Claim, carries: Carries, waits: bool) -> Room<C> {
        if self.refused.get(&claim.id).is_some_and(|until| *until > Instant::now()) {
            return Room::Refused;
        }
        let fits = |desk: &&mut Desk<C>| {
            let line = &desk.line;
            // One that was silent for long may be ending at this moment.
            let is_fresh = desk.heard.elapsed() < line.lease.mul_f64(0.8);
            is_fresh
                && !desk.waits
                && Some(line.lease) == claim.lease
                && line.inbox == claim.inbox
                && ((carries == Carries::Many && !waits) || desk.taken.is_empty())
        };
        let Some(desk) = self.desks.values_mut().find(fits) else { return Room::Nowhere };
        let how = sharing(claim);
        match desk.taken.get_mut(&claim.key) {
            Some((Sharing::Shared, many)) if how == Sharing::Shared => *many += 1,
            Some(_) => return Room::Taken,
            None => {
                desk.taken.insert(claim.key.clone(), (how, 1));
            }
        }
        desk.waits = waits;
        let (line, slot) = (desk.line.clone(), Slot::default());
        let ours = slot.clone().try_lock_owned().expect("nobody else knows it yet");
        let entry = Entry { claim: claim.clone(), line: line.clone(), since: Instant::now(), slot };
        self.entries.insert(claim.id, entry);
        Room::Here(line, ours)
    }

    /// Nobody waits on the line any more.
    pub(crate) fn waited(&mut self, line: &Line<C>) {
        if let Some(desk) = self.desks.get_mut(&line.id) {
            desk.waits = false;
        }
    }

    /// Whether one waits on the line at this moment.
    pub(crate) fn waits(&self, line: &Line<C>) -> bool {
        self.desks.get(&line.id).is_some_and(|desk| desk.waits)
    }

    /// A claim is not on its line any more.
    pub(crate) fn unseat(&mut self, id: &ClaimId) {
        let Some(entry) = self.entries.remove(id) else { return };
        let Some(desk) = self.desks.get_mut(&entry.line.id) else { return };
        if let Some((_, many)) = desk.taken.get_mut(&entry.claim.key) {
            *many -= 1;
            if *many == 0 {
                desk.taken.remove(&entry.claim.key);
            }
        }
    }

    pub(crate) fn entry(&self, id: &ClaimId) -> Option<Entry<C>> {
        self.entries.get(id).cloned()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry<C>> {
        self.entries.values()
    }

    /// Whether a claim is the only one on its line that has, or may have, its lock.
    pub(crate) fn is_alone(&self, entry: &Entry<C>) -> bool {
        let desk = self.desks.get(&entry.line.id);
        desk.and_then(|desk| desk.taken.get(&entry.claim.key)).is_some_and(|(_, many)| *many == 1)
    }

    /// The server has answered what was sent then.
    pub(crate) fn heard(&mut self, line: &Line<C>, sent: Instant) {
        if let Some(desk) = self.desks.get_mut(&line.id) {
            desk.heard = desk.heard.max(sent);
        }
    }

    /// When the server ends a line at the earliest; `None` when it is none of ours any more.
    pub(crate) fn ends(&self, line: &Line<C>) -> Option<Instant> {
        self.desks.get(&line.id).map(|desk| desk.heard + line.lease)
    }

    /// Whether a line was silent for so long that nobody believes in what is on it.
    pub(crate) fn is_stale(&self, line: &Line<C>) -> bool {
        self.desks.get(&line.id).is_none_or(|desk| desk.heard.elapsed() >= line.lease.mul_f64(TRUSTED))
    }

    /// The lines that carry the claims of the same session.
    pub(crate) fn session_of(&self, line: &Line<C>) -> Vec<Arc<Line<C>>> {
        let is_its = |claim: &Claim| (claim.inbox, claim.lease) == (line.inbox, Some(line.lease));
        self.entries.values().filter(|entry| is_its(&entry.claim)).map(|entry| entry.line.clone()).collect()
    }

    /// A line is over, and everything on it. Says whom to tell of what.
    pub(crate) fn end(&mut self, line: &Line<C>) -> Vec<(Wakes, Key)> {
        self.desks.remove(&line.id);
        let lost = self.entries.extract_if(|_, entry| entry.line.id == line.id);
        let lost: Vec<_> = lost.map(|(_, entry)| entry.claim).collect();
        lost.into_iter()
            .filter_map(|claim| Some((self.wakes.get(&claim.inbox)?.clone(), claim.key)))
            .collect()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &Arc<Line<C>>> {
        self.desks.values().map(|desk| &desk.line)
    }

    pub(crate) fn refuse(&mut self, id: ClaimId, until: Instant) {
        let now = Instant::now();
        self.refused.retain(|_, until| *until > now);
        self.refused.insert(id, until);
    }
}
