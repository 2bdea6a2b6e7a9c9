//! A ledger in memory: what the memory store keeps per key, and what a record store writes as one record.

use std::collections::{BTreeMap, BTreeSet};

use crate::claim::ClaimId;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::rule::{Head, Ledger, Row};

/// The claims of one key.
///
/// ```
/// use leasehold_core::{Answer, Book, Claim, Fence, Key, OpenBook, Units, rule};
/// let (key, mut book, mut fence) = (Key::new("orders/42")?, Book::default(), Fence::default());
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// let now = 1_000; // in milliseconds; the rule knows no clock
/// let granted = rule::claim(&mut OpenBook::new(&key, &mut book, &mut fence, 0), &claim, now)?;
/// assert!(matches!(granted.answer, Answer::Granted(_)));
/// rule::release(&mut OpenBook::new(&key, &mut book, &mut fence, 0), &claim.id, None, now)?;
/// assert!(book.is_empty()); // nothing is left of a key that nobody claims
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    head: Option<Head>,
    rows: BTreeMap<ClaimId, Row>,
    /// Who waits, in order: those who hold already and want more, then by seat.
    queue: BTreeMap<(bool, u64), ClaimId>,
    /// Who holds with an end, by that end.
    ends: BTreeSet<(u64, ClaimId)>,
}

impl Book {
    /// A book with these contents.
    pub fn new(head: Option<Head>, rows: impl IntoIterator<Item = Row>) -> Self {
        let mut book = Self { head, ..Self::default() };
        for row in rows {
            book.insert(row);
        }
        book
    }

    /// The resource's own row.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// All claims, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Whether nothing is left to remember.
    pub fn is_empty(&self) -> bool {
        self.head.is_none() && self.rows.is_empty()
    }

    fn insert(&mut self, row: Row) {
        self.delete(&row.id);
        if row.waits() {
            self.queue.insert((row.held == 0, row.seat), row.id);
        }
        if let (1.., Some(at)) = (row.held, row.frees_at()) {
            self.ends.insert((at, row.id));
        }
        self.rows.insert(row.id, row);
    }

    fn delete(&mut self, id: &ClaimId) {
        if let Some(row) = self.rows.remove(id) {
            self.queue.remove(&(row.held == 0, row.seat));
            if let Some(at) = row.frees_at() {
                self.ends.remove(&(at, row.id));
            }
        }
    }
}

/// What the keys of a store share: the fence, and the ids that are refused.
///
/// ```
/// use leasehold_core::Fence;
/// assert_eq!(Fence::above(41).last(), 41);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    last: u64,
    born: u64,
    refused: BTreeMap<ClaimId, u64>,
    refusals: BTreeSet<(u64, ClaimId)>,
}

impl Fence {
    /// A fence whose next number is above `last`.
    pub fn above(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// The same fence of a store that has forgotten nothing since then.
    #[must_use]
    pub fn born(self, at: u64) -> Self {
        Self { born: at, ..self }
    }

    /// The last number given out.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The ids that are refused, and until when.
    pub fn refused(&self) -> impl Iterator<Item = (ClaimId, u64)> + '_ {
        self.refusals.iter().map(|(until, id)| (*id, *until))
    }

    /// Whether an id is refused, or was and nobody has [pruned](Self::prune) since.
    pub(crate) fn refuses(&self, id: &ClaimId) -> bool {
        self.refused.contains_key(id)
    }

    /// Forgets refusals that are over.
    pub fn prune(&mut self, now: u64) {
        while let Some((until, id)) = self.refusals.first().copied().filter(|(until, _)| *until <= now) {
            self.refusals.remove(&(until, id));
            self.refused.remove(&id);
        }
    }

    /// Refuses an id until then.
    pub fn refuse(&mut self, id: ClaimId, until: u64) {
        if let Some(earlier) = self.refused.insert(id, until) {
            self.refusals.remove(&(earlier, id));
        }
        self.refusals.insert((until, id));
    }
}

/// One key's book and the store's fence, open for one operation.
///
/// ```
/// use leasehold_core::rule::Ledger;
/// use leasehold_core::{Book, Fence, Key, OpenBook};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::above(41));
/// assert_eq!(OpenBook::new(&key, &mut book, &mut fence, 0).number(0)?, 42);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct OpenBook<'a> {
    key: &'a Key,
    book: &'a mut Book,
    fence: &'a mut Fence,
    /// The next number is at least this: the time, on stores that may forget.
    floor: u64,
    /// No claim can ask for a number above this: the time and a bound, on stores whose numbers follow a
    /// clock.
    ceiling: u64,
}

impl<'a> OpenBook<'a> {
    /// Opens a book. Numbers drawn are at least `floor`.
    pub fn new(key: &'a Key, book: &'a mut Book, fence: &'a mut Fence, floor: u64) -> Self {
        Self { key, book, fence, floor, ceiling: u64::MAX }
    }

    /// Refuses claims that ask for a number above `ceiling`. Without this, a claim can ask for any number.
    #[must_use]
    pub fn up_to(self, ceiling: u64) -> Self {
        Self { ceiling, ..self }
    }
}

