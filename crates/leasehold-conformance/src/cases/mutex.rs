//! One at a time, in order, through everything that lets one in at a time.

use std::time::Duration;

use leasehold_core::{Capability, ErrorKind, Loss, Options, Released};
use tokio::time::Instant;

use crate::case::viewed_cases;
use crate::scene::{LONG, SLACK};
use crate::verdict::{Stop, Verdict};
use crate::views::{Held, Lock, Stage};

viewed_cases!(
    second_client_waits_until_release,
    try_acquire_gives_none_while_it_is_held,
    the_holder_itself_finds_it_busy,
    acquire_within_gives_none_and_leaves_no_place,
    acquire_within_succeeds_when_it_comes_free_in_time,
    waiters_get_it_in_order_of_arrival,
    barging_does_not_take_what_is_held,
    tokens_rise_from_holder_to_holder,
    release_says_that_it_held,
    a_dropped_guard_frees_the_key,
    a_guard_dropped_outside_of_a_runtime_frees_the_key,
    an_evicted_guard_is_lost_and_says_why,
    an_evicted_guard_cannot_hurt_the_next_holder,
    renewal_keeps_a_short_lease_alive,
    the_loser_knows_before_the_next_one_holds,
    the_label_is_shown,
    close_frees_the_key_and_ends_the_guard,
    close_wakes_waiters_with_an_error,
    a_client_whose_runtime_dies_frees_the_key_by_its_lease,
);

/// Starts to acquire and returns once the store shows the place in the queue.
async fn queue_up(
    stage: &Stage,
    lock: Lock,
    place: usize,
) -> Verdict<tokio::task::JoinHandle<Verdict<Held>>> {
    let waiting = tokio::spawn(async move { Ok(lock.acquire().await?) });
    stage.until_crowd((1, place)).await?;
    Ok(waiting)
}

/// What a spawned acquire gave.
async fn outcome(waiting: tokio::task::JoinHandle<Verdict<Held>>) -> Verdict<Held> {
    let patience = SLACK * 2;
    match tokio::time::timeout(patience, waiting).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Stop::fail(panic)),
        Err(_) => Err(Stop::fail(format_args!("still waiting after {patience:?}"))),
    }
}

async fn second_client_waits_until_release(stage: Stage) -> Verdict {
    let first = stage.new_lock().await?.acquire().await?;
    let second = queue_up(&stage, stage.new_lock().await?, 1).await?;
    assert!(!second.is_finished());
    first.release().await?;
    let second = outcome(second).await?;
    assert!(second.is_valid());
    assert_eq!(stage.crowd().await?, (1, 0));
    Ok(())
}

async fn try_acquire_gives_none_while_it_is_held(stage: Stage) -> Verdict {
    let first = stage.new_lock().await?.try_acquire().await?.expect("it is free");
    let other = stage.new_lock().await?;
    assert!(other.try_acquire().await?.is_none());
    assert_eq!(stage.crowd().await?, (1, 0));
    first.release().await?;
    assert!(other.try_acquire().await?.is_some());
    Ok(())
}

async fn the_holder_itself_finds_it_busy(stage: Stage) -> Verdict {
    let lock = stage.new_lock().await?;
    let _held = lock.acquire().await?;
    assert!(lock.try_acquire().await?.is_none());
    Ok(())
}

async fn acquire_within_gives_none_and_leaves_no_place(stage: Stage) -> Verdict {
    const LIMIT: Duration = Duration::from_millis(400);
    let _held = stage.new_lock().await?.acquire().await?;
    let start = Instant::now();
    assert!(stage.new_lock().await?.acquire_within(LIMIT).await?.is_none());
    assert!(start.elapsed() >= LIMIT);
    // Its place goes with it or, when the store is slow to answer, soon after it.
    stage.until_crowd((1, 0)).await
}

async fn acquire_within_succeeds_when_it_comes_free_in_time(stage: Stage) -> Verdict {
    let held = stage.new_lock().await?.acquire().await?;
    let lock = stage.new_lock().await?;
    let waiting = tokio::spawn(async move {
        let given = lock.acquire_within(LONG).await?;
        given.ok_or_else(|| Stop::fail("none, long before the limit"))
    });
    stage.until_crowd((1, 1)).await?;
    held.release().await?;
    assert!(outcome(waiting).await?.is_valid());
    Ok(())
}

async fn waiters_get_it_in_order_of_arrival(stage: Stage) -> Verdict {
    stage.scene.needs_order()?;
    let mut holder = stage.new_lock().await?.acquire().await?;
    let mut queue = Vec::new();
    for place in 1..=4 {
        queue.push(queue_up(&stage, stage.new_lock().await?, place).await?);
    }
    for next in queue {
        holder.release().await?;
        // Whoever else had come first would hold it now, and this would never be done.
        holder = outcome(next).await?;
    }
    assert_eq!(stage.crowd().await?, (1, 0));
    Ok(())
}

async fn barging_does_not_take_what_is_held(stage: Stage) -> Verdict {
    let held = stage.new_lock().await?.acquire().await?;
    let waiter = queue_up(&stage, stage.new_lock().await?, 1).await?;
    let barger = stage.new_lock().await?.with(Options::new().barging());
    assert!(barger.try_acquire().await?.is_none());
    held.release().await?;
    assert!(outcome(waiter).await?.is_valid());
    Ok(())
}

async fn tokens_rise_from_holder_to_holder(stage: Stage) -> Verdict {
    let mut last = 0;
    for _ in 0..5 {
        let held = stage.new_lock().await?.acquire().await?;
        assert!(held.token() > last, "{} after {last}", held.token());
        let shown = stage.token().await?;
        assert!(shown == held.token() || !stage.scene.info().can(Capability::Sight), "{shown}");
        last = held.token();
        held.release().await?;
    }
    Ok(())
}

