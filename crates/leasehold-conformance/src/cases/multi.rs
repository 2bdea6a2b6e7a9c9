//! Several locks at once, or none.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Capability, Client, ErrorKind, Feature, Key, Loss, Memory, Multi, Options, Released};
use tokio::sync::Barrier;
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::{Scene, soon};
use crate::spy::{Call, Spy};
use crate::verdict::{Stop, Verdict};

cases!("multi":
    all_are_held_together,
    a_busy_part_leaves_the_others_free,
    one_limit_covers_the_wait_for_all,
    parts_that_were_waited_for_come_free_again_after_the_limit,
    opposite_orders_never_wait_in_a_circle,
    parts_are_released_in_reverse,
    one_lost_part_is_told,
    one_lost_part_does_not_keep_the_others,
    a_key_named_twice_is_refused,
    a_multi_lock_of_nothing_is_refused,
    a_cancelled_acquire_leaves_nothing,
    a_dropped_guard_frees_all,
    parts_may_be_of_different_kinds,
    parts_may_be_on_different_stores,
);

/// Fresh keys in the one order.
fn keys<const N: usize>(scene: &Scene) -> [Key; N] {
    let mut keys = std::array::from_fn(|_| scene.key());
    keys.sort();
    keys
}

/// The mutexes with these keys, as this client sees them.
fn all(client: &Client, keys: &[&Key]) -> Multi {
    keys.iter().fold(Multi::new(), |multi, key| multi.and(client.mutex(key.as_str())))
}

async fn all_are_held_together(scene: Scene) -> Verdict {
    let [a, b, c] = keys(&scene);
    let client = scene.fixture.connect().await?;
    let held = all(&client, &[&c, &a, &b]).acquire().await?;
    for key in [&a, &b, &c] {
        assert_eq!(scene.raw(key).await?.holders, 1);
        assert!(client.mutex(key.as_str()).try_acquire().await?.is_none());
    }
    let in_order: Vec<&Key> = held.guards().iter().map(|guard| guard.key()).collect();
    assert_eq!(in_order, [&a, &b, &c], "not acquired in the one order");
    assert!(held.is_valid() && !held.valid_for().is_zero());
    assert_eq!(held.release().await?, Released::Held);
    for key in [&a, &b, &c] {
        scene.until_nothing_is_left(key).await?;
    }
    Ok(())
}

async fn a_busy_part_leaves_the_others_free(scene: Scene) -> Verdict {
    let [a, b] = keys(&scene);
    let client = scene.fixture.connect().await?;
    let _busy = scene.fixture.connect().await?.mutex(b.as_str()).acquire().await?;
    assert!(all(&client, &[&a, &b]).try_acquire().await?.is_none());
    assert_eq!(scene.raw(&a).await?.holders, 0, "it kept one of two");
    let crowd = scene.raw(&b).await?;
    assert_eq!((crowd.holders, crowd.waiters), (1, 0));
    Ok(())
}

async fn one_limit_covers_the_wait_for_all(scene: Scene) -> Verdict {
    const LIMIT: Duration = Duration::from_millis(1200);
    let [a, b] = keys(&scene);
    let other = scene.fixture.connect().await?;
    let (first, _second) =
        (other.mutex(a.as_str()).acquire().await?, other.mutex(b.as_str()).acquire().await?);
    let both = all(&scene.fixture.connect().await?, &[&a, &b]);
    let start = Instant::now();
    let waiting = tokio::spawn(async move { both.acquire_within(LIMIT).await });
    scene.until_waiting(&a, 1).await?;
    // Most of the limit is spent on the first part; the rest is too short for a limit of the second's own.
    tokio::time::sleep_until(start + LIMIT * 3 / 4).await;
    let freed = Instant::now();
    first.release().await?;
    assert!(soon(waiting).await?.map_err(Stop::fail)??.is_none());
    assert!(start.elapsed() >= LIMIT, "{:?}", start.elapsed());
    assert!(freed.elapsed() < LIMIT, "the second part was waited for with a limit of its own");
    Ok(())
}

async fn parts_that_were_waited_for_come_free_again_after_the_limit(scene: Scene) -> Verdict {
    let [a, b] = keys(&scene);
    let _busy = scene.fixture.connect().await?.mutex(b.as_str()).acquire().await?;
    let client = scene.fixture.connect().await?;
    let none = all(&client, &[&b, &a]).acquire_within(Duration::from_millis(400)).await?;
    assert!(none.is_none());
    scene.until_raw(&a, |now| now.holders == 0).await?;
    scene.until_raw(&b, |now| (now.holders, now.waiters) == (1, 0)).await
}

async fn opposite_orders_never_wait_in_a_circle(scene: Scene) -> Verdict {
    const ROUNDS: usize = 40;
    let [a, b, c] = keys(&scene);
    let orders = [[&a, &b, &c], [&c, &b, &a], [&b, &c, &a]];
    let (start, mut workers) = (Arc::new(Barrier::new(orders.len())), Vec::new());
    for order in orders {
        let (multi, start) = (all(&scene.fixture.connect().await?, &order), start.clone());
        workers.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                // Together, or they might never meet.
                soon(start.wait()).await?;
                soon(multi.acquire()).await??.release().await?;
            }
            Ok::<_, Stop>(())
        }));
    }
    for worker in workers {
        worker.await.map_err(Stop::fail)??;
    }
    Ok(())
}

