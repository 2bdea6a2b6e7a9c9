//! A store that is slow, silent or away.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::layers::{Fault, Faults, Reply, Request, Verb, WakeFault};

async fn client(world: &World) -> (Client, Faults<Memory>) {
    let faults = Faults::new(world.store.clone());
    let builder = Client::builder().clock(world.clock.clone()).defaults(Options::new().lease(LEASE));
    (builder.connect(faults.clone()).await.unwrap(), faults)
}

#[tokio::test(start_paused = true)]
async fn a_wait_limit_that_ends_before_the_store_answers_is_no_error() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    faults.once(Verb::Claim, Fault { reply: Reply::Never, ..Fault::default() });
    let limit = Duration::from_millis(200);
    let took = elapsed(async {
        assert!(client.mutex("k").acquire_within(limit).await.unwrap().is_none());
    });
    assert!(took.await <= limit * 2);
    // The store had granted it: it was given back.
    assert!(client.mutex("k").acquire_within(limit).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_cannot_be_renewed_is_lost_at_nine_tenths_of_its_lease() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let guard = client.mutex("k").acquire().await.unwrap();
    faults.cut();
    let held = elapsed(async { assert_eq!(guard.lost().await, Loss::Expired) }).await;
    assert!(held <= LEASE * 9 / 10 && held > LEASE * 8 / 10, "{held:?}");
    faults.heal();
    tokio::time::sleep(LEASE).await;
    assert!(!guard.is_valid(), "a lost guard came back");
    assert!(world.client().await.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_neither_the_holder_nor_the_waiter_anything() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let guard = client.mutex("k").acquire().await.unwrap();
    let lock = client.mutex("k");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(LEASE).await;
    faults.cut();
    tokio::time::sleep(LEASE / 3).await;
    faults.heal();
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_valid() && !waiter.is_finished());
    guard.release().await.unwrap();
    assert!(waiter.await.unwrap().is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_have_happened_is_in_doubt_also_when_no_later_try_was_sent() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let latch = client.latch("k");
    latch.set(5).await.unwrap();
    faults.once(Verb::Amend, Fault { reply: Reply::Lost, ..Fault::default() });
    faults.plan(|call| match call.verb {
        // It sees which latch to count down.
        Verb::Inspect => Fault::default(),
        _ => Fault { request: Request::Refused, ..Fault::default() },
    });
    let error = latch.count_down().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_a_single_notification_hand_over_takes_a_second_and_loss_a_third_of_a_lease() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    faults.plan_wakes(|_| WakeFault::Drop);
    let first = client.mutex("k").acquire().await.unwrap();
    let lock = client.mutex("k");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(LEASE).await;
    first.release().await.unwrap();
    let start = tokio::time::Instant::now();
    let guard = waiter.await.unwrap();
    assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());

    assert!(world.client().await.evict("k", guard.token()).await.unwrap());
    let took = elapsed(async { assert_eq!(guard.lost().await, Loss::Gone) }).await;
    assert!(took <= LEASE / 3, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_renewal_does_not_make_the_keeper_renew_without_pause() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    faults.plan(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        // Calls take time, so that renewing without pause is counted and does not hang.
        Fault { before: Duration::from_millis(1), ..Fault::default() }
    });
    let guard = client.mutex("k").with(Options::new().lease(LEASE * 100)).acquire().await.unwrap();
    tokio::time::sleep(LEASE).await;
    guard.renew(LEASE).await.unwrap();
    // Past a third of the long lease, which is still in force.
    tokio::time::sleep(LEASE * 50).await;
    // One every third of the shorter lease, or a little earlier.
    assert!((150..200).contains(&calls.load(Ordering::SeqCst)), "{calls:?}");
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_done_is_done_also_when_its_release_is_not_answered() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    faults.once(Verb::Release, Fault { reply: Reply::Lost, ..Fault::default() });
    assert_eq!(client.job("k").run(|_| async { 42 }).await.unwrap(), crate::Run::Ran(42));
    world.drained().await;
}

