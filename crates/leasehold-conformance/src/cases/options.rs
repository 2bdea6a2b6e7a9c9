//! What can be said about any acquisition, and what a guard says about itself.

use std::time::Duration;

use leasehold_core::{Capability, ErrorKind, Feature, Guard, Key, Leases, Loss, Options, Released, Result};
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::{GLANCE, LONG, SLACK, Scene};
use crate::verdict::{Stop, Verdict};

cases!("options":
    a_fixed_lease_ends,
    a_fixed_lease_can_be_renewed_by_hand,
    max_hold_ends_the_hold_and_frees_the_key,
    lock_delay_keeps_the_key_after_a_loss,
    lock_delay_does_not_keep_the_key_after_a_release,
    a_guard_is_valid_for_less_than_its_lease,
    a_signal_outlives_its_guard,
    run_gives_what_the_work_gives,
    run_stops_the_work_when_the_lock_is_lost,
    renewing_a_lost_guard_says_so,
    bad_names_are_refused,
    bad_numbers_are_refused,
    bad_numbers_of_permits_are_refused,
    another_kind_on_a_key_in_use_is_a_conflict,
    a_mutex_and_a_read_write_lock_exclude_each_other,
    inspect_and_list_show_what_is_held,
    a_watch_sees_the_key_taken_and_freed,
);

async fn a_fixed_lease_ends(scene: Scene) -> Verdict {
    let (key, lease) = (scene.key(), scene.lease());
    let client = scene.fixture.connect().await?;
    let start = Instant::now();
    let guard = client.mutex(key.as_str()).with(Options::new().fixed(lease)).acquire().await?;
    let loss = tokio::time::timeout(lease + SLACK, guard.lost()).await;
    assert_eq!(loss.ok(), Some(Loss::Expired));
    assert!(!guard.is_valid());
    assert!(start.elapsed() >= lease / 2, "lost after {:?} of {lease:?}", start.elapsed());
    scene.until_free(&key).await
}

async fn a_fixed_lease_can_be_renewed_by_hand(scene: Scene) -> Verdict {
    let (key, lease) = (scene.key(), scene.lease());
    let client = scene.fixture.connect().await?;
    let guard = client.mutex(key.as_str()).with(Options::new().fixed(lease)).acquire().await?;
    let start = Instant::now();
    while start.elapsed() < lease * 2 {
        tokio::time::sleep(lease / 10).await;
        guard.renew(lease).await?;
    }
    assert!(guard.is_valid());
    if scene.info().leases == Leases::PerClaim {
        guard.renew(LONG).await?;
        assert!(guard.valid_for() > lease);
    }
    assert_eq!(guard.release().await?, Released::Held);
    Ok(())
}

async fn max_hold_ends_the_hold_and_frees_the_key(scene: Scene) -> Verdict {
    let (key, limit) = (scene.key(), scene.lease());
    let client = scene.fixture.connect().await?;
    // The lease alone would keep it for much longer.
    let options = Options::new().lease(limit * 2).max_hold(limit);
    let guard = client.mutex(key.as_str()).with(options).acquire().await?;
    let start = Instant::now();
    let loss = tokio::time::timeout(limit + SLACK, guard.lost()).await;
    assert_eq!(loss.ok(), Some(Loss::HeldTooLong));
    assert!(start.elapsed() + GLANCE >= limit);
    scene.until_free(&key).await
}

async fn lock_delay_keeps_the_key_after_a_loss(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::LockDelay)?;
    let (key, lease) = (scene.key(), scene.lease());
    let client = scene.fixture.connect().await?;
    let options = Options::new().fixed(lease).lock_delay(lease);
    let start = Instant::now();
    let guard = client.mutex(key.as_str()).with(options).acquire().await?;
    let next = scene.fixture.connect().await?.mutex(key.as_str()).acquire_within(lease * 2 + SLACK).await?;
    assert!(next.is_some());
    // On a session, the client itself leaves when the guard's deadline has passed.
    let lost_after = match scene.info().leases {
        Leases::PerClaim => lease,
        Leases::Shared => lease * 9 / 10 - scene.info().rounding,
    };
    let took = start.elapsed();
    assert!(took >= lost_after + lease, "free after {took:?}");
    drop(guard);
    Ok(())
}

async fn lock_delay_does_not_keep_the_key_after_a_release(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::LockDelay)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = client.mutex(key.as_str()).with(Options::new().lock_delay(LONG));
    lock.acquire().await?.release().await?;
    assert!(lock.try_acquire().await?.is_some());
    Ok(())
}

async fn a_guard_is_valid_for_less_than_its_lease(scene: Scene) -> Verdict {
    let (key, lease) = (scene.key(), Duration::from_secs(20));
    let client = scene.fixture.connect().await?;
    let guard = client.mutex(key.as_str()).with(Options::new().lease(lease)).acquire().await?;
    // The rest is for clocks that do not run alike.
    let most = lease.mul_f64(0.9).saturating_sub(scene.info().rounding);
    assert!(guard.valid_for() <= most && guard.valid_for() > lease / 2, "{:?}", guard.valid_for());
    Ok(())
}

