//! The functions against the rule in memory: the same operations give the same answers, tell the same clients and
//! leave the same claims.

use std::time::Duration;

use leasehold_core::rule::golden::{Said, State};
use leasehold_core::rule::{self, Outcome};
use leasehold_core::{
    Book, Change, Claim, ClaimId, Extend, Fence, IfBusy, Inbox, Key, OpenBook, Order, Promotion, QuorumTerms,
    Result, Units,
};

use super::Asked;
use super::server::{After, EPOCH, Server};

/// Above every clock in microseconds: both sides then draw the last number plus one.
const BASE: u64 = 5_000_000_000_000_000;
const SEQUENCES: u64 = 25;
const STEPS: u64 = 160;

/// What an operation did, as far as anybody can see.
#[derive(Debug, PartialEq)]
struct Seen {
    answer: String,
    promoted: Vec<Promotion>,
    ended: Vec<Inbox>,
    state: State,
    last: u64,
}

/// The lock in memory.
struct Model {
    book: Book,
    fence: Fence,
}

impl Model {
    fn perform(&mut self, op: &Asked, key: &Key, now: u64) -> Seen {
        self.fence.prune(now);
        let mut ledger = OpenBook::new(key, &mut self.book, &mut self.fence, 0);
        let (said, promoted, ended) = match op {
            Asked::Claim(claim) => parts(rule::claim(&mut ledger, claim, now), Said::answer),
            Asked::Renew(claim) => parts(rule::renew(&mut ledger, claim, now), Said::answer),
            Asked::Amend(claim, change) => parts(rule::amend(&mut ledger, claim, change, now), Said::answer),
            Asked::Release(claim, refuse_for) => {
                parts(rule::release(&mut ledger, &claim.id, *refuse_for, now), Said::released)
            }
            Asked::Evict(token) => parts(rule::evict(&mut ledger, *token, now), Said::evicted),
            Asked::Inspect => parts(rule::snapshot(&mut ledger, now), Said::shows),
        };
        let state = State::of(&self.book, &self.fence, now);
        Seen { answer: format!("{said:?}"), promoted, ended, state, last: self.fence.last() }
    }
}

fn parts<T>(
    result: Result<Outcome<T>>,
    said: impl Fn(&Result<T>) -> Said,
) -> (Said, Vec<Promotion>, Vec<Inbox>) {
    match result {
        Ok(Outcome { answer, promoted, ended }) => (said(&Ok(answer)), promoted, ended),
        Err(error) => (said(&Err(error)), Vec::new(), Vec::new()),
    }
}

fn perform(server: &mut Server, op: &Asked, now: u64) -> Seen {
    let (said, After { book, fence, promoted, ended }) = op.ask(server, now);
    let state = State::of(&book, &fence, now);
    Seen { answer: format!("{said:?}"), promoted, ended, state, last: fence.last() }
}

struct Plan {
    random: fastrand::Rng,
    key: Key,
    limit: u64,
    quorum: bool,
}

