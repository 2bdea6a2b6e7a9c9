//! The checker: belief intervals and a few sorted passes over them.

use std::collections::{BTreeMap, HashMap};

use super::limits::{self, Limits};
use super::{Event, Found, Step};

/// What the lock promised.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The units that may be held at the same time, until the history says that the lock was resized.
    pub limit: u64,
    /// Whether grants follow the queue.
    pub ordered: bool,
}

/// Something that no lock can explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More units were believed to be held than there are.
    Overlap {
        /// On which lock.
        key: String,
        /// When, in microseconds since boot.
        at: u64,
        /// How many.
        units: u64,
        /// By whom.
        workers: Vec<u64>,
    },
    /// A grant made the held units exceed every limit that can have been in force when it was made.
    Exceeded {
        /// On which lock.
        key: String,
        /// The token of the grant.
        token: u64,
        /// The units that were held with it, at least.
        units: u64,
        /// The largest limit that can have been in force.
        limit: u64,
    },
    /// Somebody who queued later was granted earlier.
    Overtaken {
        /// On which lock.
        key: String,
        /// Who waited.
        worker: u64,
        /// Who passed.
        by: u64,
    },
    /// Two grants had the same token.
    TokenRepeated {
        /// On which lock.
        key: String,
        /// The token.
        token: u64,
    },
    /// A later grant had a smaller token.
    TokenRegressed {
        /// On which lock.
        key: String,
        /// The token of the earlier grant.
        from: u64,
        /// The token of the later one.
        to: u64,
    },
    /// A hold was gone although its deadline had not passed and nobody had said so.
    SilentLoss {
        /// On which lock.
        key: String,
        /// Whose.
        worker: u64,
    },
}

/// One attempt, from asking to the end of the belief.
#[derive(Debug)]
pub(super) struct Attempt {
    worker: u64,
    pub(super) asked: u64,
    queued: Option<u64>,
    pub(super) grant: Option<Grant>,
    /// Given up, or unknown: says nothing about order.
    void: bool,
}

#[derive(Debug)]
pub(super) struct Grant {
    pub(super) at: u64,
    pub(super) token: u64,
    pub(super) units: u64,
    deadline: u64,
    /// When it stopped believing on purpose or because it was told.
    ended: Option<u64>,
    /// When its eviction was asked for: from then on it may be over before its holder hears of it.
    evicted: Option<u64>,
    lost: bool,
    found: Option<Found>,
}

impl Grant {
    /// Until when it held for certain.
    pub(super) fn end(&self) -> u64 {
        [self.ended, self.evicted].into_iter().flatten().fold(self.deadline, u64::min)
    }
}

/// Finds everything in a history that breaks the rules. Empty when a lock can explain it.
pub fn check(events: &[Event], rules: Rules) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, attempts) in attempts(events) {
        let own: Vec<&Event> = events.iter().filter(|event| event.key == key).collect();
        let limits = Limits::of(&own, rules.limit);
        overlaps(&key, &attempts, limits.largest(), &mut found);
        limits::exceeded(&key, &own, &attempts, &limits, &mut found);
        tokens(&key, &attempts, limits.largest(), &mut found);
        silent_losses(&key, &attempts, &mut found);
        if rules.ordered {
            inversions(&key, &attempts, &mut found);
        }
    }
    found
}

/// Pairs the events up.
fn attempts(events: &[Event]) -> BTreeMap<String, Vec<Attempt>> {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by_key(|event| event.at);
    let mut all: BTreeMap<String, Vec<Attempt>> = BTreeMap::new();
    let mut open: HashMap<(&str, u64), usize> = HashMap::new();
    let mut evictions = Vec::new();
    for event in events {
        let attempts = all.entry(event.key.clone()).or_default();
        let who = (event.key.as_str(), event.worker);
        if let Step::Asks { .. } = event.step {
            open.insert(who, attempts.len());
            let (worker, asked) = (event.worker, event.at);
            attempts.push(Attempt { worker, asked, queued: None, grant: None, void: false });
        } else if let Some(attempt) = open.get(&who).and_then(|index| attempts.get_mut(*index)) {
            follow(attempt, event.at, &event.step);
        }
        if let Step::Evicts { token } = event.step {
            evictions.push((event.key.as_str(), token, event.at));
        }
    }
    for (key, token, at) in evictions {
        let grants = all.get_mut(key).into_iter().flatten().filter_map(|attempt| attempt.grant.as_mut());
        for grant in grants.filter(|grant| grant.token == token) {
            grant.evicted.get_or_insert(at);
        }
    }
    all
}

