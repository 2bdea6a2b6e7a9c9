//! A number of permits, each on a lease of its own.

use std::time::Duration;

use leasehold_core::layers::{Fault, Faults, Verb};
use leasehold_core::{Client, ErrorKind, Feature, Loss, Options, Released};

use crate::case::cases;
use crate::scene::{SLACK, Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("semaphore":
    as_many_hold_as_there_are_permits,
    permits_are_all_or_nothing,
    a_large_request_is_not_starved_by_small_ones,
    up_to_takes_what_there_is,
    available_counts_what_nobody_holds,
    each_acquisition_has_a_lease_of_its_own,
    a_release_gives_back_what_was_taken_and_no_more,
    permits_acquired_together_are_released_one_by_one,
    released_permits_stay_released_after_renewals,
    release_of_no_permit_or_of_too_many_is_invalid,
    a_lost_permit_given_back_late_adds_nothing,
    a_larger_limit_lets_waiters_in,
    a_smaller_limit_takes_nothing_from_holders,
    a_resize_is_seen_by_those_who_name_the_old_limit,
    a_waiter_larger_than_a_lowered_limit_blocks_nobody,
    more_permits_than_a_lowered_limit_are_invalid,
    a_late_copy_of_a_resize_does_not_undo_a_later_one,
    a_dropped_resize_changes_nothing_later,
);

async fn as_many_hold_as_there_are_permits(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    let mut held = Vec::new();
    for _ in 0..3 {
        let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 3);
        held.push(permits.try_acquire().await?.expect("a permit is free"));
    }
    let late = scene.fixture.connect().await?.semaphore(key.as_str(), 3);
    assert!(late.try_acquire().await?.is_none());
    assert_eq!(scene.raw(&key).await?.units, 3);
    held.pop().expect("three are held").release().await?;
    assert!(late.try_acquire().await?.is_some());
    Ok(())
}

async fn permits_are_all_or_nothing(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 5);
    let _three = permits.permits(3).acquire().await?;
    assert!(permits.permits(3).try_acquire().await?.is_none());
    assert_eq!(scene.raw(&key).await?.units, 3, "a part of it was taken");
    assert_eq!(permits.permits(2).try_acquire().await?.map(|guard| guard.units()), Some(2));
    Ok(())
}

async fn a_large_request_is_not_starved_by_small_ones(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    scene.needs_order()?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 3);
    let one = permits.acquire().await?;
    let all = permits.clone();
    let large = tokio::spawn(async move { all.permits(3).acquire().await });
    scene.until_waiting(&key, 1).await?;
    assert!(permits.try_acquire().await?.is_none(), "a small request overtook a large one");
    one.release().await?;
    let large = tokio::time::timeout(SLACK, large).await.map_err(|_| Stop::fail("still waiting"))?;
    assert_eq!(large.map_err(Stop::fail)??.units(), 3);
    Ok(())
}

async fn up_to_takes_what_there_is(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let permits = scene.fixture.connect().await?.semaphore(scene.key().as_str(), 5);
    let _two = permits.permits(2).acquire().await?;
    let rest = permits.up_to(5).acquire().await?;
    assert_eq!(rest.units(), 3);
    assert!(permits.up_to(5).try_acquire().await?.is_none());
    assert_eq!(rest.release().await?, Released::Held);
    assert_eq!(permits.up_to(2).acquire().await?.units(), 2);
    Ok(())
}

async fn available_counts_what_nobody_holds(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let permits = scene.fixture.connect().await?.semaphore(scene.key().as_str(), 4);
    assert_eq!(permits.available().await?, 4);
    let three = permits.permits(3).acquire().await?;
    assert_eq!(permits.available().await?, 1);
    three.release().await?;
    assert_eq!(permits.available().await?, 4);
    Ok(())
}

async fn each_acquisition_has_a_lease_of_its_own(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 2);
    let brief = permits.clone().with(Options::new().fixed(scene.lease())).acquire().await?;
    let lasting = permits.acquire().await?;
    let loss = tokio::time::timeout(scene.lease() + SLACK, brief.lost()).await;
    assert_eq!(loss.ok(), Some(Loss::Expired));
    assert!(lasting.is_valid());
    scene.until(&key, |seen| seen.is_some_and(|seen| seen.holders.len() == 1)).await?;
    lasting.renew(scene.lease()).await?;
    Ok(())
}

