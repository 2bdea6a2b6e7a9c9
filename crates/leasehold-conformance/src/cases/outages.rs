//! Laws 4 to 8 while a store cannot be reached: the suite shuts a gate in front of it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Capability, Client, Feature, Guard, Loss, Options, Released, Result, WHOLE};
use tokio::time::Instant;

use crate::case::cases;
use crate::gate::{Gate, Passing};
use crate::scene::{GLANCE, SLACK, Scene, soon};
use crate::spy::{Counts, Spy};
use crate::verdict::{Stop, Verdict};

cases!("outages":
    every_call_ends_while_nothing_passes,
    a_guard_is_lost_before_its_lease_when_nothing_passes,
    an_outage_shorter_than_the_lease_loses_nothing,
    a_lost_guard_stays_lost_after_the_outage,
    a_waiter_keeps_its_place_through_an_outage,
    a_wait_that_runs_out_during_an_outage_is_an_error,
    a_first_request_that_runs_out_of_time_is_an_error,
    a_wait_behind_the_same_client_that_runs_out_during_an_outage_is_an_error,
    a_waiter_is_granted_although_every_notification_is_lost,
    a_claim_whose_reply_was_lost_is_granted_once,
    an_acquire_dropped_while_its_reply_is_lost_leaves_nothing,
    an_acquire_that_failed_leaves_nothing_after_the_outage,
    a_release_whose_reply_was_lost_frees_the_key,
    a_guard_dropped_during_an_outage_frees_the_key_after_it,
    a_late_renewal_does_not_undo_a_promotion,
    a_late_renewal_does_not_undo_an_upgrade,
    a_late_renewal_does_not_hurt_who_released,
    close_ends_while_nothing_passes,
);

/// How long one call may take here.
const CALL: Duration = Duration::from_millis(1500);
/// A lease that an outage of some calls does not end.
const AMPLE: Duration = Duration::from_secs(20);

/// A client behind a gate.
async fn gated(scene: &Scene) -> Verdict<(Client, Gate)> {
    let gate = Gate::new(scene.fixture.store().await?);
    Ok((Client::builder().call_timeout(CALL).connect(gate.clone()).await?, gate))
}

async fn every_call_ends_while_nothing_passes(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    let guard = client.mutex(scene.key().as_str()).acquire().await?;
    gate.let_pass(Passing::Nothing);
    let lock = client.mutex(key.as_str());
    let mut errors = vec![
        soon(lock.try_acquire()).await?.map(|_| ()),
        soon(lock.acquire()).await?.map(|_| ()),
        soon(client.inspect(key.as_str())).await?.map(|_| ()),
        soon(guard.release()).await?.map(|_| ()),
    ];
    if scene.info().supports(Feature::List) {
        errors.push(soon(client.list(key.as_str())).await?.map(|_| ()));
    }
    if scene.info().supports(Feature::Evict) {
        errors.push(soon(client.evict(key.as_str(), 1)).await?.map(|_| ()));
    }
    for (number, error) in errors.into_iter().enumerate() {
        let error = error.expect_err("nothing passes");
        assert!(error.is_retryable(), "call {number}: {error}");
    }
    Ok(())
}

async fn a_guard_is_lost_before_its_lease_when_nothing_passes(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let lease = scene.lease() * 2;
    let guard = client.mutex(scene.key().as_str()).with(Options::new().lease(lease)).acquire().await?;
    gate.let_pass(Passing::Nothing);
    let start = Instant::now();
    let promised = guard.valid_for();
    let loss = soon(guard.lost()).await?;
    assert_eq!(loss, Loss::Expired);
    assert!(!guard.is_valid() && guard.valid_for().is_zero());
    // No earlier than it had said, unless a renewal was under way just then.
    assert!(start.elapsed() + Duration::from_millis(1) >= promised, "{:?} of {promised:?}", start.elapsed());
    Ok(())
}

async fn an_outage_shorter_than_the_lease_loses_nothing(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let lease = Duration::from_secs(3);
    let guard = client.mutex(scene.key().as_str()).with(Options::new().lease(lease)).acquire().await?;
    gate.let_pass(Passing::Nothing);
    let lost = tokio::time::timeout(lease / 2, guard.lost()).await;
    gate.let_pass(Passing::Everything);
    assert!(lost.is_err(), "{lost:?}");
    let lost = tokio::time::timeout(lease, guard.lost()).await;
    assert!(lost.is_err(), "renewal did not go on after the outage: {lost:?}");
    assert_eq!(guard.release().await?, Released::Held);
    Ok(())
}

