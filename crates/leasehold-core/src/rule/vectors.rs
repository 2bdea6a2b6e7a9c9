//! The reference against the golden vectors.

use std::collections::HashSet;
use std::time::Duration;

use super::golden::{BASE, Case, Op, Promoted, Said, Seen, load};
use super::{Outcome, amend, claim, evict, release, renew, snapshot};
use crate::book::{Book, Fence, OpenBook};
use crate::error::Result;
use crate::key::Key;
use crate::record::format::State;

/// Any moment will do: the cases are relative to it.
const NOW: u64 = 1_000_000_000;

#[test]
fn the_reference_passes_every_vector() {
    let wrong: Vec<String> =
        load().iter().filter_map(|case| case.verify(&perform(case).0, 0).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_failed_operation_changes_nothing() {
    for case in load().iter().filter(|case| matches!(case.answer, Said::Error(_))) {
        assert!(case.after.is_none(), "{}: a refused operation must not change the state", case.name);
    }
}

#[test]
fn every_vector_leaves_counters_that_add_up() {
    for case in load() {
        let (_, book, fence) = perform(&case);
        assert_eq!(State::of(&book, &fence, NOW).book(NOW), book, "{}", case.name);
    }
}

#[test]
fn names_and_numbers_are_unique() {
    let cases = load();
    let names: HashSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have the same name");
    for case in &cases {
        let numbers = case.state.claims.iter().flat_map(|claim| [claim.seat, claim.token]);
        let newest = numbers.max().unwrap_or(BASE);
        assert!(newest <= case.fence, "{}: a number above the fence", case.name);
    }
}

fn perform(case: &Case) -> (Seen, Book, Fence) {
    let key = Key::new("vector").unwrap();
    let mut book = case.state.book(NOW);
    let mut fence = Fence::above(case.fence).born(case.age.map_or(0, |age| NOW - age));
    for (id, until) in &case.state.refused {
        fence.refuse(id.0, NOW.saturating_add_signed(*until));
    }
    let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
    let (answer, promoted, ended) = match &case.op {
        Op::Claim(asked) => parts(claim(&mut ledger, &asked.claim(&key), NOW), Said::answer),
        Op::Renew(asked) => parts(renew(&mut ledger, &asked.claim(&key), NOW), Said::answer),
        Op::Amend { claim, change } => {
            parts(amend(&mut ledger, &claim.claim(&key), &change.change(&key), NOW), Said::answer)
        }
        Op::Release { id, refuse_for } => {
            let refuse_for = refuse_for.map(Duration::from_millis);
            parts(release(&mut ledger, &id.0, refuse_for, NOW), Said::released)
        }
        Op::Evict { token } => parts(evict(&mut ledger, *token, NOW), Said::evicted),
        Op::Inspect => parts(snapshot(&mut ledger, NOW), Said::shows),
    };
    let seen = Seen {
        answer,
        promoted: Some(promoted),
        ended: Some(ended),
        after: Some(State::of(&book, &fence, NOW)),
        fence: Some(fence.last()),
    };
    (seen, book, fence)
}

fn parts<T>(
    outcome: Result<Outcome<T>>,
    said: impl Fn(&Result<T>) -> Said,
) -> (Said, Vec<Promoted>, Vec<u64>) {
    match outcome {
        Err(error) => (said(&Err(error)), Vec::new(), Vec::new()),
        Ok(Outcome { answer, promoted, ended }) => {
            let promoted = promoted.iter().map(Promoted::from).collect();
            (said(&Ok(answer)), promoted, ended.iter().map(|inbox| inbox.0).collect())
        }
    }
}
