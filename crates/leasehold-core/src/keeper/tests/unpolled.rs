//! Futures that nobody polls, and copies of claims that outlive their attempt.

use super::*;
use crate::layers::{Fault, Faults, Reply, Request, Verb};

/// A client whose store can be disturbed.
async fn client(world: &World) -> (Client, Faults<Memory>) {
    let faults = Faults::new(world.store.clone());
    let builder = Client::builder().clock(world.clock.clone()).defaults(Options::new().lease(LEASE));
    (builder.connect(faults.clone()).await.unwrap(), faults)
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_job_is_given_back_long_before_its_lease_ends() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    faults.once(Verb::Claim, Fault { after: Duration::from_millis(100), ..Fault::default() });
    let job = client.job("nightly");
    let mut forgotten = Box::pin(job.start());
    assert!(poll(&mut forgotten).is_pending());
    // Granted for an hour; the answer waits for a poll that never comes.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let other = world.client().await;
    assert!(
        other.job("nightly").start().await.unwrap().is_some(),
        "a future that nobody polls keeps the job"
    );
    drop(forgotten);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_arrives_after_gone_is_refused() {
    const SHORT: Duration = Duration::from_millis(500);
    let world = World::new();
    let (client, faults) = client(&world).await;
    // The first copy is granted and not answered, and arrives once more. The second comes when the grant has expired.
    let lost = Fault { reply: Reply::Lost, again_after: Some(SHORT * 2), ..Fault::default() };
    faults.once(Verb::Claim, lost);
    faults.once(Verb::Claim, Fault { before: SHORT + SHORT / 4, ..Fault::default() });
    let lock = client.mutex("k").with(Options::new().lease(SHORT));
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Lost);
    let other = world.client().await;
    // It removes what has expired.
    other.mutex("k").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    tokio::time::sleep(SHORT).await;
    assert_eq!(other.inspect("k").await.unwrap(), None, "a copy of an attempt that is over was served");
}

#[tokio::test(start_paused = true)]
async fn early_promotions_are_forgotten_although_claims_are_parked() {
    use crate::clock::Clock;
    use crate::hold::Hold;
    use crate::keeper::tables::Tables;
    use crate::{Answer, Claim, Key, Promotion, Renewal, Store, Units};

    let clock = Arc::new(TestClock::new());
    let mut tables = Tables::new(Memory::new().info().clone(), LEASE);
    let enter = |tables: &mut Tables| {
        let claim = Claim::new(Key::new("k").unwrap(), 1, Units::Exactly(1)).unwrap();
        let hold = Arc::new(Hold::new(clock.clone(), None));
        tables.enter(claim.clone(), hold, Renewal::Automatic, clock.now());
        claim
    };
    let first = enter(&mut tables);
    assert!(tables.park(&first.id).is_none());
    let second = enter(&mut tables);
    let _parked = tables.park(&second.id).unwrap();
    let promotion = Promotion { key: first.key.clone(), inbox: first.inbox, seat: 7, token: 9, units: 1 };
    tables.promoted(&promotion, clock.now());
    assert_eq!(tables.early.len(), 1);
    tables.answered_asker(&first.id, clock.now(), &Answer::Busy, clock.now());
    assert_eq!(tables.early.len(), 0, "a parked claim, which was never sent, keeps them");
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_does_not_revive_an_evicted_guard() {
    use crate::layers::WakeFault;

    let world = World::new();
    let (client, faults) = client(&world).await;
    // Nothing tells the client of the eviction, and another copy of the claim arrives before the next renewal.
    faults.plan_wakes(|_| WakeFault::Drop);
    faults.once(Verb::Claim, Fault { again_after: Some(LEASE / 6), ..Fault::default() });
    let guard = client.mutex("k").acquire().await.unwrap();
    assert!(client.evict("k", guard.token()).await.unwrap());
    tokio::time::sleep(LEASE / 4).await;
    let seen = client.inspect("k").await.unwrap().expect("the late copy was granted");
    assert!(seen.holders[0].token > guard.token());
    let lost = tokio::time::timeout(LEASE / 3, guard.lost()).await;
    assert_eq!(lost, Ok(Loss::Gone), "the guard believes in another grant");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(client.inspect("k").await.unwrap(), None, "the copy's claim stays");
}

#[tokio::test(start_paused = true)]
async fn repeated_release_that_meets_a_late_copy_is_indeterminate() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let late = Duration::from_millis(300);
    faults.once(Verb::Claim, Fault { again_after: Some(late), ..Fault::default() });
    let guard = client.mutex("k").acquire().await.unwrap();
    // The release takes effect. Its reply is lost, and only after another client holds and the copy has arrived.
    faults.once(Verb::Release, Fault { after: late * 2, reply: Reply::Lost, ..Fault::default() });
    let other = world.client().await;
    let next = other.mutex("k");
    let (released, _held) = tokio::join!(guard.release(), next.acquire());
    // The second attempt finds the copy in the queue, which says nothing about the first.
    assert_eq!(released.unwrap_err().kind(), ErrorKind::Indeterminate);
    let seen = client.inspect("k").await.unwrap().unwrap();
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0), "the copy stays in the queue");
}

#[tokio::test(start_paused = true)]
async fn future_that_was_not_polled_sends_no_copy_after_its_client_was_closed() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    // The future waits for its second copy when it is left alone.
    faults.once(Verb::Claim, Fault { request: Request::Lost, reply: Reply::Lost, ..Fault::default() });
    let lock = client.mutex("k");
    let mut left_alone = Box::pin(lock.acquire());
    while faults.injected().requests_lost == 0 {
        assert!(poll(&mut left_alone).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(poll(&mut left_alone).is_pending());
    client.close().await.unwrap();
    tokio::time::sleep(PATIENCE_AND_MORE).await;
    assert_eq!(left_alone.await.unwrap_err().kind(), ErrorKind::Unavailable);
    let other = world.client().await;
    assert_eq!(other.inspect("k").await.unwrap(), None, "a claim was sent after the client was closed");
}

#[tokio::test(start_paused = true)]
async fn release_for_a_task_that_asked_the_store_meanwhile_is_an_ordinary_release() {
    let world = World::new();
    let (client, faults) = client(&world).await;
    let lock = client.mutex("k").with(Options::new().lease(LEASE).barging());
    let guard = lock.acquire().await.unwrap();
    // The next task waits for the lock inside the client. The request that passes it on takes so long that the task asks
    // the store itself.
    faults.once(Verb::Amend, Fault { before: LEASE * 2 / 3, ..Fault::default() });
    let release = async {
        // Just before the task looks for the first time whether it gets anywhere.
        tokio::time::sleep(LEASE / 2 - Duration::from_millis(10)).await;
        guard.release().await
    };
    let (next, released) = tokio::join!(lock.acquire(), release);
    assert_eq!(released.unwrap(), Released::Held);
    assert!(next.unwrap().is_valid());
}