async fn a_lost_guard_stays_lost_after_the_outage(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    let options = Options::new().lease(scene.lease());
    let guard = client.mutex(key.as_str()).with(options).acquire().await?;
    gate.let_pass(Passing::Nothing);
    soon(guard.lost()).await?;
    gate.let_pass(Passing::Everything);
    // Its claim must not be kept alive for nobody.
    let next = scene.fixture.connect().await?.mutex(key.as_str()).acquire_within(SLACK).await?;
    assert!(next.is_some(), "the key is kept by a guard that is lost");
    assert!(!guard.is_valid());
    Ok(())
}

async fn a_waiter_keeps_its_place_through_an_outage(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let key = scene.key();
    let holder = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, gate) = gated(&scene).await?;
    let lock = client.mutex(key.as_str()).with(Options::new().lease(AMPLE));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_waiting(&key, 1).await?;
    gate.all_answered().await;
    gate.let_pass(Passing::Nothing);
    let later = scene.claim(&key, WHOLE, WHOLE)?;
    scene.store.claim(&later).await?;
    tokio::time::sleep(CALL * 2).await;
    gate.let_pass(Passing::Everything);
    assert!(!waiting.is_finished(), "the outage ended the wait");
    holder.release().await?;
    let guard = soon(waiting).await?.map_err(Stop::fail)??;
    assert!(guard.is_valid());
    scene.shows(&key, guard.token()).await?;
    Ok(())
}

/// How much longer than its limit a wait may take to end.
const OVERTIME: Duration = Duration::from_secs(1);

/// Waits for the lock until the limit, and checks that the outage is reported and that the report comes in time.
async fn reports_the_outage(lock: impl Future<Output = Result<Option<Guard>>>, limit: Duration) -> Verdict {
    let start = Instant::now();
    let outcome = soon(lock).await?;
    let took = start.elapsed();
    let error = outcome.expect_err("an outage is not \"busy\"");
    assert!(error.is_retryable(), "{error}");
    assert!(took < limit + OVERTIME, "{took:?} for a wait of {limit:?}");
    Ok(())
}

async fn a_wait_that_runs_out_during_an_outage_is_an_error(scene: Scene) -> Verdict {
    let key = scene.key();
    let _holder = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, gate) = gated(&scene).await?;
    let (lock, limit) = (client.mutex(key.as_str()), CALL * 2);
    let outage = async {
        scene.until_waiting(&key, 1).await?;
        gate.all_answered().await;
        gate.let_pass(Passing::Nothing);
        Ok(())
    };
    let (reported, outage) = tokio::join!(reports_the_outage(lock.acquire_within(limit), limit), outage);
    outage.and(reported)
}

async fn a_first_request_that_runs_out_of_time_is_an_error(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    gate.let_pass(Passing::Nothing);
    let (lock, limit) = (client.mutex(scene.key().as_str()), CALL / 3);
    reports_the_outage(lock.acquire_within(limit), limit).await
}

/// Tasks of one client pass the lock on among themselves, so the store never hears of the second one.
async fn a_wait_behind_the_same_client_that_runs_out_during_an_outage_is_an_error(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let lock = client.mutex(scene.key().as_str()).with(Options::new().lease(AMPLE));
    let _holder = lock.acquire().await?;
    gate.all_answered().await;
    gate.let_pass(Passing::Nothing);
    reports_the_outage(lock.acquire_within(CALL * 2), CALL * 2).await
}

async fn a_waiter_is_granted_although_every_notification_is_lost(scene: Scene) -> Verdict {
    let key = scene.key();
    let holder = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, gate) = gated(&scene).await?;
    gate.let_pass(Passing::NoNotifications);
    let lock = client.mutex(key.as_str());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_waiting(&key, 1).await?;
    holder.release().await?;
    assert!(soon(waiting).await?.map_err(Stop::fail)??.is_valid());
    Ok(())
}

async fn a_claim_whose_reply_was_lost_is_granted_once(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    gate.let_pass(Passing::NoReplies);
    let lock = client.mutex(key.as_str());
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    scene.until_raw(&key, |now| now.holders == 1).await?;
    gate.let_pass(Passing::Everything);
    let guard = soon(acquiring).await?.map_err(Stop::fail)??;
    assert!(guard.is_valid());
    assert_eq!(scene.raw(&key).await?.holders, 1);
    scene.shows(&key, guard.token()).await?;
    assert_eq!(guard.release().await?, Released::Held);
    Ok(())
}

