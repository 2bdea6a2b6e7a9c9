//! Law 6: a copy of a claim that arrives when its attempt is over finds a mark, whatever the attempt was answered.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::layers::{Fault, Faults, Reply, Request, Verb};
use leasehold_core::{Client, Feature, Key, Options, Snapshot};

use crate::case::cases;
use crate::scene::{GLANCE, LONG, SLACK, Scene};
use crate::spy::{Counts, Spy};
use crate::verdict::{Stop, Verdict};

cases!("late":
    a_copy_that_arrives_after_busy_finds_nothing_to_take,
    a_copy_of_a_job_that_was_skipped_finds_nothing_to_take,
    a_copy_of_a_job_that_has_ended_finds_nothing_to_take,
    a_copy_that_arrives_after_an_error_finds_nothing_to_take,
    a_request_that_the_network_delivers_late_finds_nothing_to_take,
);

/// How long the late copy is under way: less than two calls may take, for which withdrawn claims are refused.
const LATE: Duration = Duration::from_secs(2);

/// How long one call may take here: an attempt that nobody answers is over before the late copy arrives.
const CALL: Duration = Duration::from_millis(1500);

/// How long after a network has healed everything has arrived that it held.
const ARRIVES: Duration = Duration::from_secs(1);

/// A client whose next claim is not answered, and arrives once more after [`LATE`].
async fn late(scene: &Scene) -> Verdict<(Client, Faults<Spy>, Arc<Counts>)> {
    let (spy, counts) = Spy::counting(scene.fixture.store().await?);
    let faults = Faults::new(spy);
    faults.once(Verb::Claim, Fault { reply: Reply::Lost, again_after: Some(LATE), ..Fault::default() });
    Ok((Client::builder().call_timeout(CALL).connect(faults.clone()).await?, faults, counts))
}

/// Waits until so many claims have arrived; the key must stay free afterwards.
async fn nobody_holds(scene: &Scene, key: &Key, counts: &Counts, claims: u64) -> Verdict {
    have_arrived(counts, claims).await?;
    let now = scene.raw(key).await?;
    assert_eq!((now.holders, now.waiters), (0, 0), "a late copy of an attempt that is over was served");
    is_free(scene, key).await
}

async fn have_arrived(counts: &Counts, claims: u64) -> Verdict {
    let arrived = async {
        while counts.claims() < claims {
            tokio::time::sleep(GLANCE).await;
        }
    };
    tokio::time::timeout(LATE + SLACK, arrived).await.map_err(|_| Stop::fail("the late copy never arrived"))
}

async fn is_free(scene: &Scene, key: &Key) -> Verdict {
    let next = scene.fixture.connect().await?.mutex(key.as_str()).try_acquire().await?;
    let next = next.ok_or_else(|| Stop::fail("the lock belongs to an attempt that is over"))?;
    next.release().await?;
    Ok(())
}

async fn a_copy_that_arrives_after_busy_finds_nothing_to_take(scene: Scene) -> Verdict {
    let key = scene.key();
    let holder = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, _faults, counts) = late(&scene).await?;
    let lock = client.mutex(key.as_str()).with(Options::new().lease(LONG.min(scene.info().max_lease)));
    assert!(lock.try_acquire().await?.is_none());
    holder.release().await?;
    nobody_holds(&scene, &key, &counts, 3).await
}

async fn a_copy_of_a_job_that_was_skipped_finds_nothing_to_take(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Job)?;
    let key = scene.key();
    let holder = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let (client, _faults, counts) = late(&scene).await?;
    let job = client.job(key.as_str()).at_most(LONG.min(scene.info().max_lease));
    assert!(job.start().await?.is_none());
    holder.release().await?;
    nobody_holds(&scene, &key, &counts, 3).await
}

async fn a_copy_of_a_job_that_has_ended_finds_nothing_to_take(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Job)?;
    let key = scene.key();
    let (client, _faults, counts) = late(&scene).await?;
    // The tail ends before the copy arrives.
    let job = client.job(key.as_str()).at_most(LONG.min(scene.info().max_lease)).at_least(LATE / 4);
    let run = job.start().await?.ok_or_else(|| Stop::fail("nobody else runs it"))?;
    let token = run.token();
    run.release().await?;
    have_arrived(&counts, 3).await?;
    // The store may remove the tail a little later. A grant to the late copy has a larger token than the tail.
    let is_late = |seen: &Snapshot| seen.holders.iter().any(|holder| holder.token > token);
    scene.until(&key, |seen| seen.is_none_or(|seen| seen.holders.is_empty() || is_late(seen))).await?;
    is_free(&scene, &key).await
}

async fn a_copy_that_arrives_after_an_error_finds_nothing_to_take(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, faults, counts) = late(&scene).await?;
    // Every repeat fails: the caller is told that nobody knows.
    faults.plan(|call| match call.verb {
        Verb::Claim => Fault { request: Request::Refused, ..Fault::default() },
        _ => Fault::default(),
    });
    let lock = client.mutex(key.as_str()).with(Options::new().lease(LONG.min(scene.info().max_lease)));
    let outcome = lock.try_acquire().await;
    assert!(outcome.is_err(), "nothing was answered: {outcome:?}");
    nobody_holds(&scene, &key, &counts, 2).await
}

/// As above, but the copy is late on the wire: the client gave its connection up and asked again on another.
async fn a_request_that_the_network_delivers_late_finds_nothing_to_take(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = client.mutex(key.as_str()).with(Options::new().lease(LONG.min(scene.info().max_lease)));
    // Opens the connections, and the session if there is one.
    lock.acquire().await?.release().await?;
    scene.cause(scene.fixture.stall()).await?;
    let holder = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    // Busy, or nobody knows: that depends on how soon the client gives the connection up.
    let outcome = lock.try_acquire().await;
    assert!(!matches!(outcome, Ok(Some(_))), "another client holds it");
    // Until the withdrawal is done.
    client.close().await?;
    holder.release().await?;
    scene.cause(scene.fixture.heal()).await?;
    tokio::time::sleep(ARRIVES).await;
    let now = scene.raw(&key).await?;
    assert_eq!((now.holders, now.waiters), (0, 0), "a late copy of an attempt that is over was served");
    is_free(&scene, &key).await
}
