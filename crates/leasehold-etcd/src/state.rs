//! What is stored about one lock at one revision, as the book that the rule reads.

use leasehold_core::rule::{Head, Row};
use leasehold_core::{Book, ClaimId, Error, Fence, OpenBook, Place};

use crate::format::{Claimed, claimed, first_number, limits};
use crate::names::{Label, Lock, Names, Standing};
use crate::wire::message::{By, KeyValue, Op, Range, Ranged, Reply, Response, Sort};
use crate::words::{range, read};

/// How many of those who wait are looked at where places are counted: they are counted no further.
pub(crate) const FRONT: u64 = Place::COUNTED + 1;
/// The same where it only matters who is next. A decision that would reach further is not carried out.
pub(crate) const NEXT: u64 = 8;

/// A lock as it was at a revision.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) revision: i64,
    pub(crate) claims: Vec<Claimed>,
    /// Claims that declare another limit than those who were there first: their owners take them back.
    pub(crate) odd: Vec<Claimed>,
    /// How many wait, also those that were not looked at.
    waiting: u64,
    /// How many of the first of them were looked at.
    front: usize,
    /// The limit that claims declare and the one in force, where they differ; and the revision of that.
    pub(crate) resized: Option<(u64, u64, i64)>,
    /// Claims that must not be accepted any more.
    refused: Vec<ClaimId>,
}

/// A claim that must be known, wherever it stands.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) id: ClaimId,
    /// What it is called; `None` when it was not made here.
    pub(crate) label: Option<Label>,
}

impl Own {
    /// Its name if it stands so: no key has the one of a claim that was not made here.
    pub(crate) fn name(&self, lock: &Lock, standing: Standing) -> Vec<u8> {
        match &self.label {
            Some(label) => lock.claim(standing, label),
            None => lock.claim(standing, &Label::of_id(&self.id)),
        }
    }
}

/// What to ask to know a lock, and the claims `own` on it wherever they stand in the queue.
pub(crate) fn questions(names: &Names, lock: &Lock, own: &[Own], front: u64) -> Vec<Op> {
    // Who has no known name may be anywhere.
    let is_known = own.iter().all(|own| own.label.is_some());
    let front = Range {
        limit: if is_known { front.cast_signed() } else { 0 },
        sort: Sort::Ascend.into(),
        by: By::Created.into(),
        ..range(&lock.standing(Standing::Wait))
    };
    let mut ops = vec![read(range(&lock.held())), read(front)];
    for own in own {
        ops.push(read(Range { key: own.name(lock, Standing::Wait), ..Range::default() }));
        ops.push(read(Range { key: names.refused(&own.id), ..Range::default() }));
    }
    ops
}

impl State {
    /// A lock that nobody uses.
    pub(crate) fn free() -> Self {
        Self {
            revision: 0,
            claims: Vec::new(),
            odd: Vec::new(),
            waiting: 0,
            front: 0,
            resized: None,
            refused: Vec::new(),
        }
    }

    /// The answers to [`questions`].
    pub(crate) fn answered(
        lock: &Lock,
        own: &[Own],
        revision: i64,
        replies: &[Reply],
    ) -> Result<Self, Error> {
        let ranges: Vec<&Ranged> = replies.iter().filter_map(ranged).collect();
        let [held, front, about_own @ ..] = ranges.as_slice() else {
            return Ok(Self { revision, ..Self::free() });
        };
        let mut kvs: Vec<&KeyValue> = held.kvs.iter().chain(&front.kvs).collect();
        let mut refused = Vec::new();
        for (own, about) in own.iter().zip(about_own.chunks(2)) {
            let is_new = |kv: &&KeyValue| kvs.iter().all(|known| known.key != kv.key);
            let waits: Vec<&KeyValue> = about[0].kvs.iter().filter(is_new).collect();
            kvs.extend(waits);
            refused.extend((!about[1].kvs.is_empty()).then_some(own.id));
        }
        let state = Self::of(lock, revision, kvs.into_iter().cloned())?;
        let waiting = u64::try_from(front.count).unwrap_or(0);
        let waiting = waiting.saturating_sub(state.odd.len() as u64);
        Ok(Self { waiting, front: front.kvs.len(), refused, ..state })
    }

    /// A lock with these keys, and no others.
    pub(crate) fn of(lock: &Lock, revision: i64, kvs: impl Iterator<Item = KeyValue>) -> Result<Self, Error> {
        let mut state = Self { revision, ..Self::free() };
        for kv in kvs {
            if kv.key == lock.limit() {
                let (limit, effective) = limits(&lock.key, &kv)?;
                state.resized = Some((limit, effective, kv.modified));
            } else {
                state.claims.push(claimed(&lock.key, kv)?);
            }
        }
        if let Some(limit) = state.limit() {
            (state.claims, state.odd) = state.claims.into_iter().partition(|claim| claim.limit == limit);
        }
        state.waiting = state.claims.iter().filter(|claim| claim.row.held == 0).count() as u64;
        Ok(state)
    }

