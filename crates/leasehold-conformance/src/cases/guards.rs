//! Laws 4 and 5: how long a guard may be believed, and who finds out when it may not.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Capability, Client, ErrorKind, Feature, Leases, Loss, Options, Released, TestClock};
use tokio::time::Instant;

use crate::case::cases;
use crate::gate::{Gate, Passing};
use crate::scene::{GLANCE, SLACK, Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("guards":
    a_suspended_process_finds_its_guard_lost,
    validity_counts_from_before_the_request,
    a_reply_that_comes_too_late_gives_no_dead_guard,
    a_renewal_that_is_answered_after_the_deadline_revives_nothing,
    a_guard_outlives_the_client_it_came_from,
    a_grant_that_nobody_picks_up_is_passed_on,
    renewing_for_less_does_not_shorten_what_is_left,
    a_renewal_by_hand_says_what_the_store_gave,
    the_default_label_names_the_process,
    closing_twice_does_no_harm,
);

async fn a_suspended_process_finds_its_guard_lost(scene: Scene) -> Verdict {
    const LEASE: Duration = Duration::from_secs(30);
    let clock = Arc::new(TestClock::new());
    let client = Client::builder().clock(clock.clone()).connect(scene.fixture.store().await?).await?;
    let guard = client.mutex(scene.key().as_str()).with(Options::new().lease(LEASE)).acquire().await?;
    assert!(guard.is_valid());
    // The lid was closed: the store's clock went on, and so did ours.
    clock.jump(LEASE);
    assert!(!guard.is_valid() && guard.valid_for().is_zero(), "it believes in a lease that is over");
    let loss = tokio::time::timeout(SLACK, guard.lost()).await;
    assert_eq!(loss.ok(), Some(Loss::Expired));
    Ok(())
}

/// A client behind a gate, whose calls may take long.
async fn gated(scene: &Scene) -> Verdict<(Client, Gate)> {
    let gate = Gate::new(scene.fixture.store().await?);
    Ok((Client::builder().call_timeout(Duration::from_secs(30)).connect(gate.clone()).await?, gate))
}

async fn validity_counts_from_before_the_request(scene: Scene) -> Verdict {
    const LEASE: Duration = Duration::from_secs(8);
    const DELAY: Duration = Duration::from_millis(800);
    let (client, gate) = gated(&scene).await?;
    let key = scene.key();
    gate.let_pass(Passing::NoReplies);
    let lock = client.mutex(key.as_str()).with(Options::new().fixed(LEASE));
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    scene.until_raw(&key, |now| now.holders == 1).await?;
    tokio::time::sleep(DELAY).await;
    gate.let_pass(Passing::Everything);
    let guard = acquiring.await.map_err(Stop::fail)??;
    // The store's clock has been running since the grant, not since the reply.
    let most = LEASE.mul_f64(0.9) - DELAY;
    assert!(guard.valid_for() <= most, "valid for {:?}, at most {most:?}", guard.valid_for());
    Ok(())
}

async fn a_reply_that_comes_too_late_gives_no_dead_guard(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let (key, lease) = (scene.key(), scene.lease());
    gate.let_pass(Passing::NoReplies);
    let lock = client.mutex(key.as_str()).with(Options::new().lease(lease));
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    scene.until_raw(&key, |now| now.holders == 1).await?;
    scene.until_free(&key).await?;
    gate.let_pass(Passing::Everything);
    let outcome = tokio::time::timeout(SLACK, acquiring).await.map_err(|_| Stop::fail("it never ended"))?;
    // An error would do as well; a guard of a lease that is over would not.
    if let Ok(guard) = outcome.map_err(Stop::fail)? {
        assert!(guard.is_valid());
        scene.shows(&key, guard.token()).await?;
    }
    Ok(())
}

async fn a_renewal_that_is_answered_after_the_deadline_revives_nothing(scene: Scene) -> Verdict {
    let (client, gate) = gated(&scene).await?;
    let lease = scene.lease() * 2;
    let guard = client.mutex(scene.key().as_str()).with(Options::new().lease(lease)).acquire().await?;
    // The store renews it again and again, and its holder does not hear of that before it is too late.
    gate.let_pass(Passing::NoReplies);
    soon(guard.lost()).await?;
    gate.let_pass(Passing::Everything);
    let until = Instant::now() + lease;
    while Instant::now() < until {
        assert!(!guard.is_valid(), "a late answer revived it");
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

async fn a_guard_outlives_the_client_it_came_from(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let options = Options::new().lease(scene.lease());
    let guard = client.mutex(scene.key().as_str()).with(options).acquire().await?;
    drop(client);
    let lost = tokio::time::timeout(scene.lease() * 3, guard.lost()).await;
    assert!(lost.is_err(), "renewal ended with the client: {lost:?}");
    assert_eq!(guard.release().await?, Released::Held);
    Ok(())
}

async fn a_grant_that_nobody_picks_up_is_passed_on(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let holder = client.mutex(key.as_str()).acquire().await?;
    let lock = client.mutex(key.as_str()).with(Options::new().lease(scene.lease()));
    let mut forgotten = Box::pin(lock.acquire());
    // Polled until it has its place, then left alone: as in a `select!` that is busy with another branch.
    let placed = async {
        while scene.raw(&key).await?.waiters == 0 {
            poll_fn(|cx| Poll::Ready(forgotten.as_mut().poll(cx).is_ready())).await;
            tokio::task::yield_now().await;
        }
        Ok::<_, Stop>(())
    };
    tokio::time::timeout(SLACK, placed).await.map_err(|_| Stop::fail("it never got a place"))??;
    let next = scene.fixture.connect().await?.mutex(key.as_str());
    let next = tokio::spawn(async move { next.acquire().await });
    scene.until_waiting(&key, 2).await?;
    holder.release().await?;
    let next = tokio::time::timeout(scene.lease() + SLACK, next).await;
    let next = next.map_err(|_| Stop::fail("a future that nobody polls keeps the lock"))?;
    let next = next.map_err(Stop::fail)??;
    next.release().await?;
    // It did not fail for having been slow: it gets another turn.
    let guard =
        tokio::time::timeout(SLACK, forgotten).await.map_err(|_| Stop::fail("it never got its turn"))??;
    assert!(guard.is_valid());
    Ok(())
}

async fn renewing_for_less_does_not_shorten_what_is_left(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let long = Options::new().fixed(Duration::from_secs(60));
    let guard = client.mutex(scene.key().as_str()).with(long).acquire().await?;
    guard.renew(Duration::from_secs(10)).await?;
    assert!(guard.is_valid());
    // What the guard says must not outlive what the store has.
    let Some(left) = scene.holders(guard.key()).await?[0].lease_left else {
        return scene.needs_own_leases("it may not say when it ends");
    };
    assert!(guard.valid_for() <= left, "valid for {:?}, the store has {left:?}", guard.valid_for());
    Ok(())
}

async fn a_renewal_by_hand_says_what_the_store_gave(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let lease = scene.lease().max(Duration::from_secs(10));
    let longer = lease * 6;
    let fixed = Options::new().fixed(lease);
    let mut guards = vec![client.mutex(scene.key().as_str()).with(fixed.clone()).acquire().await?];
    if scene.info().supports(Feature::Semaphore) {
        let permits = client.semaphore(scene.key().as_str(), 3).permits(2);
        guards.push(permits.with(fixed).acquire().await?);
    }
    if scene.info().supports(Feature::Job) {
        guards.extend(client.job(scene.key().as_str()).lease(lease).start().await?);
    }
    for guard in guards {
        match (scene.info().leases, guard.renew(longer).await) {
            (Leases::PerClaim, Ok(valid_for)) => {
                assert!(valid_for > lease * 2 && valid_for <= longer, "{valid_for:?} of {longer:?}");
            }
            (Leases::Shared, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(guard.is_valid(), "it holds, even if it cannot be renewed for longer");
                let valid_for = guard.renew(lease).await?;
                assert!(!valid_for.is_zero() && valid_for <= lease, "{valid_for:?} of {lease:?}");
            }
            (_, answer) => return Err(Stop::fail(format_args!("renewed for {longer:?}: {answer:?}"))),
        }
        guard.release().await?;
    }
    Ok(())
}

async fn the_default_label_names_the_process(scene: Scene) -> Verdict {
    scene.needs(Capability::Sight)?;
    let client = scene.fixture.connect().await?;
    let guard = client.mutex(scene.key().as_str()).acquire().await?;
    let label = scene.holders(guard.key()).await?[0].label.clone();
    assert!(label.ends_with(&format!(":{}", std::process::id())), "{label}");
    Ok(())
}

async fn closing_twice_does_no_harm(scene: Scene) -> Verdict {
    let client = scene.fixture.connect().await?;
    let guard = client.mutex(scene.key().as_str()).acquire().await?;
    let other = client.clone();
    let (one, two) = tokio::join!(client.close(), other.close());
    assert!(one.is_ok() && two.is_ok());
    client.close().await?;
    drop(guard);
    Ok(())
}
