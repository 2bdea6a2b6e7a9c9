//! What every step must leave true.

use super::World;
use crate::book::Book;
use crate::claim::ClaimId;
use crate::rule::{Head, Outcome, Row};

impl World {
    /// The head is the sum of the rows, and its quiet time is never too late.
    pub(super) fn check_book(&self) {
        let rows: Vec<&Row> = self.book.rows().collect();
        let Some(head) = self.book.head() else {
            assert!(rows.is_empty(), "claims without a resource");
            return;
        };
        let summed = Head {
            held: rows.iter().map(|row| row.held).sum(),
            claims: rows.len() as u64,
            waiting: rows.iter().filter(|row| row.waits()).count() as u64,
            ..head.clone()
        };
        assert_eq!(*head, summed, "the head does not add up");
        assert!(head.claims > 0 || head.effective != head.limit, "nothing to remember, but remembered");
        let next_end = rows.iter().filter(|row| row.held > 0).filter_map(|row| row.frees_at()).min();
        assert!(head.quiet_until <= next_end.unwrap_or(u64::MAX), "quiet for too long");
    }

    /// Exclusion, order, tokens and seats.
    pub(super) fn check_grants<T>(&mut self, before: &Book, drawn: u64, outcome: &Outcome<T>) {
        let was = |id: &ClaimId| before.rows().find(|row| row.id == *id);
        let mut granted: Vec<Row> = self
            .book
            .rows()
            .filter(|row| row.held > 0 && was(&row.id).is_none_or(|old| old.token != row.token))
            .filter(|row| row.token > drawn)
            .cloned()
            .collect();
        granted.sort_by_key(|row| row.token);
        for row in &granted {
            assert!(row.token > self.newest, "a token that does not rise");
            self.newest = row.token;
        }
        let grew = granted.iter().any(|row| row.held > was(&row.id).map_or(0, |old| old.held));
        // A hand-over is a grant that takes nothing from anybody.
        let handed_over =
            granted.iter().any(|row| before.rows().any(|old| old.seat == row.seat && old.id != row.id));
        if let Some(head) = self.book.head().filter(|_| grew && !handed_over) {
            assert!(head.held <= head.effective, "a grant beyond the limit");
        }
        for promotion in &outcome.promoted {
            let row = self.book.rows().find(|row| row.seat == promotion.seat);
            let row = row.expect("a promoted claim is there");
            assert_eq!((row.token, row.held), (promotion.token, promotion.units), "a promotion that lies");
            assert!(before.rows().any(|old| old.seat == row.seat && old.waits()), "promoted without waiting");
            let old = before.rows().find(|old| old.id == row.id);
            assert_eq!(old.map(|old| old.expires), Some(row.expires), "a promotion moved a lease");
        }
        // Who was promoted stood before everybody who still waits.
        let effective = self.book.head().map_or(0, |head| head.effective);
        let mut waiting = Self::queue(&self.book);
        // Who asks for more than there is was passed over.
        waiting.retain(|row| !row.is_passed_over(effective, self.now));
        for old in Self::queue(before) {
            let promoted = outcome.promoted.iter().any(|promotion| promotion.seat == old.seat);
            let stood_before = |row: &Row| {
                row.waits() && (row.held == 0, row.seat) < (old.held == 0, old.seat) && row.seat != old.seat
            };
            // Who got some in the same step, and then asked for more, was not passed.
            let ungranted =
                |row: &&Row| was(&row.id).is_some_and(|old| stood_before(old) && old.held == row.held);
            let passed = waiting.iter().find(ungranted);
            assert!(!promoted || passed.is_none(), "{:?} was promoted past {passed:?}", old.seat);
        }
        for row in self.book.rows() {
            let owners = self.seats.entry(row.seat).or_default();
            owners.insert(row.id);
            let is_new = was(&row.id).is_none_or(|old| old.seat != row.seat);
            let inherited = before.rows().any(|old| old.seat == row.seat);
            assert!(!is_new || inherited || (owners.len() == 1 && row.seat > drawn), "a seat was used again");
        }
    }

    /// Who held and was not over still holds, unless the step was about it.
    pub(super) fn check_nobody_was_revoked(&self, before: &Book) {
        let missing =
            before.rows().filter(|old| old.held > 0 && old.frees_at().is_none_or(|at| at > self.now));
        let missing = missing.filter(|old| !self.book.rows().any(|row| row.seat == old.seat && row.held > 0));
        assert!(missing.count() <= self.may_end, "more holders ended than the one that the step was about");
    }

    /// A waiter that disappeared left, was promoted, or had expired and nobody live waited before it.
    pub(super) fn check_only_the_front_was_buried(&self, before: &Book) {
        let is_evicted_latch = |row: &Row| row.count.is_some() && Some(row.token) == self.evicts;
        let holds = |row: &Row| row.frees_at().is_none_or(|at| at > self.now);
        if before.rows().any(|row| row.held > 0 && is_evicted_latch(row) && holds(row)) {
            // With a latch go those who wait for it.
            let waits = self.book.rows().any(|row| row.held == 0);
            assert!(!waits, "somebody waits for a latch that is gone");
            return;
        }
        let queue = Self::queue(before);
        let gone = |old: &&Row| !self.book.rows().any(|row| row.seat == old.seat);
        let buried: Vec<&Row> = queue.iter().filter(gone).filter(|old| old.held == 0).collect();
        assert!(
            buried.iter().filter(|old| !old.is_expired(self.now)).count() <= 1,
            "a live waiter was buried"
        );
        for old in buried {
            let effective = self.book.head().map_or(0, |head| head.effective);
            let is_passed_over = |row: &Row| row.is_passed_over(effective, self.now);
            let still_waits =
                |row: &&Row| row.seat < old.seat && row.held == 0 && row.waits() && !is_passed_over(row);
            let ahead = self.book.rows().find(still_waits);
            // The one that the step is about may leave from anywhere.
            let others = queue.iter().filter(gone).filter(|other| other.seat > old.seat).count();
            assert!(ahead.is_none() || others == 0, "buried behind somebody who waits");
        }
    }
}