impl Ledger for OpenBook<'_> {
    fn key(&self) -> &Key {
        self.key
    }

    fn head(&mut self) -> Result<Option<Head>> {
        Ok(self.book.head.clone())
    }

    fn put_head(&mut self, head: Option<&Head>) -> Result<()> {
        self.book.head = head.cloned();
        Ok(())
    }

    fn row(&mut self, id: &ClaimId) -> Result<Option<Row>> {
        Ok(self.book.rows.get(id).cloned())
    }

    fn holder(&mut self, token: u64) -> Result<Option<Row>> {
        Ok(self.book.rows().find(|row| row.held > 0 && row.token == token).cloned())
    }

    fn put(&mut self, row: &Row) -> Result<()> {
        self.book.insert(row.clone());
        Ok(())
    }

    fn remove(&mut self, row: &Row) -> Result<()> {
        self.book.delete(&row.id);
        Ok(())
    }

    fn front(&mut self, effective: u64, now: u64) -> Result<Option<Row>> {
        let mut waiting = self.book.queue.values().filter_map(|id| self.book.rows.get(id));
        Ok(waiting.find(|row| !row.is_passed_over(effective, now)).cloned())
    }

    fn ahead(&mut self, row: &Row, at_most: u64) -> Result<u64> {
        let before = self.book.queue.range(..(row.held == 0, row.seat));
        Ok(before.take(usize::try_from(at_most).unwrap_or(usize::MAX)).count() as u64)
    }

    fn ended(&mut self, now: u64, at_most: usize) -> Result<Vec<Row>> {
        let over = self.book.ends.iter().take_while(|(at, _)| *at <= now).take(at_most);
        Ok(over.filter_map(|(_, id)| self.book.rows.get(id)).cloned().collect())
    }

    fn next_end(&mut self) -> Result<Option<u64>> {
        Ok(self.book.ends.first().map(|(at, _)| *at))
    }

    fn rows(&mut self) -> Result<Vec<Row>> {
        Ok(self.book.rows().cloned().collect())
    }

    fn refuse(&mut self, id: &ClaimId, until: u64) -> Result<()> {
        self.fence.refuse(*id, until);
        Ok(())
    }

    fn is_refused(&mut self, id: &ClaimId, now: u64) -> Result<bool> {
        Ok(self.fence.refused.get(id).is_some_and(|until| *until > now))
    }

    fn number(&mut self, above: u64) -> Result<u64> {
        if above >= self.ceiling && above > self.fence.last.max(self.floor) {
            let message = "the claim asks for a token that is too far ahead of the clock, which was perhaps set back: \
                           set it right, or wait until it has caught up";
            return Err(Error::new(ErrorKind::Unavailable, message).on(self.key));
        }
        let next = self.fence.last.max(above).checked_add(1).ok_or_else(|| {
            let message = format!("no number is above {above}: the claim's token_above is out of range");
            Error::new(ErrorKind::Invalid, message).on(self.key)
        })?;
        self.fence.last = next.max(self.floor);
        Ok(self.fence.last)
    }

    fn born(&mut self) -> Result<u64> {
        Ok(self.fence.born)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Answer, Claim, QuorumTerms, Units};
    use crate::rule;
    use std::time::Duration;

    const CLOCK: u64 = 1_000_000_000;
    const CEILING: u64 = CLOCK + 60_000_000;

    #[test]
    fn claim_cannot_draw_a_number_above_the_ceiling() {
        let (key, mut book, mut fence) = (Key::new("k").unwrap(), Book::default(), Fence::default());
        let mut open = OpenBook::new(&key, &mut book, &mut fence, CLOCK).up_to(CEILING);
        assert_eq!(open.number(0).unwrap(), CLOCK);
        for above in [CEILING, CEILING + 1, u64::MAX] {
            assert_eq!(open.number(above).unwrap_err().kind(), ErrorKind::Unavailable, "{above}");
        }
        assert_eq!(open.number(0).unwrap(), CLOCK + 1, "a refused claim moves nothing");
        assert_eq!(open.number(CEILING - 1).unwrap(), CEILING);
        // Each grant needs a number, also when the clock was set back.
        assert_eq!(open.number(0).unwrap(), CEILING + 1);
        assert_eq!(open.number(CEILING).unwrap(), CEILING + 2);
    }

    #[test]
    fn hold_of_a_quorum_can_be_evicted_although_its_token_is_above_the_ceiling() {
        let (key, mut book, mut fence) = (Key::new("k").unwrap(), Book::default(), Fence::default());
        let mut open = OpenBook::new(&key, &mut book, &mut fence, CLOCK).up_to(CEILING);
        let terms = QuorumTerms { keep: Duration::ZERO, min_age: Duration::ZERO, again: false };
        let claim = Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap();
        let claim = Claim { token_above: CEILING * 2, quorum: Some(terms), ..claim };
        let Answer::Granted(grant) = rule::claim(&mut open, &claim, 1_000).unwrap().answer else {
            panic!("the lock is free")
        };
        assert_eq!(grant.token, CEILING * 2 + 1);
        assert!(rule::evict(&mut open, grant.token, 2_000).unwrap().answer);
        assert!(fence.last() < CEILING, "the token of a quorum has moved the store's own numbers");
    }
}