impl Plan {
    fn new(seed: u64, key: Key) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (limit, quorum) = (random.u64(1..=4), random.u8(0..4) == 0);
        Self { random, key, limit, quorum }
    }

    fn once_in(&mut self, n: u8) -> bool {
        self.random.u8(0..n) == 0
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    /// An id that no earlier claim had.
    fn id(&mut self) -> ClaimId {
        ClaimId::from_bytes(self.random.u128(..).to_be_bytes())
    }

    fn claim(&mut self) -> Claim {
        let n = self.random.u8(0..10);
        let limit = if self.once_in(30) { self.limit + 1 } else { self.limit };
        let most = self.random.u64(1..=self.limit);
        let units = if self.once_in(4) { Units::UpTo(most) } else { Units::Exactly(most) };
        let mut claim = Claim::new(self.key.clone(), limit, units).unwrap();
        claim.id = ClaimId::from_bytes([n + 1; 16]);
        claim.inbox = Inbox(u64::MAX - u64::from(n / 2));
        claim.label = format!("worker {n}").into();
        claim.if_busy = if self.once_in(4) { IfBusy::Leave } else { IfBusy::Queue };
        claim.order = if self.once_in(6) { Order::Barging } else { Order::Fair };
        claim.lease = if self.once_in(8) { None } else { Some(self.millis(5..60)) };
        claim.patience = self.millis(5..40);
        claim.lock_delay = if self.random.bool() { Duration::ZERO } else { self.millis(0..20) };
        claim.count = if self.once_in(5) { Some(self.random.u64(1..5)) } else { None };
        if claim.count.is_some() && !self.once_in(4) {
            // Another latch, another id: that of one that has ended is refused.
            claim.id = self.id();
        }
        claim.value = if self.once_in(5) { vec![n; usize::from(n)].into() } else { [].into() };
        if self.quorum && self.once_in(2) {
            let (keep, min_age) = (self.millis(0..50), self.millis(0..30));
            claim.quorum = Some(QuorumTerms { keep, min_age, again: self.once_in(3) });
            claim.token_above = self.random.u64(0..20);
        } else if self.once_in(10) {
            claim.token_above = BASE + self.random.u64(0..500);
        }
        claim
    }

    fn change(&mut self, holder: u64) -> Change {
        match self.random.u8(0..10) {
            0..=3 => Change::Units { to: self.random.u64(0..=self.limit + 1), op: self.random.u64(0..6) },
            4 => Change::Give { n: self.random.u64(0..3), op: self.random.u64(0..4), token: holder },
            5 => Change::Tail(self.millis(0..30)),
            6 => Change::Limit(self.random.u64(1..=self.limit + 1)),
            7 => Change::Value { to: vec![self.random.u8(..)].into(), op: self.random.u64(0..6) },
            8 => Change::Ask(holder),
            _ => {
                let mut heir = self.claim();
                // A new owner brings a new secret, unless its request is repeated.
                if self.random.bool() {
                    heir.id = ClaimId::from_bytes(self.random.u128(..).to_be_bytes());
                }
                Change::Owner { to: Box::new(heir), refuse_for: self.millis(0..40) }
            }
        }
    }

    fn next(&mut self, book: &Book) -> Asked {
        let mut claim = self.claim();
        let holders: Vec<u64> = book.rows().filter(|row| row.held > 0).map(|row| row.token).collect();
        let holder = self.random.choice(holders).unwrap_or(7);
        match self.random.u8(0..20) {
            0..=7 => Asked::Claim(claim),
            8..=10 => {
                if self.once_in(4) {
                    claim.extend = Extend::Nothing;
                }
                Asked::Renew(claim)
            }
            11..=13 => {
                let refuse_for = if self.random.bool() { Some(self.millis(1..40)) } else { None };
                Asked::Release(claim, refuse_for)
            }
            14 => Asked::Evict(holder),
            15 => Asked::Inspect,
            _ => {
                let change = self.change(holder);
                if matches!(change, Change::Limit(_)) && !self.once_in(4) {
                    // Another resize, another id: else it is a copy.
                    claim.id = self.id();
                }
                Asked::Amend(claim, change)
            }
        }
    }
}

#[test]
fn the_functions_answer_like_the_rule() {
    let mut server = Server::start();
    let (mut promotions, mut errors) = (0, 0);
    for seed in 0..SEQUENCES {
        let mut plan = Plan::new(seed, server.key.clone());
        let born = EPOCH;
        let mut model = Model { book: Book::default(), fence: Fence::above(BASE).born(born) };
        let mut now = EPOCH;
        server.load(&model.book, &model.fence, born);
        for step in 0..STEPS {
            now += plan.random.u64(0..8);
            let op = plan.next(&model.book);
            let must = model.perform(&op, &server.key, now);
            let is = perform(&mut server, &op, now);
            assert_eq!(is, must, "seed {seed}, step {step}: {op:?}");
            promotions += is.promoted.len();
            errors += usize::from(is.answer.starts_with("Error"));
        }
    }
    assert!(promotions > 100 && errors > 20, "too tame: {promotions} promotions, {errors} errors");
}