async fn a_signal_outlives_its_guard(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let guard = client.mutex(scene.key().as_str()).acquire().await?;
    let signal = guard.signal();
    assert!(!signal.is_lost());
    guard.release().await?;
    assert!(signal.is_lost());
    assert_eq!(signal.lost().await, Loss::Released);
    Ok(())
}

async fn run_gives_what_the_work_gives(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let guard = client.mutex(scene.key().as_str()).acquire().await?;
    assert_eq!(guard.run(async { 42 }).await?, 42);
    Ok(())
}

async fn run_stops_the_work_when_the_lock_is_lost(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let options = Options::new().fixed(scene.lease());
    let guard = client.mutex(scene.key().as_str()).with(options).acquire().await?;
    let work = tokio::time::timeout(scene.lease() + SLACK, guard.run(std::future::pending::<()>())).await;
    let error = work.map_err(|_| Stop::fail("the work goes on without the lock"))?.expect_err("it was lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    Ok(())
}

async fn renewing_a_lost_guard_says_so(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let client = scene.fixture.connect().await?;
    let guard = client.mutex(scene.key().as_str()).acquire().await?;
    assert!(client.evict(guard.key().as_str(), guard.token()).await?);
    let error = guard.renew(scene.lease()).await.expect_err("it was evicted");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(!guard.is_valid());
    Ok(())
}

async fn bad_names_are_refused(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    for name in [String::new(), "x".repeat(Key::MAX + 1)] {
        let refused = client.mutex(&name).acquire().await.expect_err("it is no name");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    Ok(())
}

async fn bad_numbers_are_refused(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let key = scene.key();
    let too_long = scene.info().max_lease + Duration::from_secs(1);
    let refused = [
        client.mutex(key.as_str()).with(Options::new().fixed(Duration::ZERO)).acquire().await,
        client.mutex(key.as_str()).with(Options::new().lease(too_long)).acquire().await,
    ];
    refused_for_their_numbers(refused);
    assert_eq!(scene.inspect(&key).await?, None);
    Ok(())
}

async fn bad_numbers_of_permits_are_refused(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let client = scene.fixture.connect().await?;
    let key = scene.key();
    let refused = [
        client.semaphore(key.as_str(), 0).acquire().await,
        client.semaphore(key.as_str(), u64::MAX).acquire().await,
        client.semaphore(key.as_str(), 3).permits(4).acquire().await,
        client.semaphore(key.as_str(), 3).permits(0).acquire().await,
    ];
    refused_for_their_numbers(refused);
    assert_eq!(scene.inspect(&key).await?, None);
    Ok(())
}

fn refused_for_their_numbers<const N: usize>(refused: [Result<Guard>; N]) {
    for (number, refused) in refused.into_iter().enumerate() {
        let kind = refused.map(|_| ()).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::Invalid), "number {number}");
    }
}

async fn another_kind_on_a_key_in_use_is_a_conflict(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let client = scene.fixture.connect().await?;
    let key = scene.key();
    let _guard = client.mutex(key.as_str()).acquire().await?;
    let conflict = client.semaphore(key.as_str(), 5).try_acquire().await.map(|_| ()).map_err(|e| e.kind());
    assert_eq!(conflict, Err(ErrorKind::Conflict));
    Ok(())
}

async fn a_mutex_and_a_read_write_lock_exclude_each_other(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    let client = scene.fixture.connect().await?;
    let key = scene.key();
    let _guard = client.mutex(key.as_str()).acquire().await?;
    assert!(client.rwlock(key.as_str()).read().try_acquire().await?.is_none());
    Ok(())
}

async fn inspect_and_list_show_what_is_held(scene: Scene) -> Verdict {
    scene.needs(Capability::List)?;
    let client = scene.fixture.connect().await?;
    let key = scene.key();
    let guard = client.mutex(key.as_str()).acquire().await?;
    let seen = client.inspect(key.as_str()).await?.expect("it is held");
    assert_eq!(seen.holders[0].token, guard.token());
    let listed = client.list(key.as_str()).await?;
    assert_eq!(listed.iter().map(|seen| &seen.key).collect::<Vec<_>>(), [&key]);
    guard.release().await?;
    assert_eq!(client.inspect(key.as_str()).await?, None);
    Ok(())
}

async fn a_watch_sees_the_key_taken_and_freed(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let key = scene.key();
    let mut watch = client.watch(key.as_str())?;
    assert_eq!(watch.next().await?, None);
    let guard = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let taken = tokio::time::timeout(SLACK, watch.next()).await.map_err(|_| Stop::fail("not seen"))??;
    let shown = taken.expect("it is held").holders[0].token;
    assert!(shown == guard.token() || !scene.info().can(Capability::Sight), "{shown}");
    guard.release().await?;
    let freed = tokio::time::timeout(SLACK, watch.next()).await.map_err(|_| Stop::fail("not seen"))??;
    assert_eq!(freed, None);
    Ok(())
}
