//! What the claim of a lock that nobody uses comes to.
//!
//! The rule decides here as everywhere. About a lock that nobody uses it can be asked before the database is: only the time
//! and the number are missing, which are put in when the lock's row is ours.

use leasehold_core::rule::{self, Head, Row as Stored};
use leasehold_core::{Answer, Book, Claim, ClaimId, Fence, Grant, Key, OpenBook};

use crate::rows;
use crate::sql::{NOW, bytes};

/// Stand for the time and the number until they are known.
const THEN: u64 = 1 << 40;
const DRAWN: u64 = 1 << 50;

/// A claim that is granted if nobody uses its lock.
#[derive(Debug)]
pub(crate) struct Sketch {
    pub(crate) key: Key,
    /// The largest number with which it may not be granted.
    pub(crate) above: u64,
    head: Head,
    row: Stored,
    grant: Grant,
}

impl Sketch {
    /// `None` for a claim about which nothing can be said yet.
    pub(crate) fn of(claim: &Claim) -> Option<Self> {
        if claim.quorum.is_some() {
            return None;
        }
        let (mut book, mut fence) = (Book::default(), Fence::above(DRAWN - 1));
        let asked = Claim { token_above: 0, ..claim.clone() };
        let said =
            rule::claim(&mut OpenBook::new(&claim.key, &mut book, &mut fence, 0), &asked, THEN).ok()?;
        let Answer::Granted(grant) = said.answer else { return None };
        let (head, row) = (book.head()?.clone(), book.rows().next()?.clone());
        if (row.seat, row.token) != (DRAWN, DRAWN) {
            return None;
        }
        Some(Self { key: claim.key.clone(), above: claim.token_above, head, row, grant })
    }

    pub(crate) fn id(&self) -> &ClaimId {
        &self.row.id
    }

    /// How many bytes it has that the user chose, besides its name.
    pub(crate) fn weight(&self) -> usize {
        self.row.label.len() + self.row.value.len()
    }

    /// The lock's name as it is written.
    pub(crate) fn name(&self) -> String {
        bytes(self.key.as_str().as_bytes())
    }

    /// The columns of the lock after its name, by the database's clock.
    pub(crate) fn head(&self) -> String {
        rows::head_values(&self.head, by_clock)
    }

    /// The columns of the claim after its name, by the database's clock, with a number that it has drawn.
    pub(crate) fn row(&self, drawn: &str) -> String {
        rows::values(&self.row, by_clock, |_| drawn.to_owned())
    }

    /// The same when time and number are known.
    pub(crate) fn row_at(&self, now: u64, number: u64) -> String {
        let time =
            |at: u64| rows::number(if (THEN..u64::MAX).contains(&at) { now + (at - THEN) } else { at });
        rows::values(&self.row, time, |_| rows::number(number))
    }

    /// What it is granted with a number.
    pub(crate) fn granted(&self, number: u64) -> Grant {
        Grant { seat: number, token: number, ..self.grant.clone() }
    }
}

/// A time that is so long after the database's.
fn by_clock(at: u64) -> String {
    if (THEN..u64::MAX).contains(&at) { format!("{NOW} + {}", at - THEN) } else { rows::number(at) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Units, WHOLE};

    use super::*;

    fn claims() -> Vec<Claim> {
        let new = |limit, units| Claim::new(Key::new("k").expect("a name"), limit, units).expect("it fits");
        vec![
            new(1, Units::Exactly(1)),
            new(5, Units::UpTo(9)),
            Claim { lock_delay: Duration::from_secs(5), ..new(5, Units::Exactly(2)) },
            Claim { lease: None, count: Some(3), ..new(WHOLE, Units::Exactly(WHOLE)) },
        ]
    }

    #[test]
    fn a_lock_with_one_claim_is_gone_after_its_release_by_the_rule_too() {
        for claim in claims() {
            let (mut book, mut fence) = (Book::default(), Fence::default());
            let mut ledger = OpenBook::new(&claim.key, &mut book, &mut fence, 0);
            rule::claim(&mut ledger, &claim, THEN).unwrap();
            rule::release(&mut ledger, &claim.id, None, THEN + 1).unwrap();
            assert!(book.is_empty(), "{claim:?}");
        }
    }

    #[test]
    fn everything_that_depends_on_the_database_is_left_to_it() {
        for claim in claims() {
            let sketch = Sketch::of(&claim).expect("it can be granted");
            let written = [sketch.head(), sketch.row("DRAWN"), sketch.row_at(1_700_000_000_000, 7)];
            for stand_in in [THEN, DRAWN] {
                assert!(!written.concat().contains(&stand_in.to_string()), "{written:?}");
            }
            let grant = sketch.granted(7);
            assert_eq!((grant.seat, grant.token), (7, 7));
        }
    }

    #[test]
    fn what_is_written_later_is_what_the_rule_says_then() {
        for claim in claims() {
            let (now, number) = (1_700_000_000_000, 7);
            let (mut book, mut fence) = (Book::default(), Fence::above(number - 1));
            let mut ledger = OpenBook::new(&claim.key, &mut book, &mut fence, 0);
            let Answer::Granted(grant) = rule::claim(&mut ledger, &claim, now).unwrap().answer else {
                panic!("it is free")
            };
            let sketch = Sketch::of(&claim).expect("it can be granted");
            let row = book.rows().next().expect("it was granted");
            assert_eq!(sketch.row_at(now, number), rows::values(row, rows::number, rows::number));
            assert_eq!(sketch.granted(number), grant);
        }
    }
}
