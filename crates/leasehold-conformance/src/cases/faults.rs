//! What a store must survive, for fixtures that can cause it.

use std::time::Duration;

use leasehold_core::{Capability, Client, Options, Released};

use crate::case::cases;
use crate::scene::{SLACK, Scene};
use crate::verdict::{Stop, Verdict};

cases!("faults":
    a_killed_holder_frees_the_key_by_its_lease,
    calls_end_while_the_store_is_out_of_reach,
    a_guard_is_lost_in_time_when_the_store_is_out_of_reach,
    a_waiter_keeps_waiting_through_an_outage,
    tokens_rise_across_a_restart_of_the_server,
);

async fn a_killed_holder_frees_the_key_by_its_lease(scene: Scene) -> Verdict {
    let key = scene.key();
    let killed = scene.cause(scene.fixture.kill_holder(&key, scene.lease())).await?;
    let dead = scene.holders(&key).await?;
    // It said that it held. A store that notices a death has freed the key by now.
    assert!(dead.len() <= 1, "{dead:?}");
    let client = scene.fixture.connect().await?;
    let limit = scene.lease() + scene.info().expiry_slack + SLACK;
    let next = client.mutex(key.as_str()).acquire_within(limit).await?;
    let next =
        next.ok_or_else(|| Stop::fail(format_args!("not free {limit:?} after its holder was killed")))?;
    assert!(next.token() > killed.token, "{} after {}", next.token(), killed.token);
    Ok(())
}

const CALL_TIMEOUT: Duration = Duration::from_millis(500);

/// A client that gives up on a call soon.
async fn impatient(scene: &Scene) -> Verdict<Client> {
    Ok(Client::builder().call_timeout(CALL_TIMEOUT).connect(scene.fixture.store().await?).await?)
}

async fn calls_end_while_the_store_is_out_of_reach(scene: Scene) -> Verdict {
    let client = impatient(&scene).await?;
    scene.cause(scene.fixture.cut()).await?;
    let lock = client.mutex(scene.key().as_str());
    let outcome = tokio::time::timeout(CALL_TIMEOUT * 4 + SLACK, lock.try_acquire()).await;
    scene.cause(scene.fixture.heal()).await?;
    let error = outcome.map_err(|_| Stop::fail("the call never ended"))?.expect_err("the store was cut off");
    assert!(error.is_retryable(), "{error}");
    let again = tokio::time::timeout(SLACK * 2, lock.acquire()).await;
    assert!(again.map_err(|_| Stop::fail("it does not work again"))??.is_valid());
    Ok(())
}

async fn a_guard_is_lost_in_time_when_the_store_is_out_of_reach(scene: Scene) -> Verdict {
    let client = impatient(&scene).await?;
    let options = Options::new().lease(scene.lease());
    let guard = client.mutex(scene.key().as_str()).with(options).acquire().await?;
    scene.cause(scene.fixture.cut()).await?;
    let loss = tokio::time::timeout(scene.lease(), guard.lost()).await;
    let still_valid = guard.is_valid();
    scene.cause(scene.fixture.heal()).await?;
    assert!(loss.is_ok() && !still_valid, "it goes on believing in a lease that may be over");
    Ok(())
}

async fn a_waiter_keeps_waiting_through_an_outage(scene: Scene) -> Verdict {
    // Who has no place asks, and is told that nobody answers.
    scene.needs(Capability::Queue)?;
    let key = scene.key();
    let holder = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let client = impatient(&scene).await?;
    let lock = client.mutex(key.as_str());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    scene.until_waiting(&key, 1).await?;
    // The answer to its claim has arrived when that to a later question has.
    client.inspect(key.as_str()).await?;
    scene.cause(scene.fixture.cut()).await?;
    tokio::time::sleep(CALL_TIMEOUT * 2).await;
    scene.cause(scene.fixture.heal()).await?;
    assert!(!waiting.is_finished(), "an outage ended the wait");
    assert_eq!(holder.release().await?, Released::Held);
    let guard = tokio::time::timeout(SLACK * 2, waiting).await.map_err(|_| Stop::fail("still waiting"))?;
    assert!(guard.map_err(Stop::fail)??.is_valid());
    Ok(())
}

async fn tokens_rise_across_a_restart_of_the_server(scene: Scene) -> Verdict {
    let key = scene.key();
    let before = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?.token();
    scene.cause(scene.fixture.restart_server()).await?;
    let client = scene.fixture.connect().await?;
    let next = client.mutex(key.as_str()).acquire_within(Duration::from_secs(30) + SLACK).await?;
    let next = next.ok_or_else(|| Stop::fail("the key did not come free"))?;
    assert!(next.token() > before, "{} after {before}", next.token());
    Ok(())
}
