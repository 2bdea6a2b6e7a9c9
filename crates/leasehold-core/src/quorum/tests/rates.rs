//! Members whose clocks run at another rate than the clients' clocks.

use super::*;

/// How fast the wrong clocks run, in thousandths: the lease ends there before the guard does.
const FAST: u64 = 1_300;

/// When the lease has ended by a fast clock, and the guard is still valid.
const ENDED_EARLY: Duration = Duration::from_millis(7_500);

/// Three members of which so many have a fast clock.
fn set(fast: usize) -> Set {
    let clock = Arc::new(TestClock::new());
    let clock_of = |n| if n < fast { Arc::new(TestClock::with_rate(FAST)) } else { clock.clone() };
    Set { memories: (0..3).map(|n| Memory::with_clock(clock_of(n))).collect(), clock: clock.clone() }
}

/// A lock on a lease that nobody renews, when the lease has ended by the fast clocks.
async fn hold(set: &Set) -> (crate::Guard, Seat) {
    let (one, two) = (set.seat().await, set.seat().await);
    let guard = one.client.mutex("k").with(Options::new().fixed(LEASE)).acquire().await.unwrap();
    tokio::time::sleep(ENDED_EARLY).await;
    assert!(guard.is_valid());
    (guard, two)
}

#[tokio::test(start_paused = true)]
async fn member_with_a_fast_clock_ends_only_its_own_vote() {
    let set = set(1);
    let (guard, other) = hold(&set).await;
    assert_eq!(set.tokens("k").await, [None, Some(guard.token()), Some(guard.token())]);
    assert!(other.client.mutex("k").try_acquire().await.unwrap().is_none(), "two holders");
    assert!(guard.is_valid());
}

/// This is what the documentation warns of.
#[tokio::test(start_paused = true)]
async fn fast_clocks_of_a_majority_grant_twice() {
    let set = set(2);
    let (guard, other) = hold(&set).await;
    let second = other.client.mutex("k").try_acquire().await.unwrap().expect("two votes have ended");
    assert!(guard.is_valid() && second.is_valid());
    assert!(second.token() > guard.token());
}