async fn parts_are_released_in_reverse(scene: Scene) -> Verdict {
    let [a, b, c] = keys(&scene);
    let released = Arc::new(Mutex::new(Vec::new()));
    let notes = released.clone();
    let spy = Spy::new(scene.fixture.store().await?, move |call| {
        if let Call::Release(claim, Some(_)) = call {
            notes.lock().unwrap_or_else(PoisonError::into_inner).push(claim.key.clone());
        }
    });
    let client = Client::new(spy).await?;
    all(&client, &[&b, &a, &c]).acquire().await?.release().await?;
    assert_eq!(*released.lock().unwrap_or_else(PoisonError::into_inner), [c, b, a]);
    Ok(())
}

/// Two locks on short leases, the second of which was taken away.
async fn one_of_two_lost(scene: &Scene, [a, b]: [&Key; 2]) -> Verdict<leasehold_core::MultiGuard> {
    scene.needs(Capability::Evict)?;
    let client = scene.fixture.connect().await?;
    let options = Options::new().lease(scene.lease());
    let part = |key: &Key| client.mutex(key.as_str()).with(options.clone());
    let held = Multi::new().and(part(a)).and(part(b)).acquire().await?;
    let token = held.guards()[1].token();
    assert!(scene.fixture.connect().await?.evict(b.as_str(), token).await?);
    Ok(held)
}

async fn one_lost_part_is_told(scene: Scene) -> Verdict {
    let [a, b] = keys(&scene);
    let held = one_of_two_lost(&scene, [&a, &b]).await?;
    assert_eq!(soon(held.lost()).await?, (&b, Loss::Gone));
    assert!(!held.is_valid() && held.valid_for().is_zero());
    assert!(held.guards()[0].is_valid());
    Ok(())
}

async fn one_lost_part_does_not_keep_the_others(scene: Scene) -> Verdict {
    let [a, b] = keys(&scene);
    let held = one_of_two_lost(&scene, [&a, &b]).await?;
    assert_eq!(held.release().await?, Released::Gone);
    assert_eq!(scene.raw(&a).await?.holders, 0);
    Ok(())
}

async fn a_key_named_twice_is_refused(scene: Scene) -> Verdict {
    let [a, b] = keys(&scene);
    let client = scene.fixture.connect().await?;
    let error = all(&client, &[&a, &b, &a]).acquire().await.expect_err("it would wait for itself");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(error.key(), Some(&a));
    assert_eq!(scene.raw(&b).await?.holders, 0, "nothing is asked before all is checked");
    Ok(())
}

async fn a_multi_lock_of_nothing_is_refused(_scene: Scene) -> Verdict {
    let kinds = [
        Multi::new().acquire().await.map(drop),
        Multi::new().try_acquire().await.map(drop),
        Multi::new().acquire_within(Duration::ZERO).await.map(drop),
    ]
    .map(|result| result.expect_err("there is nothing to hold").kind());
    assert_eq!(kinds, [ErrorKind::Invalid; 3]);
    Ok(())
}

async fn a_cancelled_acquire_leaves_nothing(scene: Scene) -> Verdict {
    let [a, b] = keys(&scene);
    let busy = scene.fixture.connect().await?.mutex(b.as_str()).acquire().await?;
    let both = all(&scene.fixture.connect().await?, &[&a, &b]);
    let waiting = tokio::spawn(async move { both.acquire().await.map(drop) });
    scene.until_waiting(&b, 1).await?;
    assert_eq!(scene.raw(&a).await?.holders, 1);
    waiting.abort();
    scene.until_raw(&b, |now| (now.holders, now.waiters) == (1, 0)).await?;
    scene.until_raw(&a, |now| now.holders == 0).await?;
    busy.release().await?;
    scene.until_nothing_is_left(&a).await?;
    scene.until_nothing_is_left(&b).await
}

async fn a_dropped_guard_frees_all(scene: Scene) -> Verdict {
    let [a, b] = keys(&scene);
    let client = scene.fixture.connect().await?;
    drop(all(&client, &[&a, &b]).acquire().await?);
    scene.until_nothing_is_left(&a).await?;
    scene.until_nothing_is_left(&b).await
}

async fn parts_may_be_of_different_kinds(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    scene.needs_feature(Feature::Semaphore)?;
    let [a, b, c] = keys(&scene);
    let client = scene.fixture.connect().await?;
    let (shared, permits) = (client.rwlock(a.as_str()), client.semaphore(b.as_str(), 3));
    let held = Multi::new()
        .and(client.mutex(c.as_str()))
        .and(permits.permits(2))
        .and(shared.read())
        .acquire()
        .await?;
    assert!(shared.read().try_acquire().await?.is_some(), "readers share");
    assert!(permits.permits(2).try_acquire().await?.is_none());
    assert_eq!(held.guards()[1].units(), 2);
    assert_eq!(held.release().await?, Released::Held);
    Ok(())
}

async fn parts_may_be_on_different_stores(scene: Scene) -> Verdict {
    let key = scene.key();
    let memory = Memory::new();
    let here = Client::builder().name("b").connect(scene.fixture.store().await?).await?;
    let there = Client::builder().name("a").connect(memory.clone()).await?;
    // The same key twice: two stores make two locks of it.
    let both = || Multi::new().and(here.mutex(key.as_str())).and(there.mutex(key.as_str()));
    let held = both().acquire().await?;
    assert!(held.guards().iter().all(|guard| guard.is_valid()));
    assert_eq!(scene.raw(&key).await?.holders, 1);
    assert!(there.inspect(key.as_str()).await?.is_some());
    assert_eq!(held.release().await?, Released::Held);

    let _busy = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    assert!(both().try_acquire().await?.is_none());
    assert!(there.inspect(key.as_str()).await?.is_none(), "it kept the lock on the other store");
    Ok(())
}
