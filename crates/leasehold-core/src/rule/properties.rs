//! What must be true after any sequence of operations, with time passing between them.

mod checks;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Outcome, Row, amend, claim, evict, pass, release, renew};
use crate::book::{Book, Fence, OpenBook};
use crate::claim::{Answer, Change, Claim, ClaimId, IfBusy, Inbox, Order, Units};
use crate::error::Result;
use crate::key::Key;

/// The limit that everybody declares, unless a step is about a conflict.
const LIMIT: u64 = 5;

/// Ids are few, so that steps meet each other's claims.
const IDS: u8 = 8;

#[derive(Clone, Debug)]
enum Step {
    Claim {
        id: u8,
        units: Units,
        if_busy: IfBusy,
        order: Order,
        lease: Option<u64>,
        delay: u64,
        limit: u64,
    },
    Renew {
        id: u8,
        lease: u64,
    },
    Units {
        id: u8,
        units: u64,
        if_busy: IfBusy,
    },
    Give {
        id: u8,
        n: u64,
        op: u64,
    },
    Value {
        id: u8,
    },
    Owner {
        id: u8,
        heir: u8,
    },
    Tail {
        id: u8,
        length: u64,
    },
    Limit {
        to: u64,
    },
    Release {
        id: u8,
        refuse: bool,
    },
    /// Evicts the n-th holder.
    Evict {
        nth: usize,
    },
    Pass,
    Wait {
        millis: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || 1..=IDS;
    let if_busy = || prop_oneof![4 => Just(IfBusy::Queue), 1 => Just(IfBusy::Leave)];
    let units = prop_oneof![
        3 => (1..=LIMIT).prop_map(Units::Exactly),
        1 => (1..=LIMIT).prop_map(Units::UpTo),
    ];
    let order = prop_oneof![6 => Just(Order::Fair), 1 => Just(Order::Barging)];
    let lease = prop_oneof![8 => (100..3000_u64).prop_map(Some), 1 => Just(None)];
    let delay = prop_oneof![4 => Just(0), 1 => 1..2000_u64];
    let limit = prop_oneof![20 => Just(LIMIT), 1 => Just(LIMIT + 1)];
    let arrival = (id(), units, if_busy(), order, lease, delay, limit).prop_map(
        |(id, units, if_busy, order, lease, delay, limit)| Step::Claim {
            id,
            units,
            if_busy,
            order,
            lease,
            delay,
            limit,
        },
    );
    let step = prop_oneof![
        10 => arrival,
        6 => (id(), 100..3000_u64).prop_map(|(id, lease)| Step::Renew { id, lease }),
        3 => (id(), 0..=LIMIT + 2, if_busy()).prop_map(|(id, units, if_busy)| Step::Units { id, units, if_busy }),
        1 => (id(), 1..3_u64, 0..4_u64).prop_map(|(id, n, op)| Step::Give { id, n, op }),
        1 => id().prop_map(|id| Step::Value { id }),
        1 => (id(), 100..110_u8).prop_map(|(id, heir)| Step::Owner { id, heir }),
        1 => (id(), 0..2000_u64).prop_map(|(id, length)| Step::Tail { id, length }),
        2 => (1..=LIMIT + 3).prop_map(|to| Step::Limit { to }),
        6 => (id(), any::<bool>()).prop_map(|(id, refuse)| Step::Release { id, refuse }),
        1 => (0..3_usize).prop_map(|nth| Step::Evict { nth }),
        1 => Just(Step::Pass),
        8 => (1..1500_u64).prop_map(|millis| Step::Wait { millis }),
    ];
    prop::collection::vec(step, 1..60)
}

/// A key, its clock, and what was seen of it so far.
struct World {
    key: Key,
    book: Book,
    fence: Fence,
    now: u64,
    /// The largest token of any grant so far.
    newest: u64,
    /// How many live holders the present step may end.
    may_end: usize,
    /// How many changes of claims were asked for.
    changes: u64,
    /// The token that the step evicts.
    evicts: Option<u64>,
    /// Who has, or had, which seat; a claim keeps its seat when it is handed over.
    seats: HashMap<u64, BTreeSet<ClaimId>>,
}

impl World {
    fn new() -> Self {
        let key = Key::new("k").unwrap();
        let (book, fence) = (Book::default(), Fence::default());
        Self {
            key,
            book,
            fence,
            now: 1_000_000,
            newest: 0,
            may_end: 0,
            changes: 0,
            evicts: None,
            seats: HashMap::new(),
        }
    }

