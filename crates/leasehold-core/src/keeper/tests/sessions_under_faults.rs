//! Sessions whose messages are lost, late or overtaken.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::layers::{Fault, Faults, Reply, Request, Verb, WakeFault};
use crate::sessions::Sessions;
use crate::{Answer, Claim, Inbox, Key, Store, Units};

async fn world() -> (Arc<TestClock>, Client, Faults<Sessions>) {
    let clock = Arc::new(TestClock::new());
    let faults = Faults::new(Sessions::new(clock.clone()));
    let builder = Client::builder().clock(clock.clone()).defaults(Options::new().lease(LEASE));
    let client = builder.connect(faults.clone()).await.unwrap();
    (clock, client, faults)
}

fn without_renewals(faults: &Faults<Sessions>) {
    faults.plan(|call| match call.verb {
        Verb::Renew => Fault { request: Request::Refused, ..Fault::default() },
        _ => Fault::default(),
    });
}

#[tokio::test(start_paused = true)]
async fn a_late_renewal_withdraws_only_what_is_older_than_itself() {
    let store = Sessions::new(Arc::new(TestClock::new()));
    let claim = |key: &str, round: u64| {
        let claim = Claim::new(Key::new(key).unwrap(), 1, Units::Exactly(1)).unwrap();
        Claim { inbox: Inbox(1), lease: Some(LEASE), round, ..claim }
    };
    let (known, ghost, newer) = (claim("known", 0), claim("ghost", 0), claim("newer", 1));
    for claim in [&known, &ghost, &newer] {
        assert!(matches!(store.claim(claim).await.unwrap(), Answer::Granted(_)));
    }
    // Sent before the newest claim was made, and overtaken by it.
    store.renew(&[Claim { round: 1, ..known }]).await.unwrap();
    assert!(store.inspect(&ghost.key).await.unwrap().is_none());
    assert!(store.inspect(&newer.key).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_overtaken_by_a_claim_does_not_withdraw_it() {
    let (_, client, faults) = world().await;
    let _first = client.mutex("a").acquire().await.unwrap();
    faults.once(Verb::Renew, Fault { before: Duration::from_millis(200), ..Fault::default() });
    client.keeper().look(&Key::new("a").unwrap());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let second = client.mutex("b").acquire().await.unwrap();
    tokio::time::sleep(LEASE * 3).await;
    assert!(second.is_valid());
    assert_eq!(second.release().await.unwrap(), Released::Held);
}

#[tokio::test(start_paused = true)]
async fn a_new_session_does_not_revive_the_waiters_of_a_dead_one() {
    let (clock, client, faults) = world().await;
    let other = Client::builder().clock(clock.clone()).connect(faults.inner().clone()).await.unwrap();
    let long = Options::new().lease(LEASE * 100);
    let first = other.mutex("k").with(long).acquire().await.unwrap();
    let lock = client.mutex("k");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // It is promoted, but does not hear of that before its session has ended and another was opened.
    without_renewals(&faults);
    faults.plan_wakes(|_| WakeFault::Hold);
    first.release().await.unwrap();
    clock.jump(LEASE * 2);
    let _opens = client.mutex("x").acquire().await.unwrap();
    assert!(faults.deliver_held() > 0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiter.is_finished(), "it believes what the store has forgotten");
    faults.heal();
    assert!(waiter.await.unwrap().is_valid());
}

#[tokio::test(start_paused = true)]
async fn without_word_of_the_session_a_try_ends_within_two_calls() {
    let (_, client, faults) = world().await;
    faults.once(Verb::Claim, Fault { reply: Reply::Never, ..Fault::default() });
    without_renewals(&faults);
    let opens = client.mutex("a");
    let opens = tokio::spawn(async move { opens.acquire().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Granted on a session that only the first claim would have told about.
    let took = elapsed(async {
        let error = client.mutex("b").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    });
    let took = took.await;
    assert!(took <= client.keeper().call_timeout * 2 + TICK, "{took:?}");
    drop(opens.await);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_a_renewal_overtakes_has_released() {
    let (_, client, faults) = world().await;
    let (one, two) = (client.mutex("a").acquire().await.unwrap(), client.mutex("b").acquire().await.unwrap());
    faults.once(Verb::Release, Fault { before: Duration::from_millis(200), ..Fault::default() });
    let releasing = tokio::spawn(one.release());
    tokio::time::sleep(Duration::from_millis(100)).await;
    two.renew(LEASE).await.unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Held);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_a_renewal_overtakes_says_when_it_came_too_late() {
    let (_, client, faults) = world().await;
    let (one, two) = (client.mutex("a").acquire().await.unwrap(), client.mutex("b").acquire().await.unwrap());
    let (key, token) = (one.key().clone(), one.token());
    faults.once(Verb::Release, Fault { before: Duration::from_millis(200), ..Fault::default() });
    let releasing = tokio::spawn(one.release());
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Somebody ends it before the release arrives.
    assert!(faults.inner().evict(&key, token).await.unwrap());
    two.renew(LEASE).await.unwrap();
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_that_ends_on_a_session_leaves_its_lock_delay() {
    let clock = Arc::new(TestClock::new());
    let store = Sessions::new(clock.clone()).with_lock_delay();
    let client = Client::builder().clock(clock.clone()).connect(store).await.unwrap();
    let _keeps_the_session = client.mutex("b").with(Options::new().lease(LEASE)).acquire().await.unwrap();
    let options = Options::new().fixed(LEASE).lock_delay(LEASE);
    let fixed = client.mutex("a").with(options).acquire().await.unwrap();
    fixed.lost().await;
    tokio::time::sleep(LEASE).await;
    assert!(client.mutex("a").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(LEASE).await;
    assert!(client.mutex("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_promotion_that_a_renewal_told_about_first_lasts() {
    let (_, client, faults) = world().await;
    let held = client.mutex("k").acquire().await.unwrap();
    // The claim arrives, and its answer takes longer than the news of its grant.
    faults.once(Verb::Claim, Fault { after: Duration::from_secs(2), ..Fault::default() });
    let lock = client.mutex("k");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.keeper().look(held.key());
    tokio::time::sleep(Duration::from_millis(100)).await;
    held.release().await.unwrap();
    let guard = waiter.await.unwrap();
    tokio::time::sleep(PATIENCE_AND_MORE).await;
    assert!(guard.is_valid(), "given back as if nobody had picked it up");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_during_a_renewal_is_renewed_when_its_elders_have_gone() {
    let (_, client, faults) = world().await;
    let other = Client::builder().clock(client.keeper().clock.clone());
    let other = other.connect(faults.inner().clone()).await.unwrap();
    let held = other.mutex("k").with(Options::new().lease(LEASE * 100)).acquire().await.unwrap();
    let elder = client.mutex("a").acquire().await.unwrap();
    faults.once(Verb::Renew, Fault { before: Duration::from_millis(200), ..Fault::default() });
    client.keeper().look(elder.key());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lock = client.mutex("k");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(50)).await;
    elder.release().await.unwrap();
    // Without a renewal of its own the waiter would lose its place, and never hear of that.
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(other.inspect("k").await.unwrap().unwrap().waiters.len(), 1);
    held.release().await.unwrap();
    assert!(waiter.await.unwrap().is_valid());
}

#[tokio::test(start_paused = true)]
async fn what_was_granted_and_lost_before_the_answer_came_is_not_handed_out() {
    let (clock, client, faults) = world().await;
    let held = client.mutex("k").acquire().await.unwrap();
    faults.once(Verb::Claim, Fault { after: Duration::from_secs(2), ..Fault::default() });
    let lock = client.mutex("k");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap().is_valid() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let key = held.key().clone();
    held.release().await.unwrap();
    // The renewal tells of the grant; then the process sleeps for longer than the lease.
    client.keeper().look(&key);
    // The answer comes before the keeper has noticed that.
    tokio::time::sleep(Duration::from_millis(1899)).await;
    clock.jump(LEASE * 2);
    assert!(waiter.await.unwrap(), "a guard that was lost already");
}

/// All claims of a session end while its renewal hangs, and others take their place. The late answer of the first renewal
/// says nothing about the second one, which is still under way.
#[tokio::test(start_paused = true)]
async fn a_late_answer_of_an_old_session_starts_no_second_renewal() {
    let (_, client, faults) = world().await;
    let renewals = Arc::new(AtomicUsize::new(0));
    let first = client.mutex("a").acquire().await.unwrap();
    let sent = renewals.clone();
    faults.plan(move |call| match call.verb {
        Verb::Renew => {
            let before = Duration::from_secs(1 + sent.fetch_add(1, Ordering::Relaxed) as u64);
            Fault { before, ..Fault::default() }
        }
        _ => Fault::default(),
    });
    let look = |key: &str| client.keeper().look(&Key::new(key).unwrap());
    look("a");
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.release().await.unwrap();
    let _second = client.mutex("b").acquire().await.unwrap();
    look("b");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(renewals.load(Ordering::Relaxed), 2);
    tokio::time::sleep(Duration::from_millis(900)).await;
    look("b");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(renewals.load(Ordering::Relaxed), 2, "two renewals of one session are under way");
}

/// The network delivers a claim twice. What the first copy was granted ends before its answer comes, and the second copy
/// queues. Then the answer to the first copy is about a hold that the store has ended.
#[tokio::test(start_paused = true)]
async fn a_grant_that_ended_before_its_answer_came_is_not_believed() {
    let millis = Duration::from_millis;
    let (clock, client, faults) = world().await;
    let other = Client::builder().clock(clock).connect(faults.inner().clone()).await.unwrap();
    let _opens = client.mutex("x").acquire().await.unwrap();
    let late = Fault { again_after: Some(millis(400)), after: millis(1000), ..Fault::default() };
    faults.once(Verb::Claim, late);
    let lock = client.mutex("k");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(millis(100)).await;
    let first = other.inspect("k").await.unwrap().unwrap().holders[0].token;
    assert!(other.evict("k", first).await.unwrap());
    let holder = other.mutex("k").acquire().await.unwrap();
    tokio::time::sleep(millis(400)).await;
    client.keeper().look(&Key::new("k").unwrap());
    tokio::time::sleep(millis(700)).await;
    assert!(!waiting.is_finished(), "two guards are valid");
    let token = holder.token();
    holder.release().await.unwrap();
    assert!(waiting.await.unwrap().token() > token);
}
