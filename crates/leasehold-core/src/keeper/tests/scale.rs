//! What does not grow with the number of claims.

use std::sync::Arc;
use std::time::Duration;

use super::LEASE;
use crate::capability::{Info, Leases};
use crate::clock::{Clock, TestClock};
use crate::hold::Hold;
use crate::keeper::relay::Relays;
use crate::keeper::tables::{Stand, Tables};
use crate::{Answer, Claim, ClaimId, Grant, Key, Memory, Place, Promotion, Renewal, Store, Units};

const FEW: usize = 1_000;
const MANY: usize = 100_000;

/// What the slowest of the operations below costs more among `MANY` claims than among `FEW`. A walk over all claims costs
/// a hundred times as much, a search in a tree less than twice, and caches that are too small the rest.
const MOST: u32 = 20;

struct Claims {
    clock: Arc<TestClock>,
    tables: Tables,
    claims: Vec<Claim>,
}

impl Claims {
    fn none(leases: Leases) -> Self {
        let clock = Arc::new(TestClock::new());
        let info = Info { leases, ..Memory::new().info().clone() };
        Self { clock, tables: Tables::new(info, LEASE), claims: Vec::new() }
    }

    fn enter(&mut self, key: &Key) -> Claim {
        let claim = Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap();
        let hold = Arc::new(Hold::new(self.clock.clone(), None));
        self.tables.enter(claim.clone(), hold, Renewal::Automatic, self.clock.now());
        self.claims.push(claim.clone());
        claim
    }

    /// One claim on each of `n` keys, and all of them hold.
    fn held(leases: Leases, n: usize) -> Self {
        let mut held = Self::none(leases);
        for n in 0..n {
            let claim = held.enter(&Key::new(format!("k{n}")).unwrap());
            held.answer(&claim, &granted(&claim));
        }
        held
    }

    /// `n` claims that wait for one key, with the seats 1 to `n`.
    fn waiting(n: usize) -> Self {
        let mut waiting = Self::none(Leases::PerClaim);
        let key = Key::new("k").unwrap();
        for seat in (1..).take(n) {
            let claim = waiting.enter(&key);
            let place = Place { seat, ahead: seat, look_in: LEASE, held: 0, lease: Some(claim.patience) };
            waiting.answer(&claim, &Answer::Waiting(place));
        }
        waiting
    }

    fn answer(&mut self, claim: &Claim, answer: &Answer) {
        let now = self.clock.now();
        self.tables.answered_asker(&claim.id, now, answer, now);
    }
}

fn granted(claim: &Claim) -> Answer {
    Answer::Granted(Grant { seat: 1, token: 1, units: 1, lease: claim.lease, asked: false })
}

/// The processor time of this thread: other programs on the machine do not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// The least processor time that 100 of these operations took.
fn cost<T>(subjects: impl IntoIterator<Item = T>, mut operation: impl FnMut(T)) -> Duration {
    let mut subjects = subjects.into_iter().take(500).collect::<Vec<_>>();
    let mut least = Duration::MAX;
    while !subjects.is_empty() {
        let some = subjects.split_off(subjects.len() - 100);
        let before = processor_time();
        some.into_iter().for_each(&mut operation);
        least = least.min(processor_time() - before);
    }
    least
}

fn check(operation: &str, cost_among: impl Fn(usize) -> Duration) {
    let (few, many) = (cost_among(FEW), cost_among(MANY));
    assert!(many < few * MOST, "{operation} costs {few:?} among {FEW} claims, but {many:?} among {MANY}");
}

#[tokio::test(start_paused = true)]
async fn one_of_many_waiters_of_a_key_leaves_without_a_walk_over_the_others() {
    check("a removal", |n| {
        let Claims { mut tables, claims, .. } = Claims::waiting(n);
        cost(claims, |claim| tables.remove(&claim.id))
    });
}

