//! When the task is woken, and when it is not.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Moment, TestClock};
use crate::hold::Hold;
use crate::keeper::tables::{Stand, Tables};
use crate::{Answer, Claim, Grant, Key, Memory, Renewal, Store, Units};

/// A lock that is taken at this time.
fn take(tables: &mut Tables, clock: &Arc<TestClock>, at: Moment) -> Claim {
    let claim = Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap();
    tables.enter(claim.clone(), Arc::new(Hold::new(clock.clone(), None)), Renewal::Automatic, at);
    let grant = Grant { seat: 1, token: 1, units: 1, lease: claim.lease, asked: false };
    let stand = tables.answered_asker(&claim.id, at, &Answer::Granted(grant), at);
    assert_eq!(stand, Stand::Held);
    claim
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_given_back_before_the_task_looks_wakes_it_once() {
    let clock = Arc::new(TestClock::new());
    let mut tables = Tables::new(Memory::new().info().clone(), Duration::from_secs(5));
    tables.due.wake_up(clock.now());
    let first = take(&mut tables, &clock, clock.now());
    assert!(tables.must_wake());
    tables.remove(&first.id);
    let wakes_at = tables.due.wake_up(clock.now());
    // Later by more than renewals are spread: nothing is due before the task wakes.
    take(&mut tables, &clock, clock.now() + Duration::from_secs(2));
    assert!(!tables.must_wake());
    assert!(wakes_at <= tables.due.next().unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_is_due_before_the_task_wakes_wakes_it() {
    let clock = Arc::new(TestClock::new());
    let mut tables = Tables::new(Memory::new().info().clone(), Duration::from_secs(5));
    take(&mut tables, &clock, clock.now() + Duration::from_secs(60));
    assert!(tables.must_wake());
    tables.due.wake_up(clock.now());
    take(&mut tables, &clock, clock.now());
    assert!(tables.must_wake());
    assert_eq!(Some(tables.due.wake_up(clock.now())), tables.due.next());
}
