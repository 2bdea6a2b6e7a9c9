//! What has to be written so that a decision of the rule comes true, and on what condition.

use std::collections::BTreeSet;

use leasehold_core::rule::{Outcome, Row};
use leasehold_core::{Book, ClaimId, Promotion};

use crate::format::{Claimed, limit_value, value};
use crate::inbox::Note;
use crate::names::{Label, Lock, Names, Standing};
use crate::state::State;
use crate::wire::message::{Compare, Op};
use crate::words::{delete, is_absent, is_of, is_unchanged_since, put};

/// How many clients are told at once of what they lost: a transaction has room for so many conditions. The others hear
/// of it when they ask next.
const MOST_TOLD: usize = 32;

/// What a claim that is not stored yet brings along.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrival {
    /// The lease that carries its key; 0 for none.
    pub(crate) lease: i64,
    /// What it is called on that; `None` when no session carries it.
    pub(crate) label: Option<Label>,
    pub(crate) limit: u64,
    pub(crate) round: u64,
    /// The lease of the mark that refuses late copies of it, if that is left as soon as it comes; 0 for none. When its own
    /// lease ends there is nobody to leave one.
    pub(crate) mark: i64,
}

/// A decision, ready to be written.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) compare: Vec<Compare>,
    pub(crate) ops: Vec<Op>,
    /// It passes by those who were not looked at, and must not be carried out.
    pub(crate) overreaches: bool,
    /// Ids that are refused from now on.
    pub(crate) marks: Vec<ClaimId>,
}

impl Plan {
    /// From what is stored to what the rule made of it.
    pub(crate) fn new<T>(
        names: &Names,
        lock: &Lock,
        state: &State,
        book: &Book,
        outcome: &Outcome<T>,
        arrival: &Arrival,
    ) -> Self {
        let mut plan = Self::default();
        let first = state.first_number();
        for row in book.rows() {
            let row = Row { expires: None, ..row.clone() };
            let before = state.claim(&row.id);
            if before.is_some_and(|claim| claim.row == row) {
                continue;
            }
            let label = match (before, &arrival.label) {
                (Some(claim), _) => Label::of_name(&claim.name),
                (None, Some(label)) => label.clone(),
                (None, None) => Label::of_id(&row.id),
            };
            let name = lock.claim(Standing::of(&row), &label);
            let (lease, round) =
                before.map_or((arrival.lease, arrival.round), |claim| (claim.lease, claim.round));
            let limit = book.head().map_or(arrival.limit, |head| head.limit);
            plan.overreaches |= before.is_some_and(|claim| {
                claim.row.held == 0 && row.held > 0 && state.is_beyond_sight(&claim.row)
            });
            match before {
                Some(claim) => plan.touch(claim, Some(&name)),
                None => {
                    plan.compare.extend([is_absent(&names.refused(&row.id)), is_absent(&name)]);
                    if arrival.mark != 0 {
                        plan.ops.push(put(names.refused(&row.id), Vec::new(), arrival.mark));
                    }
                }
            }
            plan.ops.push(put(name, value(&row, limit, round, first), lease));
        }
        for claim in &state.claims {
            if book.rows().all(|row| row.id != claim.row.id) {
                plan.touch(claim, None);
            }
        }
        plan.note_limit(lock, state, book);
        plan.note_inboxes(names, lock, state, outcome);
        if !plan.ops.is_empty() {
            plan.compare.push(is_unchanged_since(&lock.held(), state.revision));
            // That does not notice a key that has gone. A holder that has gone only frees units, but without the key of
            // a resize another limit is in force.
            if let Some((.., modified)) = state.resized {
                plan.compare.push(is_of(&lock.limit(), modified));
            }
        }
        plan
    }

    /// Something about this claim changes; its key goes, unless it keeps its name.
    fn touch(&mut self, claim: &Claimed, name: Option<&[u8]>) {
        // Who waits and goes may have gone already, and cannot have been promoted: that would change who holds.
        if name.is_some() || claim.row.held > 0 {
            self.depend_on(claim);
        }
        if name != Some(&claim.name) {
            self.ops.push(delete(claim.name.clone()));
        }
    }

    fn depend_on(&mut self, claim: &Claimed) {
        let condition = is_of(&claim.name, claim.modified);
        if !self.compare.contains(&condition) {
            self.compare.push(condition);
        }
    }

    fn note_limit(&mut self, lock: &Lock, state: &State, book: &Book) {
        let before = state.resized.map(|(limit, effective, _)| (limit, effective));
        let after =
            book.head().filter(|head| head.effective != head.limit).map(|head| (head.limit, head.effective));
        match after {
            _ if after == before => {}
            Some((limit, effective)) => self.ops.push(put(lock.limit(), limit_value(limit, effective), 0)),
            None => self.ops.push(delete(lock.limit())),
        }
    }

    /// Notifies the clients whose claims were granted, ended or asked for.
    fn note_inboxes<T>(&mut self, names: &Names, lock: &Lock, state: &State, outcome: &Outcome<T>) {
        let mut notes = BTreeSet::new();
        let concerned = |seat: &dyn Fn(&Row) -> bool| {
            state.claims.iter().find(|claim| seat(&claim.row) && claim.lease != 0)
        };
        for Promotion { inbox, seat, .. } in &outcome.promoted {
            notes.extend(concerned(&|row| row.seat == *seat).map(|claim| (*inbox, claim.lease)));
        }
        for inbox in outcome.ended.iter().take(MOST_TOLD) {
            // The note lives on a lease of that client, which must be there now.
            let Some(claim) = concerned(&|row| row.inbox == *inbox) else { continue };
            self.depend_on(claim);
            notes.insert((*inbox, claim.lease));
        }
        let note = Note::on(&lock.key).text();
        for (inbox, lease) in notes {
            self.ops.push(put(names.inbox(inbox, lease), note.clone(), lease));
        }
    }
}
