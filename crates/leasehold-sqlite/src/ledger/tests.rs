//! The ledger in the file against the one in memory: the same operations give the same answers, tell the
//! same clients and leave the same rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::rule::{self, Head, Ledger, Outcome, Row};
use leasehold_core::{
    Book, Change, Claim, ClaimId, Clock, Extend, Fence, IfBusy, Inbox, Key, Moment, OpenBook, Order,
    Promotion, QuorumTerms, Result, Units, Warnings,
};

use crate::fault::Stop;
use crate::format;
use crate::settings::Settings;
use crate::step::{Desk, Mode};

/// Where both sides start, and what the wall clock shows in microseconds: both draw the last number plus one.
const BASE: u64 = 5_000_000_000_000_000;
/// The proposals of quorums: far below the numbers that the stores draw.
const TOKENS: u64 = 1 << 40;

#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

/// A wall clock that stands still.
#[derive(Debug)]
struct Wall;

impl Clock for Wall {
    fn now(&self) -> Moment {
        Moment::from_nanos(BASE * 1_000)
    }
}

/// What an operation did, as far as anybody can see.
#[derive(Debug, PartialEq)]
struct Seen {
    answer: String,
    promoted: Vec<Promotion>,
    ended: Vec<Inbox>,
    head: Option<Head>,
    rows: Vec<Row>,
}

impl Seen {
    fn new<T: std::fmt::Debug>(result: Result<Outcome<T>>, head: Option<Head>, mut rows: Vec<Row>) -> Self {
        rows.sort_by_key(|row| row.id);
        match result {
            Ok(Outcome { answer, promoted, ended }) => {
                Self { answer: format!("{answer:?}"), promoted, ended, head, rows }
            }
            Err(e) => {
                Self { answer: e.kind().to_string(), promoted: Vec::new(), ended: Vec::new(), head, rows }
            }
        }
    }
}

#[derive(Debug)]
enum Op {
    Claim(Claim),
    Renew(Claim),
    Amend(Claim, Change),
    Release(ClaimId, Option<Duration>),
    Evict(u64),
    Pass,
    Inspect,
}

impl Op {
    fn run(&self, ledger: &mut impl Ledger, now: u64) -> Result<Outcome<String>> {
        fn said<T: std::fmt::Debug>(outcome: Outcome<T>) -> Outcome<String> {
            let Outcome { answer, promoted, ended } = outcome;
            Outcome { answer: format!("{answer:?}"), promoted, ended }
        }
        match self {
            Self::Claim(claim) => rule::claim(ledger, claim, now).map(said),
            Self::Renew(claim) => rule::renew(ledger, claim, now).map(said),
            Self::Amend(claim, change) => rule::amend(ledger, claim, change, now).map(said),
            Self::Release(id, refuse_for) => rule::release(ledger, id, *refuse_for, now).map(said),
            Self::Evict(token) => rule::evict(ledger, *token, now).map(said),
            Self::Pass => rule::pass(ledger, now).map(said),
            Self::Inspect => rule::snapshot(ledger, now).map(said),
        }
    }
}

/// Both ledgers of one key, and the clock they share.
struct Pair {
    key: Key,
    clock: Arc<Hand>,
    desk: Desk,
    _directory: tempfile::TempDir,
    book: Book,
    fence: Fence,
}

impl Pair {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(Hand::default());
        let settings = Settings::new().clock(clock.clone()).wall_clock(Arc::new(Wall));
        let path = directory.path().join("locks.db");
        let (mut connection, file, _) = format::open(&path, &settings, &Warnings::default()).unwrap();
        format::install(&mut connection, &settings).unwrap();
        connection.execute("UPDATE leasehold SET last = ?1 WHERE key = x''", [BASE.cast_signed()]).unwrap();
        Self {
            key: Key::new("k").unwrap(),
            clock,
            desk: Desk::new(connection, file, settings),
            _directory: directory,
            book: Book::default(),
            fence: Fence::above(BASE),
        }
    }

    fn in_memory(&mut self, op: &Op, now: u64) -> Seen {
        self.fence.prune(now);
        let result = op.run(&mut OpenBook::new(&self.key, &mut self.book, &mut self.fence, 0), now);
        Seen::new(result, self.book.head().cloned(), self.book.rows().cloned().collect())
    }

    fn in_the_file(&mut self, op: &Op) -> Seen {
        let key = self.key.clone();
        let (mut mode, mut result) = (Mode::Write, None);
        while result.is_none() {
            result = match self.desk.step(mode, |step| step.on(&key, |rows, now| op.run(rows, now))) {
                Ok((answer, told)) => {
                    let ended = told.look.into_iter().map(|(inbox, _)| inbox).collect();
                    Some(Ok(Outcome { answer, promoted: told.promoted, ended }))
                }
                Err(Stop::NeedsSync) if mode == Mode::Write => {
                    mode = Mode::Synced;
                    None
                }
                Err(stop) => Some(Err(stop.into_error())),
            };
        }
        let look = |step: &mut crate::step::Step<'_>| {
            step.on(&key, |rows, _| {
                let answer = (rows.head()?, rows.rows()?);
                Ok(Outcome { answer, promoted: Vec::new(), ended: Vec::new() })
            })
        };
        let ((head, rows), _) = self.desk.step(Mode::Read, look).unwrap();
        Seen::new(result.unwrap(), head, rows)
    }
}

fn id(n: u8) -> ClaimId {
    ClaimId::from_bytes([n + 1; 16])
}