#[tokio::test(start_paused = true)]
async fn one_of_several_guards_of_an_owner_cannot_change_the_mode_of_all() {
    let world = World::new();
    let client = world.client().await;
    let owner = crate::Owner::new();
    let lock = client.rwlock("k").with(Options::new().owner(&owner));
    let (one, other) = (lock.write().acquire().await.unwrap(), lock.write().acquire().await.unwrap());
    assert_eq!(one.downgrade().await.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(client.rwlock("k").read().try_acquire().await.unwrap().is_none(), "a reader beside a writer");
    assert!(other.downgrade().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_adoption_whose_lease_nobody_tells_ends_within_two_calls() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let ticket = client.mutex("k").acquire().await.unwrap().hand_over().await.unwrap();
    // Done, and not known: the repeat tells that it is adopted, but not for how long.
    faults.once(Verb::Amend, Fault { reply: Reply::Lost, ..Fault::default() });
    faults.plan(|call| match call.verb {
        Verb::Renew => Fault { request: Request::Lost, reply: Reply::Never, ..Fault::default() },
        _ => Fault::default(),
    });
    let took = elapsed(async {
        let error = client.adopt(&ticket).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    });
    let took = took.await;
    assert!(took <= client.keeper().call_timeout * 2 + TICK, "{took:?}");
    world.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_asked_twice_is_refused_after_its_release() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    faults.once(Verb::Claim, Fault { reply: Reply::Lost, ..Fault::default() });
    let guard = client.mutex("k").acquire().await.unwrap();
    let claim = guard.hand().claim.clone();
    guard.release().await.unwrap();
    // The first copy, which nobody answered, could have been on the way for all that time.
    let late = crate::Store::claim(&world.store, &claim).await.unwrap();
    assert_eq!(late, crate::Answer::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_withdrawn_twice_is_refused_both_times() {
    use super::super::tables::Tables;
    use crate::clock::Clock;
    use crate::{Claim, Key, Renewal, Store, Units};

    let world = World::new();
    let (client, _) = client(&world).await;
    let mut tables = Tables::new(world.store.info().clone(), Duration::from_secs(5));
    let claim = Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap();
    let hold = Arc::new(crate::hold::Hold::new(world.clock.clone(), None));
    tables.enter(claim.clone(), hold.clone(), Renewal::Automatic, world.clock.now());
    // The client is closed, and then the future that asked is dropped. The first word is lost.
    tables.leave_all(Loss::Closed, world.clock.now());
    let mut second = tables.part(&claim, &hold, world.clock.now());
    second.attempt(client.keeper()).await.unwrap();
    assert_eq!(world.store.claim(&claim).await.unwrap(), crate::Answer::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_promotion_that_is_told_again_does_not_undo_a_downgrade() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let other = world.client().await;
    let held = other.rwlock("k").write().acquire().await.unwrap();
    faults.plan_wakes(|_| WakeFault::Twice(Duration::from_millis(100)));
    let lock = client.rwlock("k");
    let waiter = tokio::spawn(async move { lock.write().acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(10)).await;
    held.release().await.unwrap();
    let guard = waiter.await.unwrap().downgrade_to_upgradable().await.unwrap();
    let units = guard.units();
    let reader = other.rwlock("k").read().acquire().await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(guard.units(), units, "a writer again, beside a reader");
    assert!(guard.is_valid() && reader.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_downgrade_does_not_undo_the_upgrade_after_it() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let writer = client.rwlock("k").write().acquire().await.unwrap();
    let late = Duration::from_secs(3);
    faults.once(Verb::Amend, Fault { reply: Reply::Lost, again_after: Some(late), ..Fault::default() });
    let reader = writer.downgrade_to_upgradable().await.unwrap();
    let writer = reader.upgrade().await.unwrap();
    tokio::time::sleep(late * 2).await;
    assert!(writer.is_valid());
    let seen = client.inspect("k").await.unwrap().unwrap();
    assert_eq!(seen.held(), crate::WHOLE, "it was told that it may write, and readers can come");
}

#[tokio::test(start_paused = true)]
async fn a_release_over_a_broken_connection_is_tried_once_more() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let broken = |request, reply| Fault { request, reply, ..Fault::default() };
    let refused = client.mutex("k").acquire().await.unwrap();
    faults.once(Verb::Release, broken(Request::Refused, Reply::Delivered));
    assert_eq!(refused.release().await.unwrap(), Released::Held);
    let lost = client.mutex("k").acquire().await.unwrap();
    faults.once(Verb::Release, broken(Request::Delivered, Reply::Lost));
    // The second try finds nothing, and nobody can say what the first found.
    assert_eq!(lost.release().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(client.mutex("k").try_acquire().await.unwrap().is_some());
}

/// A client that fails to set a latch: the store has set it, and cannot be reached from then on.
async fn set_in_an_outage(world: &World) -> (Client, Faults<Memory>) {
    let (client, faults) = client(world).await;
    faults.plan(|_| Fault { request: Request::Lost, reply: Reply::Never, ..Fault::default() });
    faults.once(Verb::Claim, Fault { reply: Reply::Lost, ..Fault::default() });
    let error = client.latch("k").set(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    (client, faults)
}

#[tokio::test(start_paused = true)]
async fn latch_that_was_set_in_a_long_outage_is_taken_back() {
    let world = World::new();
    let (_client, faults) = set_in_an_outage(&world).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.client().await.latch("k").count().await.unwrap(), 1);
    faults.heal();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.client().await.latch("k").count().await.unwrap(), 0, "a failed set has set the latch");
}

#[tokio::test(start_paused = true)]
async fn client_that_is_closed_in_an_outage_leaves_the_latch_that_it_failed_to_set() {
    let world = World::new();
    let (client, faults) = set_in_an_outage(&world).await;
    let took = elapsed(async { client.close().await.unwrap() }).await;
    assert!(took <= Duration::from_secs(60), "{took:?}");
    faults.heal();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.client().await.latch("k").count().await.unwrap(), 1);
}
