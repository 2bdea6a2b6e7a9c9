//! Law 1 while the limit changes.
//!
//! A smaller limit takes nothing from holders, so more units than the limit may be held for a while. What must never
//! happen is a *grant* beyond the limit. A grant happens at some moment of its call, and a resize at some moment of its
//! own. A grant is wrong only if the units held with it exceed every limit that can have been in force at that moment.

use std::collections::{HashMap, HashSet};

use super::check::{Attempt, Grant, Violation};
use super::{Event, Step};

/// The limits that can have been in force, and when.
#[derive(Debug)]
pub(super) struct Limits(Vec<Period>);

#[derive(Debug)]
struct Period {
    limit: u64,
    from: u64,
    /// The end of the next resize; the end of time if none was answered.
    until: u64,
}

impl Limits {
    /// The limits of one lock that had this one at first.
    pub(super) fn of(events: &[&Event], first: u64) -> Self {
        let mut calls: Vec<(u64, u64, Option<u64>)> = Vec::new();
        let mut open: HashMap<u64, usize> = HashMap::new();
        for event in events {
            match event.step {
                Step::Resizes { limit } => {
                    open.insert(event.worker, calls.len());
                    calls.push((limit, event.at, None));
                }
                Step::Resized => {
                    if let Some(call) = open.remove(&event.worker).and_then(|n| calls.get_mut(n)) {
                        call.2 = Some(event.at);
                    }
                }
                _ => {}
            }
        }
        // A resize without an answer may take effect at any later time, so its limit has no end.
        let replaced = |after: u64| {
            let later = calls.iter().filter(|(_, asked, _)| *asked >= after);
            later.filter_map(|(_, _, answered)| *answered).min().unwrap_or(u64::MAX)
        };
        let mut periods = vec![Period { limit: first, from: 0, until: replaced(0) }];
        for (limit, from, answered) in &calls {
            let until = answered.map_or(u64::MAX, replaced);
            periods.push(Period { limit: *limit, from: *from, until });
        }
        Self(periods)
    }

    /// The largest limit of all.
    pub(super) fn largest(&self) -> u64 {
        self.0.iter().map(|period| period.limit).max().unwrap_or(0)
    }

    /// The largest limit that can have been in force at some moment from here to there.
    fn largest_between(&self, from: u64, until: u64) -> u64 {
        let possible = self.0.iter().filter(|period| period.from <= until && from <= period.until);
        possible.map(|period| period.limit).max().unwrap_or(0)
    }
}

/// Finds the grants that exceeded the limit: by what workers believed, by snapshots, and by the store's own history.
pub(super) fn exceeded(
    key: &str,
    events: &[&Event],
    attempts: &[Attempt],
    limits: &Limits,
    found: &mut Vec<Violation>,
) {
    let mut seen = HashSet::new();
    let beliefs = by_belief(attempts, limits);
    let all = beliefs.into_iter().chain(by_snapshots(events, limits)).chain(by_account(events));
    for (token, units, limit) in all.filter(|(token, ..)| seen.insert(*token)) {
        found.push(Violation::Exceeded { key: key.to_owned(), token, units, limit });
    }
}

/// A grant, the units held with it, and the limit that they exceed.
type Excess = (u64, u64, u64);

/// Tokens tell the order of grants. So whoever has a smaller token and still holds when a worker hears of its own grant
/// held when that grant was made.
fn by_belief(attempts: &[Attempt], limits: &Limits) -> Vec<Excess> {
    let mut grants: Vec<(u64, &Grant)> =
        attempts.iter().filter_map(|attempt| Some((attempt.asked, attempt.grant.as_ref()?))).collect();
    grants.sort_by_key(|(_, grant)| grant.token);
    let (mut excesses, mut before) = (Vec::new(), Vec::<&Grant>::new());
    if limits.0.len() == 1 {
        // With one limit for ever these are overlaps, which are found elsewhere.
        return excesses;
    }
    // No grant is made before one with a smaller token was asked for.
    let mut earliest = 0;
    for (asked, grant) in grants {
        earliest = earliest.max(asked);
        before.retain(|other| other.end() > earliest);
        let beside = before.iter().filter(|other| other.end() > grant.at);
        let units = grant.units + beside.map(|other| other.units).sum::<u64>();
        let limit = limits.largest_between(earliest, grant.at);
        if units > limit && grant.end() > grant.at {
            excesses.push((grant.token, units, limit));
        }
        before.push(grant);
    }
    excesses
}

/// A token that one snapshot has and the one before it has not was granted in between, beside all smaller tokens that
/// are still there.
fn by_snapshots(events: &[&Event], limits: &Limits) -> Vec<Excess> {
    let mut excesses = Vec::new();
    let mut last: HashMap<u64, (u64, HashSet<u64>)> = HashMap::new();
    for event in events {
        let Step::Saw { asked, holders } = &event.step else { continue };
        let tokens = holders.iter().map(|(token, _)| *token).collect();
        let Some((since, known)) = last.insert(event.worker, (*asked, tokens)) else { continue };
        let limit = limits.largest_between(since, event.at);
        for (token, _) in holders.iter().filter(|(token, _)| !known.contains(token)) {
            let units = holders.iter().filter(|(other, _)| other <= token).map(|(_, units)| units).sum();
            if units > limit {
                excesses.push((*token, units, limit));
            }
        }
    }
    excesses
}

fn by_account(events: &[&Event]) -> Vec<Excess> {
    let accounts = events.iter().filter_map(|event| match event.step {
        Step::Account { token, units, limit } => Some((token, units, limit)),
        _ => None,
    });
    accounts.filter(|(_, units, limit)| units > limit).collect()
}
