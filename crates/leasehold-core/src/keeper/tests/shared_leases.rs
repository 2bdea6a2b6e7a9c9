//! Sessions that carry many claims.

use super::*;
use crate::sessions::Sessions;
use crate::{Claim, Inbox, Key, Store, Units};

async fn client(clock: &Arc<TestClock>, store: &Sessions) -> Client {
    let defaults = Options::new().lease(LEASE);
    Client::builder().clock(clock.clone()).defaults(defaults).connect(store.clone()).await.unwrap()
}

fn world() -> (Arc<TestClock>, Sessions) {
    let clock = Arc::new(TestClock::new());
    (clock.clone(), Sessions::new(clock))
}

#[tokio::test(start_paused = true)]
async fn one_session_carries_many_claims_and_hands_over() {
    let (clock, store) = world();
    let (one, two) = (client(&clock, &store).await, client(&clock, &store).await);
    let mut guards = Vec::new();
    for n in 0..50 {
        guards.push(one.mutex(format!("k{n}")).acquire().await.unwrap());
    }
    let waiter = tokio::spawn(async move { two.mutex("k7").acquire().await.unwrap() });
    tokio::time::sleep(LEASE * 10).await;
    assert!(guards.iter().all(Guard::is_valid) && !waiter.is_finished());
    drop(guards);
    let guard = waiter.await.unwrap();
    tokio::time::sleep(LEASE * 10).await;
    assert!(guard.is_valid());
    assert_eq!(guard.release().await.unwrap(), Released::Held);
    assert_eq!(store.residue(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_on_an_old_session_does_not_extend_it() {
    let (clock, store) = world();
    let client = client(&clock, &store).await;
    let first = client.mutex("a").acquire().await.unwrap();
    tokio::time::sleep(LEASE / 5).await;
    let second = client.mutex("b").acquire().await.unwrap();
    assert_eq!(first.valid_for(), second.valid_for());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_the_store_lost_is_lost_within_a_third_of_the_lease() {
    let (clock, store) = world();
    let client = client(&clock, &store).await;
    let (kept, gone) =
        (client.mutex("a").acquire().await.unwrap(), client.mutex("b").acquire().await.unwrap());
    let held = store.inspect(gone.key()).await.unwrap().unwrap().holders[0].token;
    assert!(store.evict(gone.key(), held).await.unwrap());
    let took = elapsed(async { assert_eq!(gone.lost().await, Loss::Gone) }).await;
    assert!(took <= LEASE / 3, "{took:?}");
    assert!(kept.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_knows_is_withdrawn_by_the_next_renewal() {
    let (clock, store) = world();
    let client = client(&clock, &store).await;
    let guard = client.mutex("a").acquire().await.unwrap();
    let inbox: Inbox = client.keeper().inbox;
    let mut ghost = Claim::new(Key::new("ghost").unwrap(), 1, Units::Exactly(1)).unwrap();
    (ghost.inbox, ghost.lease) = (inbox, Some(LEASE));
    store.claim(&ghost).await.unwrap();
    tokio::time::sleep(LEASE / 2).await;
    assert!(client.inspect("ghost").await.unwrap().is_none());
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_takes_all_its_guards_and_the_client_goes_on() {
    let (clock, store) = world();
    let client = client(&clock, &store).await;
    let (a, b) = (client.mutex("a").acquire().await.unwrap(), client.mutex("b").acquire().await.unwrap());
    clock.jump(LEASE * 2);
    assert_eq!((a.lost().await, b.lost().await), (Loss::Expired, Loss::Expired));
    let again = client.mutex("a").acquire().await.unwrap();
    tokio::time::sleep(LEASE * 3).await;
    assert!(again.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_not_withdrawn_by_the_renewal_of_others() {
    let (clock, store) = world();
    let client = client(&clock, &store).await;
    let fixed = client.mutex("a").with(Options::new().fixed(LEASE)).acquire().await.unwrap();
    let _renewed = client.mutex("b").acquire().await.unwrap();
    tokio::time::sleep(LEASE / 2).await;
    assert!(fixed.is_valid());
    assert_eq!(fixed.release().await.unwrap(), Released::Held);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_at_its_time_on_a_session_that_goes_on() {
    let (clock, store) = world();
    let client = client(&clock, &store).await;
    let _renewed = client.mutex("b").acquire().await.unwrap();
    tokio::time::sleep(LEASE / 6).await;
    let fixed = client.mutex("a").with(Options::new().fixed(LEASE)).acquire().await.unwrap();
    let held = elapsed(async { assert_eq!(fixed.lost().await, Loss::Expired) }).await;
    assert!(held <= LEASE * 9 / 10, "{held:?}");
    // The store keeps it a little longer than its user may believe, and no longer.
    assert!(client.inspect("a").await.unwrap().is_some());
    tokio::time::sleep(LEASE - held + Duration::from_millis(10)).await;
    assert!(client.inspect("a").await.unwrap().is_none(), "the session prolongs it");
}