#[tokio::test(start_paused = true)]
async fn one_of_many_claims_of_a_session_leaves_without_a_walk_over_the_others() {
    check("a removal", |n| {
        let Claims { mut tables, claims, .. } = Claims::held(Leases::Shared, n);
        cost(claims, |claim| tables.remove(&claim.id))
    });
}

#[tokio::test(start_paused = true)]
async fn one_of_many_waiters_of_a_key_is_promoted_without_a_walk_over_the_others() {
    check("a promotion", |n| {
        let Claims { clock, mut tables, claims } = Claims::waiting(n);
        let last_first = claims.into_iter().zip(1..).collect::<Vec<_>>().into_iter().rev();
        let promotions = last_first.map(|(claim, seat)| Promotion {
            key: claim.key,
            inbox: claim.inbox,
            seat,
            token: seat + 1_000_000,
            units: 1,
        });
        cost(promotions, |promotion| assert_eq!(tables.promoted(&promotion, clock.now()), Stand::Held))
    });
}

#[tokio::test(start_paused = true)]
async fn one_of_many_parked_tasks_leaves_without_a_walk_over_the_others() {
    check("a removal", |n| {
        let mut relays = Relays::default();
        let key = Key::new("k").unwrap();
        let claims = || Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap();
        relays.join(&claims(), Renewal::Automatic);
        let parked: Vec<_> = std::iter::repeat_with(claims).take(n).collect();
        let must_ask: Vec<_> = parked.iter().map(|claim| relays.join(claim, Renewal::Automatic)).collect();
        let cost = cost(parked, |claim| assert!(relays.leave(&claim)));
        drop(must_ask);
        cost
    });
}

#[tokio::test(start_paused = true)]
async fn lease_of_one_of_many_locks_is_planned_without_a_walk_over_the_others() {
    check("an answer to a renewal", |n| {
        let Claims { clock, mut tables, claims } = Claims::held(Leases::PerClaim, n);
        let now = clock.now();
        cost(claims, |claim| {
            tables.answered(&claim.id, now, &granted(&claim), now);
        })
    });
}

/// Lets the keeper's task work for one lease, on a store that answers everything immediately. Answers how often the task
/// woke up, at most `limit`, and how many claims it renewed.
fn renew_for_a_lease(held: &mut Claims, lease: Duration, limit: usize) -> (usize, usize) {
    let (clock, tables) = (&held.clock, &mut held.tables);
    let end = clock.now() + lease;
    let (mut wake_ups, mut renewals) = (0, 0);
    while wake_ups < limit {
        let at = tables.due.wake_up(clock.now());
        if at >= end {
            break;
        }
        clock.jump(at.since(clock.now()));
        wake_ups += 1;
        for batch in tables.collect(clock.now()) {
            renewals += batch.claims.len();
            let answers = batch.claims.iter().map(granted).collect();
            tables.renewed(batch, clock.now(), Ok(answers), clock.now());
        }
    }
    (wake_ups, renewals)
}

#[tokio::test(start_paused = true)]
async fn number_of_wake_ups_does_not_grow_with_the_number_of_locks() {
    let mut held = Claims::held(Leases::PerClaim, 0);
    let lease = Duration::from_secs(30);
    for n in 0..3_000 {
        let claim = held.enter(&Key::new(format!("k{n}")).unwrap());
        held.answer(&claim, &granted(&claim));
        // No two locks are taken at the same time.
        held.clock.jump(lease / 10_000);
    }
    let (wake_ups, renewals) = renew_for_a_lease(&mut held, lease, 1_000);
    assert!(wake_ups <= 61, "{wake_ups} wake-ups within a lease, to renew {renewals} claims");
    assert!((9_000..=11_000).contains(&renewals), "{renewals} renewals");
    let ids: Vec<ClaimId> = held.claims.iter().map(|claim| claim.id).collect();
    assert!(ids.iter().all(|id| held.tables.entries.contains_key(id)), "a lock was lost");
}
