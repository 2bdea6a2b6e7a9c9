//! Law 15: a lock that was granted to a future that nobody polls goes to others.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Capability, Client, Options};

use crate::case::cases;
use crate::gate::{Gate, Passing};
use crate::scene::{SLACK, Scene};
use crate::verdict::{Stop, Verdict};

cases!("polling":
    an_unpolled_heir_passes_the_lock_on,
    tasks_parked_behind_an_unpolled_future_get_the_lock,
    an_unpolled_heir_does_not_starve_its_siblings,
    an_unpolled_acquire_is_given_back_beside_a_busy_session,
    an_unpolled_release_frees_the_lock_beside_a_busy_session,
    tasks_parked_behind_an_unpolled_release_get_the_lock,
);

/// How long one call may take here.
const CALL: Duration = Duration::from_millis(500);

/// A client behind a gate, whose lost calls end soon.
async fn gated(scene: &Scene) -> Verdict<(Client, Gate)> {
    let gate = Gate::new(scene.fixture.store().await?);
    Ok((Client::builder().call_timeout(CALL).connect(gate.clone()).await?, gate))
}

/// So long that a busy machine renews it in time. Otherwise a lock that is kept by mistake would end with its lease.
fn lease(scene: &Scene) -> Duration {
    scene.lease().max(Duration::from_secs(2))
}

fn barging(scene: &Scene) -> Options {
    Options::new().lease(lease(scene)).barging()
}

/// Polls a future once and leaves it alone, as a `select!` does that is busy with another branch.
async fn poll_once<F: Future>(future: &mut Pin<Box<F>>) {
    let is_done = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
    assert!(!is_done, "it ended at its first poll: nothing is left to forget");
}

/// Polls a future until the store shows a holder of the key.
async fn poll_until_held<F: Future>(
    scene: &Scene,
    key: &leasehold_core::Key,
    future: &mut Pin<Box<F>>,
) -> Verdict {
    let held = async {
        while scene.raw(key).await?.holders == 0 {
            poll_once(future).await;
            tokio::task::yield_now().await;
        }
        Ok::<_, Stop>(())
    };
    tokio::time::timeout(SLACK, held).await.map_err(|_| Stop::fail("its claim never arrived"))?
}

/// Another client must get the lock although the future is neither polled nor dropped.
async fn rival_gets(scene: &Scene, key: &leasehold_core::Key) -> Verdict {
    let rival = scene.fixture.connect().await?.mutex(key.as_str()).with(Options::new().lease(scene.lease()));
    let limit = lease(scene) * 3 + CALL * 3 + scene.info().expiry_slack + SLACK;
    let guard = rival.acquire_within(limit).await?;
    let guard = guard.ok_or_else(|| Stop::fail("a future that nobody polls keeps the lock"))?;
    assert!(guard.is_valid());
    guard.release().await?;
    Ok(())
}

async fn an_unpolled_heir_passes_the_lock_on(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = client.mutex(key.as_str()).with(barging(&scene));
    let first = lock.acquire().await?;
    let mut forgotten = Box::pin(lock.acquire());
    poll_once(&mut forgotten).await;
    first.release().await?;
    rival_gets(&scene, &key).await?;
    // The slow future did not fail for that: it gets another turn.
    let guard =
        tokio::time::timeout(SLACK, forgotten).await.map_err(|_| Stop::fail("it never got its turn"))??;
    assert!(guard.is_valid());
    Ok(())
}

async fn tasks_parked_behind_an_unpolled_future_get_the_lock(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    let key = scene.key();
    let (client, gate) = gated(&scene).await?;
    let lock = client.mutex(key.as_str()).with(barging(&scene));
    gate.let_pass(Passing::Nothing);
    let mut forgotten = Box::pin(lock.acquire());
    poll_once(&mut forgotten).await;
    gate.let_pass(Passing::Everything);
    // The store has not heard of the first claim, so the lock is free.
    let limit = lease(&scene) * 3 + CALL * 3 + SLACK;
    let guard = lock.acquire_within(limit).await?;
    let guard = guard.ok_or_else(|| Stop::fail("a task waits behind a future that nobody polls"))?;
    guard.release().await?;
    drop(forgotten);
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn an_unpolled_heir_does_not_starve_its_siblings(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = client.mutex(key.as_str()).with(barging(&scene));
    let first = lock.acquire().await?;
    let mut forgotten = Box::pin(lock.acquire());
    poll_once(&mut forgotten).await;
    let sibling = client.mutex(key.as_str()).with(barging(&scene));
    let limit = scene.lease() * 4 + SLACK;
    let sibling = tokio::spawn(async move { sibling.acquire_within(limit).await });
    // It parks without a call, so there is nothing to wait for but the task itself.
    tokio::task::yield_now().await;
    first.release().await?;
    let guard = sibling.await.map_err(Stop::fail)??;
    let guard = guard.ok_or_else(|| Stop::fail("a task waits behind an heir that nobody polls"))?;
    guard.release().await?;
    drop(forgotten);
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn an_unpolled_acquire_is_given_back_beside_a_busy_session(scene: Scene) -> Verdict {
    let (key, other) = (scene.key(), scene.key());
    let (client, gate) = gated(&scene).await?;
    let options = Options::new().lease(scene.lease());
    // Where sessions carry claims, this lock has its session renewed.
    let busy = client.mutex(other.as_str()).with(options.clone()).acquire().await?;
    let lock = client.mutex(key.as_str()).with(options);
    let mut forgotten = Box::pin(lock.acquire());
    gate.let_pass(Passing::NoReplies);
    poll_until_held(&scene, &key, &mut forgotten).await?;
    gate.let_pass(Passing::Everything);
    rival_gets(&scene, &key).await?;
    drop((forgotten, busy));
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn an_unpolled_release_frees_the_lock_beside_a_busy_session(scene: Scene) -> Verdict {
    let (key, other) = (scene.key(), scene.key());
    let (client, gate) = gated(&scene).await?;
    let options = Options::new().lease(scene.lease());
    let busy = client.mutex(other.as_str()).with(options.clone()).acquire().await?;
    let held = client.mutex(key.as_str()).with(options).acquire().await?;
    gate.let_pass(Passing::Nothing);
    let mut forgotten = Box::pin(held.release());
    poll_once(&mut forgotten).await;
    gate.let_pass(Passing::Everything);
    rival_gets(&scene, &key).await?;
    drop((forgotten, busy));
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn tasks_parked_behind_an_unpolled_release_get_the_lock(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    let key = scene.key();
    let (client, gate) = gated(&scene).await?;
    let lock = client.mutex(key.as_str()).with(barging(&scene));
    let first = lock.acquire().await?;
    let parked = client.mutex(key.as_str()).with(barging(&scene));
    let limit = scene.lease() * 4 + CALL * 3 + scene.info().expiry_slack + SLACK;
    let parked = tokio::spawn(async move { parked.acquire_within(limit).await });
    tokio::task::yield_now().await;
    gate.let_pass(Passing::Nothing);
    let mut forgotten = Box::pin(first.release());
    poll_once(&mut forgotten).await;
    gate.let_pass(Passing::Everything);
    let guard = parked.await.map_err(Stop::fail)??;
    let guard = guard.ok_or_else(|| Stop::fail("a task waits for a release that nobody polls"))?;
    guard.release().await?;
    drop(forgotten);
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}