fn random_claim(rng: &mut fastrand::Rng, key: &Key) -> Claim {
    let n = rng.u8(0..10);
    let units = rng.u64(1..=3);
    let mut claim =
        Claim::new(key.clone(), if rng.u8(0..30) == 0 { 4 } else { 3 }, Units::Exactly(units)).unwrap();
    claim.id = id(n);
    claim.inbox = Inbox(u64::MAX - u64::from(n));
    claim.label = format!("worker {n}").into();
    if rng.u8(0..4) == 0 {
        claim.units = Units::UpTo(units);
    }
    if rng.u8(0..4) == 0 {
        claim.if_busy = IfBusy::Leave;
    }
    if rng.u8(0..6) == 0 {
        claim.order = Order::Barging;
    }
    claim.lease = (rng.u8(0..8) > 0).then(|| Duration::from_millis(rng.u64(5..60)));
    claim.patience = Duration::from_millis(rng.u64(5..40));
    claim.lock_delay = Duration::from_millis(if rng.bool() { 0 } else { rng.u64(0..20) });
    claim.count = (rng.u8(0..5) == 0).then(|| rng.u64(1..5));
    if rng.u8(0..6) == 0 {
        let millis = Duration::from_millis;
        claim.token_above = TOKENS + rng.u64(0..100);
        claim.quorum = Some(QuorumTerms {
            keep: millis(rng.u64(0..60)),
            min_age: millis(rng.u64(0..200)),
            again: rng.bool(),
        });
    }
    if rng.u8(0..5) == 0 {
        claim.value = vec![n; usize::from(n)].into();
    }
    claim
}

fn random_op(rng: &mut fastrand::Rng, pair: &Pair) -> Op {
    let claim = random_claim(rng, &pair.key);
    let holders: Vec<u64> = pair.book.rows().filter(|row| row.held > 0).map(|row| row.token).collect();
    match rng.u8(0..20) {
        0..=7 => Op::Claim(claim),
        8..=10 => {
            let extend = if rng.u8(0..4) == 0 { Extend::Nothing } else { Extend::Lease };
            Op::Renew(Claim { extend, ..claim })
        }
        11..=13 => Op::Release(claim.id, rng.bool().then(|| Duration::from_millis(rng.u64(1..40)))),
        14 => Op::Evict(rng.choice(holders).unwrap_or(7)),
        15 => Op::Pass,
        16 => Op::Inspect,
        _ => {
            let change = match rng.u8(0..8) {
                0..=1 => Change::Units { to: rng.u64(0..=4), op: rng.u64(0..6) },
                2 => Change::Value { to: [rng.u8(..)].into(), op: rng.u64(0..6) },
                3 => {
                    let token = rng.choice(holders).unwrap_or(7);
                    Change::Give { n: rng.u64(0..3), op: rng.u64(0..4), token }
                }
                4 => Change::Tail(Duration::from_millis(rng.u64(0..30))),
                5 => Change::Limit(rng.u64(2..=5)),
                6 => Change::Ask(rng.choice(holders).unwrap_or(7)),
                _ => {
                    let mut heir = random_claim(rng, &pair.key);
                    // A new owner brings a new secret: in use nobody else has it.
                    heir.id = ClaimId::from_bytes(rng.u128(..).to_be_bytes());
                    Change::Owner { to: Box::new(heir), refuse_for: Duration::from_millis(rng.u64(0..40)) }
                }
            };
            let mut claim = claim;
            if matches!(change, Change::Limit(_)) && rng.u8(0..4) > 0 {
                // Another resize, another id: else it is a copy.
                claim.id = ClaimId::from_bytes(rng.u128(..).to_be_bytes());
            }
            Op::Amend(claim, change)
        }
    }
}

#[test]
fn a_file_answers_like_memory() {
    let (mut promotions, mut errors) = (0, 0);
    for seed in 0..24 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new();
        for round in 0..250 {
            let passed = rng.u64(0..8);
            let now = pair.clock.0.fetch_add(passed, Ordering::SeqCst) + passed;
            let op = random_op(&mut rng, &pair);
            let expected = pair.in_memory(&op, now);
            let found = pair.in_the_file(&op);
            assert_eq!(found, expected, "seed {seed}, round {round}: {op:?}");
            promotions += found.promoted.len();
            errors += usize::from(found.answer == "conflict" || found.answer == "invalid");
        }
    }
    assert!(
        promotions > 100 && errors > 10,
        "the sequences are too tame: {promotions} promotions, {errors} errors"
    );
}

#[test]
fn an_uncontended_claim_is_looked_up_without_the_queue() {
    let mut pair = Pair::new();
    let claim = Claim::new(pair.key.clone(), 1, Units::Exactly(1)).unwrap();
    pair.in_the_file(&Op::Claim(claim));
    let entries: i64 = pair
        .desk
        .connection
        .query_row("SELECT count(*) FROM leasehold INDEXED BY queue WHERE turn IS NOT NULL", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(entries, 0);
}

#[test]
fn the_queue_is_walked_by_its_index() {
    let pair = Pair::new();
    let plan = |sql: &str| -> String {
        let mut query = pair.desk.connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let lines = query.query_map([], |row| row.get::<_, String>(3)).unwrap();
        lines.map(|line| line.unwrap()).collect::<Vec<_>>().join("\n")
    };
    for sql in [
        "SELECT * FROM leasehold WHERE key = x'61' AND turn IS NOT NULL ORDER BY turn LIMIT 1",
        "SELECT 1 FROM leasehold WHERE key = x'61' AND turn IS NOT NULL AND turn < 5 LIMIT 64",
    ] {
        let plan = plan(sql);
        assert!(plan.contains("queue") && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}
