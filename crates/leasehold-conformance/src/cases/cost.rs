//! Law 10: round trips, counted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::{Capability, Client, Options};

use crate::case::cases;
use crate::scene::{GLANCE, SLACK, Scene};
use crate::spy::{Counts, Spy};
use crate::verdict::{Stop, Verdict};

cases!("cost":
    an_uncontended_acquire_is_one_call_and_so_is_its_release,
    a_busy_attempt_is_one_call,
    a_dropped_guard_is_one_release,
    a_waiter_renews_within_its_patience,
    a_waiter_that_is_told_asks_nothing_else,
    the_renewal_of_many_locks_is_batched,
    a_released_lock_is_renewed_no_more,
);

/// A client whose calls are counted.
async fn counted(scene: &Scene) -> Verdict<(Client, Arc<Counts>)> {
    let (spy, counts) = Spy::counting(scene.fixture.store().await?);
    Ok((Client::new(spy).await?, counts))
}

async fn an_uncontended_acquire_is_one_call_and_so_is_its_release(scene: Scene) -> Verdict {
    let (client, counts) = counted(&scene).await?;
    for cycle in 1..=10 {
        let guard = client.mutex(scene.key().as_str()).acquire().await?;
        assert_eq!((counts.claims(), counts.total()), (cycle, cycle * 2 - 1));
        guard.release().await?;
        assert_eq!((counts.releases(), counts.total()), (cycle, cycle * 2));
    }
    client.close().await?;
    assert_eq!(counts.total(), 20, "closing a client that holds nothing asks nothing");
    Ok(())
}

async fn a_busy_attempt_is_one_call(scene: Scene) -> Verdict {
    let key = scene.key();
    let _held = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, counts) = counted(&scene).await?;
    assert!(client.mutex(key.as_str()).try_acquire().await?.is_none());
    assert_eq!((counts.claims(), counts.total()), (1, 1));
    Ok(())
}

async fn a_dropped_guard_is_one_release(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, counts) = counted(&scene).await?;
    drop(client.mutex(key.as_str()).acquire().await?);
    scene.until_nothing_is_left(&key).await?;
    client.close().await?;
    assert_eq!((counts.claims(), counts.releases(), counts.total()), (1, 1, 2));
    Ok(())
}

async fn a_waiter_renews_within_its_patience(scene: Scene) -> Verdict {
    scene.needs(Capability::Queue)?;
    let (key, patience) = (scene.key(), scene.lease());
    let held = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, counts) = counted(&scene).await?;
    let lock = client.mutex(key.as_str()).with(Options::new().lease(patience));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_waiting(&key, 1).await?;
    const SPANS: u32 = 4;
    tokio::time::sleep(patience * SPANS).await;
    let renewals = counts.renewals();
    assert!(renewals >= u64::from(SPANS), "{renewals} renewals in {SPANS} times its patience");
    assert_eq!(counts.claims(), 1, "its place was lost and asked for again");
    held.release().await?;
    let guard = tokio::time::timeout(SLACK, waiting).await.map_err(|_| Stop::fail("still waiting"))?;
    assert!(guard.map_err(Stop::fail)??.is_valid());
    Ok(())
}

async fn a_waiter_that_is_told_asks_nothing_else(scene: Scene) -> Verdict {
    scene.needs_pushes()?;
    let key = scene.key();
    let held = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, counts) = counted(&scene).await?;
    let lock = client.mutex(key.as_str());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_waiting(&key, 1).await?;
    held.release().await?;
    let guard = tokio::time::timeout(SLACK, waiting).await.map_err(|_| Stop::fail("still waiting"))?;
    let guard = guard.map_err(Stop::fail)??;
    // The claim; then at most the safety poll of a slow machine, and the renewal that starts the full lease.
    assert_eq!(counts.claims(), 1);
    assert!(counts.total() <= 4, "{counts:?}");
    guard.release().await?;
    Ok(())
}

async fn the_renewal_of_many_locks_is_batched(scene: Scene) -> Verdict {
    if scene.info().batch < 10 {
        return Err(Stop::skip("the store renews one claim per call"));
    }
    const LOCKS: usize = 50;
    // Long against the moments that it takes to acquire them all.
    let lease = Duration::from_secs(9);
    let (client, counts) = counted(&scene).await?;
    let lock = || client.mutex(scene.key().as_str()).with(Options::new().lease(lease));
    let locks: Vec<_> = std::iter::repeat_with(lock).take(LOCKS).collect();
    // At the same time: on a slow store one after the other would fall due one after the other.
    let held = try_join_all(locks.iter().map(|lock| lock.acquire())).await?;
    let limit = tokio::time::Instant::now() + lease * 3 + SLACK;
    while counts.renewed() < LOCKS as u64 {
        assert!(tokio::time::Instant::now() < limit, "{counts:?}");
        tokio::time::sleep(GLANCE).await;
    }
    assert!(counts.renewed() >= counts.renewals() * 5, "hardly a batch: {counts:?}");
    assert!(held.iter().all(|guard| guard.is_valid()));
    Ok(())
}

async fn a_released_lock_is_renewed_no_more(scene: Scene) -> Verdict {
    let lease = scene.lease();
    let (client, counts) = counted(&scene).await?;
    let lock = client.mutex(scene.key().as_str()).with(Options::new().lease(lease));
    lock.acquire().await?.release().await?;
    let before = counts.total();
    tokio::time::sleep(lease * 2).await;
    assert_eq!(counts.total(), before, "{counts:?}");
    Ok(())
}