async fn a_release_gives_back_what_was_taken_and_no_more(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 3);
    for _ in 0..5 {
        permits.permits(2).acquire().await?.release().await?;
        drop(permits.acquire().await?);
        scene.until_nothing_is_left(&key).await?;
    }
    let _all = permits.permits(3).acquire().await?;
    assert!(permits.try_acquire().await?.is_none(), "there are more permits than before");
    Ok(())
}

async fn permits_acquired_together_are_released_one_by_one(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::PartialRelease)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 3);
    let mut held = permits.permits(3).acquire().await?;
    let token = held.token();
    let other = scene.fixture.connect().await?.semaphore(key.as_str(), 3);
    let mut waiters = Vec::new();
    for left in [2, 1] {
        let waiting = other.clone();
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        scene.until_waiting(&key, 1).await?;
        held.release_permits(1).await?;
        waiters.push(soon(waiter).await?.map_err(Stop::fail)??);
        assert_eq!((held.units(), scene.raw(&key).await?.units), (left, 3));
    }
    assert!(held.is_valid() && held.token() == token);
    assert_eq!(held.release().await?, Released::Held);
    assert_eq!(permits.available().await?, 1);
    Ok(())
}

async fn released_permits_stay_released_after_renewals(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::PartialRelease)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 5);
    let mut held = permits.up_to(4).acquire().await?;
    held.release_permits(3).await?;
    held.renew(scene.lease()).await?;
    assert_eq!((held.units(), permits.available().await?), (1, 4));
    let rest = permits.permits(4).try_acquire().await?.expect("four are free");
    assert!(permits.try_acquire().await?.is_none(), "there are more permits than before");
    rest.release().await?;
    held.release().await?;
    scene.until_nothing_is_left(&key).await
}

async fn release_of_no_permit_or_of_too_many_is_invalid(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::PartialRelease)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let permits = client.semaphore(key.as_str(), 3);
    let mut held = permits.permits(2).acquire().await?;
    for (n, reason) in [(0, "at least 1"), (2, "call `release`"), (3, "the guard has 2"), (u64::MAX, "has 2")]
    {
        let error = held.release_permits(n).await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!((held.units(), permits.available().await?), (2, 1));
    let mut lock = client.mutex(scene.key().as_str()).acquire().await?;
    let error = lock.release_permits(1).await.expect_err("a lock has no permits");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(lock.is_valid() && error.to_string().contains("is a lock"), "{error}");
    Ok(())
}

async fn a_lost_permit_given_back_late_adds_nothing(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 2);
    let lost = permits.clone().with(Options::new().fixed(scene.lease())).acquire().await?;
    lost.lost().await;
    scene.until_free(&key).await?;
    let _all = permits.permits(2).acquire().await?;
    assert_eq!(lost.release().await?, Released::Gone);
    assert!(permits.try_acquire().await?.is_none(), "a permit was given back twice");
    Ok(())
}

async fn a_larger_limit_lets_waiters_in(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Resize)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 1);
    let _one = permits.acquire().await?;
    let waiting = permits.clone();
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    scene.until_waiting(&key, 1).await?;
    permits.resize(2).await?;
    let waiter = tokio::time::timeout(SLACK, waiter).await.map_err(|_| Stop::fail("still waiting"))?;
    assert!(waiter.map_err(Stop::fail)??.is_valid());
    Ok(())
}

async fn a_smaller_limit_takes_nothing_from_holders(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Resize)?;
    let permits = scene.fixture.connect().await?.semaphore(scene.key().as_str(), 3);
    let (one, two) = (permits.acquire().await?, permits.acquire().await?);
    permits.resize(1).await?;
    assert!(one.is_valid() && two.is_valid());
    assert_eq!(permits.available().await?, 0);
    assert_eq!(one.release().await?, Released::Held);
    assert!(permits.try_acquire().await?.is_none());
    assert_eq!(two.release().await?, Released::Held);
    assert!(permits.try_acquire().await?.is_some());
    Ok(())
}