    fn claim(&self, id: u8) -> Claim {
        let mut claim = Claim::new(self.key.clone(), LIMIT, Units::Exactly(1)).unwrap();
        claim.id = ClaimId::from_bytes([id; 16]);
        claim.inbox = Inbox(u64::from(id));
        claim.patience = Duration::from_millis(1000);
        claim.lease = Some(Duration::from_millis(2000));
        claim
    }

    /// Runs one operation and checks every law that one operation can break.
    fn operate<T: Clone>(
        &mut self,
        operation: impl FnOnce(&mut OpenBook<'_>, u64) -> Result<Outcome<T>>,
    ) -> Option<T> {
        let before = self.book.clone();
        self.fence.prune(self.now);
        let drawn = self.fence.last();
        let mut open = OpenBook::new(&self.key, &mut self.book, &mut self.fence, 0);
        let result = operation(&mut open, self.now);
        self.check_book();
        match result {
            Err(_) => {
                assert_eq!(self.book, before, "an operation that failed changed something");
                None
            }
            Ok(outcome) => {
                self.check_grants(&before, drawn, &outcome);
                self.check_nobody_was_revoked(&before);
                self.check_only_the_front_was_buried(&before);
                Some(outcome.answer)
            }
        }
    }

    fn row(&self, id: u8) -> Option<&Row> {
        self.book.rows().find(|row| row.id == ClaimId::from_bytes([id; 16]))
    }

    fn queue(book: &Book) -> Vec<Row> {
        let mut queue: Vec<Row> = book.rows().filter(|row| row.waits()).cloned().collect();
        queue.sort_by_key(|row| (row.held == 0, row.seat));
        queue
    }

    fn apply(&mut self, step: &Step) {
        self.evicts = None;
        self.may_end = match step {
            Step::Give { .. } | Step::Tail { .. } | Step::Release { .. } | Step::Evict { .. } => 1,
            _ => 0,
        };
        match step.clone() {
            Step::Claim { id, units, if_busy, order, lease, delay, limit } => {
                let mut asked = self.claim(id);
                (asked.units, asked.if_busy, asked.order, asked.limit) = (units, if_busy, order, limit);
                asked.lease = lease.map(Duration::from_millis);
                asked.lock_delay = Duration::from_millis(delay);
                asked.count = (id == IDS).then_some(3);
                let known = self.row(id).is_some();
                let earlier = Self::queue(&self.book);
                let answer = self.operate(|book, now| claim(book, &asked, now));
                if let (Some(Answer::Granted(_)), false, Order::Fair) = (answer, known, order) {
                    let effective = self.book.head().map_or(LIMIT, |head| head.effective);
                    let is_in_line = |row: &Row| row.waits() && !row.is_passed_over(effective, self.now);
                    let waits =
                        |old: &&Row| self.book.rows().any(|row| row.seat == old.seat && is_in_line(row));
                    assert!(earlier.iter().find(waits).is_none(), "a fair claim passed the queue");
                }
            }
            Step::Renew { id, lease } => {
                let mut asked = self.claim(id);
                asked.lease = Some(Duration::from_millis(lease));
                let over = self.row(id).is_none_or(|row| row.held > 0 && row.is_expired(self.now));
                let answer = self.operate(|book, now| renew(book, &asked, now));
                assert_eq!(answer == Some(Answer::Gone), over, "only what is over is gone");
            }
            Step::Units { id, units, if_busy } => {
                let mut asked = self.claim(id);
                asked.if_busy = if_busy;
                let op = self.next_change();
                let change = |to| Change::Units { to, op };
                let said = self.operate(|book, now| amend(book, &asked, &change(units), now));
                let made = self.row(id).cloned();
                if said.is_some() && made.as_ref().is_some_and(|row| row.count.is_none()) {
                    self.operate(|book, now| amend(book, &asked, &change(1), now));
                    assert_eq!(self.row(id), made.as_ref(), "a change was made twice");
                }
            }
            Step::Give { id, n, op } => {
                let token = self.row(id).map_or(0, |row| row.token);
                self.change(id, Change::Give { n, op, token });
            }
            Step::Value { id } => {
                let op = self.next_change();
                self.change(id, Change::Value { to: Arc::from([1]), op });
            }
            Step::Owner { id, heir } => {
                let heir = self.claim(heir);
                self.change(id, Change::Owner { to: Box::new(heir), refuse_for: Duration::from_millis(500) });
            }
            Step::Tail { id, length } => self.change(id, Change::Tail(Duration::from_millis(length))),
            Step::Limit { to } => self.resize(LIMIT, to),
            Step::Release { id, refuse } => {
                let refuse_for = refuse.then_some(Duration::from_millis(500));
                let id = ClaimId::from_bytes([id; 16]);
                self.operate(|book, now| release(book, &id, refuse_for, now));
                let alive = |row: &Row| row.id == id && !row.is_expired(self.now);
                assert!(!self.book.rows().any(alive), "released, and still there");
            }
            Step::Evict { nth } => {
                let mut tokens: Vec<u64> =
                    self.book.rows().filter(|row| row.held > 0).map(|row| row.token).collect();
                tokens.sort_unstable();
                if let Some(token) = tokens.get(nth).copied() {
                    self.evicts = Some(token);
                    self.operate(|book, now| evict(book, token, now));
                    assert!(!self.book.rows().any(|row| row.token == token && !row.is_expired(self.now)));
                }
            }
            Step::Pass => _ = self.operate(|book, now| pass(book, now)),
            Step::Wait { millis } => self.now += millis,
        }
    }

    /// The limit that the key is in use with.
    fn limit(&self) -> u64 {
        self.book.head().map_or(LIMIT, |head| head.limit)
    }

    fn forget_resize(&mut self) {
        (self.may_end, self.evicts) = (0, None);
        let limit = self.limit();
        self.resize(limit, limit);
    }

    /// Sets the limit, and sees that a copy of the request changes nothing.
    fn resize(&mut self, limit: u64, to: u64) {
        let asked = Claim { limit, id: ClaimId::random().unwrap(), ..self.claim(1) };
        let made = self.operate(|book, now| amend(book, &asked, &Change::Limit(to), now));
        let then = self.book.clone();
        if made.is_some() {
            self.operate(|book, now| amend(book, &asked, &Change::Limit(to + 1), now));
            assert_eq!(self.book, then, "a copy of a resize was made");
        }
    }

    fn next_change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    fn change(&mut self, id: u8, change: Change) {
        let asked = self.claim(id);
        self.operate(|book, now| amend(book, &asked, &change, now));
    }
}

fn run(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        world.apply(step);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_keeps_the_laws(steps in steps()) {
        run(&steps);
    }

    #[test]
    fn a_live_waiter_is_granted_once_the_others_are_gone(steps in steps(), units in 1..=LIMIT) {
        let mut world = run(&steps);
        world.forget_resize();
        let asked = Claim { units: Units::Exactly(units), limit: world.limit(), ..world.claim(200) };
        let mut answer = world.operate(|book, now| claim(book, &asked, now));
        // All others leave, or end: nobody renews them, and state that no process owns is released.
        for id in world.book.rows().filter(|row| row.expires.is_none()).map(|row| row.id).collect::<Vec<_>>() {
            world.may_end = 1;
            world.operate(|book, now| release(book, &id, None, now));
        }
        for _ in 0..20 {
            if let Some(Answer::Granted(grant)) = &answer {
                prop_assert_eq!(grant.units, units);
                return Ok(());
            }
            world.now += 500;
            answer = world.operate(|book, now| renew(book, &asked, now));
        }
        prop_assert!(false, "still {:?}", answer);
    }

    #[test]
    fn nothing_is_left_when_everybody_is_gone(steps in steps()) {
        let mut world = run(&steps);
        world.forget_resize();
        for id in world.book.rows().filter(|row| row.expires.is_none()).map(|row| row.id).collect::<Vec<_>>() {
            world.may_end = 1;
            world.operate(|book, now| release(book, &id, None, now));
        }
        // Longer than any lease here, and than late copies are refused.
        world.now += 10_000;
        world.operate(|book, now| pass(book, now));
        world.now += 60_000;
        world.operate(|book, now| pass(book, now));
        prop_assert!(world.book.is_empty(), "{:?}", world.book);
        world.fence.prune(world.now);
        prop_assert_eq!(world.fence.refused().count(), 0);
    }
}