fn follow(attempt: &mut Attempt, at: u64, step: &Step) {
    match (step, attempt.grant.as_mut()) {
        (Step::Queued, _) => attempt.queued = Some(attempt.queued.unwrap_or(at)),
        (Step::Failed | Step::Unknown, _) => attempt.void = true,
        (&Step::Acquired { token, units, deadline }, _) => {
            let (ended, evicted, lost, found) = (None, None, false, None);
            attempt.grant = Some(Grant { at, token, units, deadline, ended, evicted, lost, found });
        }
        (Step::Renewed { deadline }, Some(grant)) => grant.deadline = grant.deadline.max(*deadline),
        (Step::Lost, Some(grant)) => {
            grant.lost = true;
            grant.ended.get_or_insert(at);
        }
        (Step::Releases, Some(grant)) => {
            grant.ended.get_or_insert(at);
        }
        (Step::Released { found }, Some(grant)) => grant.found = Some(*found),
        _ => {}
    }
}

/// A sweep over the moments at which belief begins and ends.
fn overlaps(key: &str, attempts: &[Attempt], limit: u64, found: &mut Vec<Violation>) {
    let holds = attempts.iter().filter_map(|attempt| Some((attempt.worker, attempt.grant.as_ref()?)));
    let mut moments = Vec::new();
    for (worker, grant) in holds.filter(|(_, grant)| grant.end() > grant.at) {
        // At the same moment an end comes before a start.
        moments.push((grant.end(), 0, worker, grant.units));
        moments.push((grant.at, 1, worker, grant.units));
    }
    moments.sort_unstable();
    let (mut units, mut workers) = (0, Vec::new());
    for (at, starts, worker, n) in moments {
        if starts == 0 {
            units -= n;
            workers.retain(|other| *other != worker);
        } else {
            units += n;
            workers.push(worker);
            if units > limit {
                let workers = workers.clone();
                found.push(Violation::Overlap { key: key.to_owned(), at, units, workers });
            }
        }
    }
}

/// Tokens are unique, and larger than those of all grants that were known before this one was asked for. Where
/// only one can hold at a time the grants themselves are in order, and so must their tokens be.
fn tokens(key: &str, attempts: &[Attempt], limit: u64, found: &mut Vec<Violation>) {
    let mut grants: Vec<_> =
        attempts.iter().filter_map(|attempt| Some((attempt.asked, attempt.grant.as_ref()?))).collect();
    grants.sort_by_key(|(_, grant)| grant.at);
    let mut seen = std::collections::HashSet::new();
    for (_, grant) in &grants {
        if !seen.insert(grant.token) {
            found.push(Violation::TokenRepeated { key: key.to_owned(), token: grant.token });
        }
    }
    let exclusive = grants.iter().all(|(_, grant)| grant.units > limit / 2);
    let mut by_asking = grants.clone();
    by_asking.sort_by_key(|(asked, grant)| if exclusive { grant.at } else { *asked });
    let (mut known, mut largest) = (grants.iter().peekable(), 0);
    for (asked, grant) in by_asking {
        let before = if exclusive { grant.at } else { asked };
        while let Some((_, earlier)) = known.next_if(|(_, earlier)| earlier.at < before) {
            largest = largest.max(earlier.token);
        }
        if grant.token < largest {
            found.push(Violation::TokenRegressed { key: key.to_owned(), from: largest, to: grant.token });
        }
    }
}

fn silent_losses(key: &str, attempts: &[Attempt], found: &mut Vec<Violation>) {
    for attempt in attempts {
        let Some(grant) = &attempt.grant else { continue };
        let in_time = grant.ended.is_some_and(|ended| ended < grant.deadline);
        if grant.found == Some(Found::Gone) && !grant.lost && grant.evicted.is_none() && in_time {
            found.push(Violation::SilentLoss { key: key.to_owned(), worker: attempt.worker });
        }
    }
}

/// Who had a place before somebody else even asked is granted before them; concurrent arrivals are free.
fn inversions(key: &str, attempts: &[Attempt], found: &mut Vec<Violation>) {
    let mut granted: Vec<_> = attempts.iter().filter(|a| a.grant.is_some() && !a.void).collect();
    granted.sort_by_key(|attempt| attempt.grant.as_ref().map(|grant| grant.token));
    // From the last grant to the first: who of the later ones had queued first?
    let mut earliest: Option<(u64, u64)> = None;
    for attempt in granted.iter().rev() {
        if let Some((queued, worker)) = earliest.filter(|(queued, _)| *queued < attempt.asked) {
            debug_assert!(queued < attempt.asked);
            found.push(Violation::Overtaken { key: key.to_owned(), worker, by: attempt.worker });
        }
        if let Some(queued) = attempt.queued {
            let mine = (queued, attempt.worker);
            earliest = Some(earliest.map_or(mine, |other| other.min(mine)));
        }
    }
}