async fn a_resize_is_seen_by_those_who_name_the_old_limit(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Resize)?;
    let key = scene.key();
    let (one, two) = (scene.fixture.connect().await?, scene.fixture.connect().await?);
    one.semaphore(key.as_str(), 2).resize(1).await?;
    let permits = two.semaphore(key.as_str(), 2);
    let _held = permits.acquire().await?;
    assert!(permits.try_acquire().await?.is_none());
    one.semaphore(key.as_str(), 2).resize(2).await?;
    assert!(permits.try_acquire().await?.is_some());
    Ok(())
}

async fn a_waiter_larger_than_a_lowered_limit_blocks_nobody(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    scene.needs_feature(Feature::Resize)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 10);
    let all = permits.permits(10).acquire().await?;
    let large = scene.fixture.connect().await?.semaphore(key.as_str(), 10);
    let large = tokio::spawn(async move { large.permits(5).acquire().await });
    scene.until_waiting(&key, 1).await?;
    let small = scene.fixture.connect().await?.semaphore(key.as_str(), 10);
    let small = tokio::spawn(async move { small.permits(1).acquire().await });
    scene.until_waiting(&key, 2).await?;
    permits.resize(3).await?;
    all.release().await?;
    // The one that waited behind it, and one that comes only now.
    let waited = soon(small).await?.map_err(Stop::fail)??;
    let came = permits.try_acquire().await?.ok_or_else(|| Stop::fail("two permits are free"))?;
    assert!(!large.is_finished(), "five of three");
    permits.resize(10).await?;
    let large = soon(large).await?.map_err(Stop::fail)??;
    assert_eq!(scene.raw(&key).await?.units, 7);
    drop((waited, came, large));
    Ok(())
}

async fn more_permits_than_a_lowered_limit_are_invalid(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    scene.needs_feature(Feature::Resize)?;
    let key = scene.key();
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 10);
    permits.resize(3).await?;
    let refused = soon(permits.permits(5).acquire()).await?;
    assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    let _all = permits.permits(3).try_acquire().await?.ok_or_else(|| Stop::fail("three are free"))?;
    let refused = permits.permits(5).try_acquire().await;
    assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    let refused = soon(permits.permits(5).acquire()).await?;
    assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    assert_eq!(scene.raw(&key).await?.waiters, 0, "it left a place in the queue");
    Ok(())
}

/// How late a late copy of a resize is, and how long a case waits for it.
const LATE: Duration = Duration::from_millis(700);
const ARRIVED: Duration = Duration::from_millis(1500);

async fn a_late_copy_of_a_resize_does_not_undo_a_later_one(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Resize)?;
    let key = scene.key();
    let faults = Faults::new(scene.fixture.store().await?);
    let unlucky = Client::new(faults.clone()).await?.semaphore(key.as_str(), 5);
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 5);
    for (first, second) in [(10, 20), (4, 5)] {
        faults.once(Verb::Amend, Fault { again_after: Some(LATE), ..Fault::default() });
        unlucky.resize(first).await?;
        permits.resize(second).await?;
        tokio::time::sleep(ARRIVED).await;
        assert_eq!(
            permits.available().await?,
            second,
            "a late copy of resize({first}) has undone the later one"
        );
    }
    Ok(())
}

async fn a_dropped_resize_changes_nothing_later(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Resize)?;
    let key = scene.key();
    let faults = Faults::new(scene.fixture.store().await?);
    let unlucky = Client::new(faults.clone()).await?.semaphore(key.as_str(), 5);
    let permits = scene.fixture.connect().await?.semaphore(key.as_str(), 5);
    faults.once(Verb::Amend, Fault { before: LATE, ..Fault::default() });
    let given_up = tokio::time::timeout(Duration::from_millis(50), unlucky.resize(10)).await;
    assert!(given_up.is_err(), "the request was still under way");
    permits.resize(20).await?;
    tokio::time::sleep(ARRIVED).await;
    assert_eq!(permits.available().await?, 20, "a resize that was given up has undone a later one");
    Ok(())
}