async fn release_says_that_it_held(stage: Stage) -> Verdict {
    let held = stage.new_lock().await?.acquire().await?;
    assert_eq!(held.release().await?, Released::Held);
    stage.until_as_before().await
}

async fn a_dropped_guard_frees_the_key(stage: Stage) -> Verdict {
    let lock = stage.new_lock().await?;
    drop(lock.acquire().await?);
    stage.until_as_before().await
}

async fn a_guard_dropped_outside_of_a_runtime_frees_the_key(stage: Stage) -> Verdict {
    let lock = stage.new_lock().await?;
    let held = lock.acquire().await?;
    let dropped = std::thread::spawn(move || drop(held)).join();
    assert!(dropped.is_ok(), "dropping a guard panicked");
    stage.until_as_before().await
}

async fn an_evicted_guard_is_lost_and_says_why(stage: Stage) -> Verdict {
    stage.scene.needs(Capability::Evict)?;
    let options = Options::new().lease(stage.scene.lease());
    let held = stage.new_lock().await?.with(options).acquire().await?;
    assert!(stage.client().await?.evict(stage.key.as_str(), held.token()).await?);
    let loss = tokio::time::timeout(stage.scene.lease() + SLACK, held.lost()).await;
    assert_eq!(loss.ok(), Some(Loss::Gone));
    assert!(!held.is_valid() && held.valid_for().is_zero());
    assert_eq!(held.release().await?, Released::Gone);
    Ok(())
}

async fn an_evicted_guard_cannot_hurt_the_next_holder(stage: Stage) -> Verdict {
    stage.scene.needs(Capability::Evict)?;
    let old = stage.new_lock().await?.acquire().await?;
    assert!(stage.client().await?.evict(stage.key.as_str(), old.token()).await?);
    let new = stage.new_lock().await?.acquire().await?;
    assert_eq!(old.release().await?, Released::Gone);
    assert_eq!(stage.token().await?, new.token());
    assert_eq!(new.release().await?, Released::Held);
    Ok(())
}

async fn renewal_keeps_a_short_lease_alive(stage: Stage) -> Verdict {
    // Long enough for a machine that is busy with other things for most of the shortest.
    let lease = stage.scene.lease().max(Duration::from_secs(3));
    let held = stage.new_lock().await?.with(Options::new().lease(lease)).acquire().await?;
    let lost = tokio::time::timeout(lease * 3 / 2, held.lost()).await;
    assert!(lost.is_err(), "lost: {lost:?}");
    assert!(held.is_valid());
    assert_eq!(held.release().await?, Released::Held);
    Ok(())
}

async fn the_loser_knows_before_the_next_one_holds(stage: Stage) -> Verdict {
    let lease = stage.scene.lease();
    let first = stage.new_lock().await?.with(Options::new().fixed(lease)).acquire().await?;
    let second = stage.new_lock().await?.acquire().await?;
    assert!(!first.is_valid(), "two valid guards");
    assert!(second.token() > first.token());
    assert_eq!(first.lost().await, Loss::Expired);
    Ok(())
}

async fn the_label_is_shown(stage: Stage) -> Verdict {
    stage.scene.needs(Capability::Sight)?;
    let options = Options::new().label("nightly \u{1f319}");
    let _held = stage.new_lock().await?.with(options).acquire().await?;
    let seen = stage.scene.holders(&stage.key).await?;
    assert_eq!(seen.last().map(|holder| holder.label.as_str()), Some("nightly \u{1f319}"));
    Ok(())
}

async fn close_frees_the_key_and_ends_the_guard(stage: Stage) -> Verdict {
    let client = stage.client().await?;
    let held = stage.lock(&client).acquire().await?;
    client.close().await?;
    assert_eq!(stage.crowd().await?, (0, 0));
    assert!(!held.is_valid());
    assert_eq!(held.lost().await, Loss::Closed);
    Ok(())
}

async fn close_wakes_waiters_with_an_error(stage: Stage) -> Verdict {
    let held = stage.new_lock().await?.acquire().await?;
    let client = stage.client().await?;
    let lock = stage.lock(&client);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    stage.until_crowd((1, 1)).await?;
    client.close().await?;
    let woken =
        tokio::time::timeout(SLACK, waiting).await.map_err(|_| Stop::fail("the waiter was not woken"))?;
    let error = woken.map_err(Stop::fail)?.expect_err("it was closed");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Invalid | ErrorKind::Lost), "{error}");
    assert_eq!(stage.crowd().await?, (1, 0));
    assert!(held.is_valid());
    assert!(stage.lock(&client).acquire().await.is_err(), "a closed client acquires nothing");
    Ok(())
}

async fn a_client_whose_runtime_dies_frees_the_key_by_its_lease(stage: Stage) -> Verdict {
    let lease = stage.scene.lease();
    let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let doomed = doomed.map_err(Stop::fail)?;
    let (fixture, lock) = (stage.scene.fixture.clone(), stage.new_lock().await?);
    let holding = doomed.spawn(async move {
        let client = fixture.connect().await?;
        lock.on(&client).with(Options::new().lease(lease)).acquire().await
    });
    let held = holding.await.map_err(Stop::fail)??;
    doomed.shutdown_background();
    let lost = tokio::time::timeout(lease + SLACK, held.lost()).await;
    assert!(lost.is_ok(), "the guard of a dead runtime was never lost");
    let next = stage.new_lock().await?.acquire_within(lease + SLACK).await?;
    assert!(next.is_some(), "the key did not come free");
    assert!(!held.is_valid());
    Ok(())
}