async fn an_acquire_dropped_while_its_reply_is_lost_leaves_nothing(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    gate.let_pass(Passing::NoReplies);
    let lock = client.mutex(key.as_str());
    let acquiring = tokio::spawn(async move { lock.acquire().await.map(drop) });
    scene.until_raw(&key, |now| now.holders == 1).await?;
    acquiring.abort();
    gate.let_pass(Passing::Everything);
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn an_acquire_that_failed_leaves_nothing_after_the_outage(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    gate.let_pass(Passing::NoReplies);
    let failed = soon(client.mutex(key.as_str()).acquire()).await?;
    assert!(failed.is_err(), "no reply came");
    gate.let_pass(Passing::Everything);
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn a_release_whose_reply_was_lost_frees_the_key(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    let guard = client.mutex(key.as_str()).acquire().await?;
    gate.let_pass(Passing::NoReplies);
    assert!(soon(guard.release()).await?.is_err(), "no reply came");
    scene.until_raw(&key, |now| now.holders == 0).await?;
    gate.let_pass(Passing::Everything);
    assert!(soon(client.mutex(key.as_str()).acquire()).await??.is_valid());
    Ok(())
}

async fn a_guard_dropped_during_an_outage_frees_the_key_after_it(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    let guard = client.mutex(key.as_str()).with(Options::new().lease(AMPLE)).acquire().await?;
    gate.let_pass(Passing::Nothing);
    drop(guard);
    tokio::time::sleep(CALL * 2).await;
    gate.let_pass(Passing::Everything);
    // Long before its lease: the release goes on.
    scene.until_raw(&key, |now| now.holders == 0).await
}

/// A client whose replies to renewals can be held up, and a count of the renewals that the store has answered.
async fn delayed(scene: &Scene) -> Verdict<(Client, Gate, Arc<Counts>)> {
    let (spy, counts) = Spy::counting(scene.fixture.store().await?);
    let gate = Gate::new(Arc::new(spy));
    Ok((Client::builder().call_timeout(AMPLE).connect(gate.clone()).await?, gate, counts))
}

/// Waits until the store has answered one more renewal, whose reply is held up.
async fn until_one_is_late(gate: &Gate, counts: &Counts) -> Verdict {
    gate.let_pass(Passing::LateRenewals);
    let before = counts.renewals();
    let limit = Instant::now() + SLACK;
    while counts.renewals() == before {
        if Instant::now() > limit {
            return Err(Stop::fail("nothing was renewed"));
        }
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

async fn a_late_renewal_does_not_undo_a_promotion(scene: Scene) -> Verdict {
    scene.needs_pushes()?;
    let key = scene.key();
    let (client, gate, counts) = delayed(&scene).await?;
    let holder = client.mutex(key.as_str()).acquire().await?;
    let lock = client.mutex(key.as_str());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_waiting(&key, 1).await?;
    // The waiter asks how it stands; the store says "waiting", and that reply takes its time. Meanwhile it is
    // promoted, and told so.
    until_one_is_late(&gate, &counts).await?;
    holder.release().await?;
    let told = tokio::time::timeout(SLACK, waiting).await;
    gate.let_pass(Passing::Everything);
    let told = told.map_err(|_| Stop::skip("no notification says so much that the waiter could go on"))?;
    let guard = told.map_err(Stop::fail)??;
    let lost = tokio::time::timeout(CALL, guard.lost()).await;
    assert!(lost.is_err(), "an old reply ended a new hold: {lost:?}");
    assert_eq!(guard.release().await?, Released::Held);
    Ok(())
}

async fn a_late_renewal_does_not_undo_an_upgrade(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let (client, gate, counts) = delayed(&scene).await?;
    let lock = client.rwlock(key.as_str()).with(Options::new().lease(Duration::from_secs(3)));
    let upgradable = lock.upgradable().acquire().await?;
    // Its renewal is answered with the units and the token of a reader, and that reply takes its time.
    until_one_is_late(&gate, &counts).await?;
    let writer = soon(upgradable.upgrade()).await??;
    let (token, units) = (writer.token(), writer.units());
    gate.let_pass(Passing::Everything);
    let limit = Instant::now() + CALL;
    while Instant::now() < limit {
        assert_eq!((writer.token(), writer.units()), (token, units), "an old reply undid the upgrade");
        tokio::time::sleep(GLANCE).await;
    }
    assert!(writer.is_valid());
    Ok(())
}

async fn a_late_renewal_does_not_hurt_who_released(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, gate, counts) = delayed(&scene).await?;
    let options = Options::new().lease(Duration::from_secs(3));
    let guard = client.mutex(key.as_str()).with(options.clone()).acquire().await?;
    let signal = guard.signal();
    until_one_is_late(&gate, &counts).await?;
    assert_eq!(soon(guard.release()).await??, Released::Held);
    let next = soon(client.mutex(key.as_str()).with(options).acquire()).await??;
    gate.let_pass(Passing::Everything);
    assert_eq!(signal.lost().await, Loss::Released);
    let lost = tokio::time::timeout(CALL, next.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(next.release().await?, Released::Held);
    Ok(())
}

async fn close_ends_while_nothing_passes(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let guard =
        client.mutex(scene.key().as_str()).with(Options::new().lease(scene.lease())).acquire().await?;
    gate.let_pass(Passing::Nothing);
    // Whether it can say that it succeeded is its own business; it must end.
    let _ = soon(client.close()).await?;
    assert!(!guard.is_valid());
    Ok(())
}