    /// The limit that counts: that of a resize, of who holds, of who came first.
    pub(crate) fn limit(&self) -> Option<u64> {
        let first = self.claims.iter().min_by_key(|claim| (claim.row.held == 0, claim.row.seat));
        self.resized.map(|(limit, ..)| limit).or(first.map(|claim| claim.limit))
    }

    pub(crate) fn claim(&self, id: &ClaimId) -> Option<&Claimed> {
        self.claims.iter().find(|claim| claim.row.id == *id)
    }

    /// Whether the claim is there, in good order or not.
    pub(crate) fn has(&self, id: &ClaimId) -> bool {
        self.claims.iter().chain(&self.odd).any(|claim| claim.row.id == *id)
    }

    /// How many wait that were not looked at.
    pub(crate) fn unseen(&self) -> u64 {
        let seen = self.claims.iter().filter(|claim| claim.row.held == 0).count() as u64;
        self.waiting.saturating_sub(seen)
    }

    /// Whether somebody who was not looked at may be before this claim that waits.
    pub(crate) fn is_beyond_sight(&self, waiting: &Row) -> bool {
        let is_before = |claim: &&Claimed| claim.row.held == 0 && claim.row.seat < waiting.seat;
        self.unseen() > 0 && self.claims.iter().filter(is_before).count() >= self.front
    }

    /// Whether this claim holds, and somebody wants what it has.
    pub(crate) fn is_wanted_of(&self, id: &ClaimId) -> bool {
        let holds = self.claim(id).is_some_and(|claim| claim.row.held > 0);
        holds && self.claims.iter().any(|claim| claim.row.waits())
    }

    /// The first number that a write based on this may draw. The write's real numbers are at least as large.
    pub(crate) fn first_number(&self) -> u64 {
        first_number(self.revision + 1)
    }

    /// The book that the rule reads, and the fence that it draws from.
    pub(crate) fn book(&self) -> (Book, Fence) {
        let head = self.limit().map(|limit| {
            let growing =
                self.claims.iter().filter(|claim| claim.row.held > 0 && claim.row.waits()).count() as u64;
            let holding = self.claims.iter().filter(|claim| claim.row.held > 0).count() as u64;
            Head {
                limit,
                effective: self.resized.map_or(limit, |(_, effective, _)| effective),
                held: self.claims.iter().map(|claim| claim.row.held).sum(),
                claims: holding + self.waiting,
                waiting: growing + self.waiting,
                quiet_until: u64::MAX,
                last: 0,
                last_until: 0,
            }
        });
        let mut fence = Fence::above(self.first_number() - 1);
        self.refused.iter().for_each(|id| fence.refuse(*id, u64::MAX));
        (Book::new(head, self.claims.iter().map(|claim| claim.row.clone())), fence)
    }

    /// Runs something of the rule's on the book, and answers with what it said and the book as it is then.
    pub(crate) fn play<T>(&self, lock: &Lock, rule: impl FnOnce(&mut OpenBook<'_>) -> T) -> (T, Book) {
        let (said, book, _) = self.play_and_mark(lock, rule);
        (said, book)
    }

    /// The same, and the ids that are refused from now on.
    pub(crate) fn play_and_mark<T>(
        &self,
        lock: &Lock,
        rule: impl FnOnce(&mut OpenBook<'_>) -> T,
    ) -> (T, Book, Vec<ClaimId>) {
        let (mut book, mut fence) = self.book();
        let said = rule(&mut OpenBook::new(&lock.key, &mut book, &mut fence, 0));
        let marks = fence.refused().map(|(id, _)| id).filter(|id| !self.refused.contains(id)).collect();
        (said, book, marks)
    }

    /// The limit in force, if it is below the one that claims declare.
    pub(crate) fn lowered(&self) -> Option<u64> {
        self.resized.filter(|(limit, effective, _)| effective < limit).map(|(_, effective, _)| effective)
    }
}

fn ranged(reply: &Reply) -> Option<&Ranged> {
    match &reply.response {
        Some(Response::Range(ranged)) => Some(ranged),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Claim, Key, Units};

    use super::*;
    use crate::claiming::waiting;

    fn with_seat(seat: u64) -> Claimed {
        let claim = Claim::new(Key::new("k").unwrap(), 3, Units::Exactly(1)).unwrap();
        let row = Row { seat, ..waiting(&claim) };
        Claimed { row, limit: 3, round: 0, name: Vec::new(), modified: 1, lease: 7 }
    }

    #[test]
    fn nobody_passes_by_those_who_were_not_looked_at() {
        let claims: Vec<Claimed> = [1, 2, 9].into_iter().map(with_seat).collect();
        let state = State { claims, waiting: 5, front: 2, ..State::free() };
        let is_beyond =
            |state: &State| state.claims.iter().map(|c| state.is_beyond_sight(&c.row)).collect::<Vec<_>>();
        assert_eq!(is_beyond(&state), [false, false, true]);
        let state = State { waiting: 3, ..state };
        assert_eq!(is_beyond(&state), [false, false, false], "there is nobody in between");
    }
}
