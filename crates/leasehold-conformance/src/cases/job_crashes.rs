//! How long a job stays closed when its process dies, is closed, or has only just finished.

use std::time::Duration;

use leasehold_core::layers::Faults;
use leasehold_core::{Client, ErrorKind, Feature, Guard, Key, Loss, Options, Run, Store};
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::{GLANCE, LONG, SLACK, Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("job_crashes":
    a_crash_frees_the_job_after_one_lease,
    at_least_survives_a_crash,
    at_least_survives_the_end_of_its_client,
    at_least_may_be_longer_than_at_most,
    at_least_beyond_what_the_store_keeps_is_refused,
    a_renewed_job_is_stopped_by_its_at_most,
    a_finished_job_is_not_held_but_due_later,
    a_finished_job_that_is_evicted_is_due,
    a_short_tail_is_short,
);

/// Skips the case on stores without jobs; otherwise a client with short leases, and a way to cut it off.
async fn client(scene: &Scene) -> Verdict<(Client, Faults<std::sync::Arc<dyn Store>>)> {
    scene.needs_feature(Feature::Job)?;
    let faults = Faults::new(scene.fixture.store().await?);
    let short = Options::new().lease(scene.lease());
    Ok((Client::builder().defaults(short).connect(faults.clone()).await?, faults))
}

fn due(started: leasehold_core::Result<Option<Guard>>) -> Verdict<Guard> {
    started?.ok_or_else(|| Stop::fail("skipped, although nobody runs it"))
}

async fn a_crash_frees_the_job_after_one_lease(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, faults) = client(&scene).await?;
    let run = due(client.job(&key).at_most(LONG).start().await)?;
    // To the store, the process is dead from here on.
    faults.cut();
    scene.until_free(&key).await?;
    drop(run);
    Ok(())
}

async fn at_least_survives_a_crash(scene: Scene) -> Verdict {
    if !scene.info().keeps_at_least() {
        return Err(Stop::skip("a session carries the claims, and at_least ends with it"));
    }
    let key = scene.key();
    let (client, faults) = client(&scene).await?;
    let at_least = scene.lease() * 3;
    let start = Instant::now();
    let run = due(client.job(&key).at_most(LONG).at_least(at_least).start().await)?;
    // Long enough to be renewed, with a lease that is shorter than what is left.
    tokio::time::sleep(scene.lease()).await;
    assert!(run.is_valid());
    faults.cut();
    until_due(&scene, &key, at_least).await?;
    assert!(start.elapsed() >= at_least, "due after {:?} of {at_least:?}", start.elapsed());
    drop(run);
    Ok(())
}

/// Waits until another client can start the job. It is given this time more than usual.
async fn until_due(scene: &Scene, key: &Key, longer: Duration) -> Verdict {
    let other = scene.fixture.connect().await?;
    let give_up = Instant::now() + longer + scene.lease() + scene.info().expiry_slack + SLACK;
    while other.job(key).start().await?.is_none() {
        if Instant::now() > give_up {
            return Err(Stop::fail("the job is never due again"));
        }
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

async fn at_least_survives_the_end_of_its_client(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, _faults) = client(&scene).await?;
    let at_least = scene.lease() * 2;
    let start = Instant::now();
    let run = due(client.job(&key).at_least(at_least).start().await)?;
    client.close().await?;
    until_due(&scene, &key, at_least).await?;
    assert!(start.elapsed() >= at_least, "due after {:?} of {at_least:?}", start.elapsed());
    drop(run);
    Ok(())
}

async fn at_least_may_be_longer_than_at_most(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, _faults) = client(&scene).await?;
    let at_least = scene.lease() * 2;
    let start = Instant::now();
    let job = client.job(&key).at_most(scene.lease()).at_least(at_least);
    let error = soon(job.run(|_| std::future::pending::<()>())).await?.expect_err("it never ends by itself");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    until_due(&scene, &key, at_least).await?;
    assert!(start.elapsed() >= at_least, "due after {:?} of {at_least:?}", start.elapsed());
    Ok(())
}

async fn at_least_beyond_what_the_store_keeps_is_refused(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, _faults) = client(&scene).await?;
    let error = client.job(&key).at_least(scene.info().max_lease + LONG).start().await;
    let error = error.expect_err("a crash would free it too soon");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("at_least is"), "{error}");
    assert_eq!(scene.raw(&key).await?.holders, 0);
    Ok(())
}

async fn a_renewed_job_is_stopped_by_its_at_most(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, _faults) = client(&scene).await?;
    let at_most = scene.lease() * 2;
    let start = Instant::now();
    let run = due(client.job(&key).at_most(at_most).start().await)?;
    assert_eq!(soon(run.lost()).await?, Loss::HeldTooLong);
    assert!(start.elapsed() + GLANCE >= at_most, "stopped after {:?} of {at_most:?}", start.elapsed());
    scene.until_free(&key).await
}

async fn a_finished_job_is_not_held_but_due_later(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, _faults) = client(&scene).await?;
    let at_least = LONG.min(scene.info().max_lease / 2);
    let job = client.job(&key).at_least(at_least).label("the first");
    let Run::Ran(token) = job.run(|token| async move { token }).await? else {
        return Err(Stop::fail("skipped, although nobody runs it"));
    };
    let seen = scene.inspect(&key).await?.ok_or_else(|| Stop::fail("it is not due, and looks free"))?;
    assert!(seen.holders.is_empty(), "{:?}", seen.holders);
    assert_eq!((seen.held(), seen.available()), (0, 0));
    let finished: Vec<_> = seen.finished.iter().map(|job| (job.token, job.label.as_str())).collect();
    assert_eq!(finished, [(token, "the first")]);
    let due_in = seen.finished[0].due_in;
    let most = at_least + scene.info().rounding * 2 + scene.info().expiry_slack;
    assert!(due_in > at_least / 2 && due_in <= most, "{due_in:?} of {at_least:?}");
    match client.job(&key).run(|_| async {}).await? {
        Run::Skipped(Some(seen)) => assert_eq!(seen.finished[0].label, "the first"),
        other => return Err(Stop::fail(format_args!("{other:?}"))),
    }
    Ok(())
}

async fn a_finished_job_that_is_evicted_is_due(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Evict)?;
    let key = scene.key();
    let (client, _faults) = client(&scene).await?;
    let job = client.job(&key).at_least(LONG.min(scene.info().max_lease / 2));
    job.run(|_| async {}).await?;
    let seen = scene.inspect(&key).await?.ok_or_else(|| Stop::fail("it is not due, and looks free"))?;
    assert!(client.evict(&key, seen.finished[0].token).await?);
    assert_eq!(job.run(|_| async { 42 }).await?, Run::Ran(42));
    Ok(())
}

/// The best of a few tries: a busy machine is late now and then, and a store that rounds up is late every
/// time.
async fn a_short_tail_is_short(scene: Scene) -> Verdict {
    const AT_LEAST: Duration = Duration::from_millis(50);
    const LATE: Duration = Duration::from_millis(900);
    let (client, _faults) = client(&scene).await?;
    let mut best = Duration::MAX;
    for _ in 0..4 {
        let (key, start) = (scene.key(), Instant::now());
        client.job(&key).at_least(AT_LEAST).run(|_| async {}).await?;
        until_due(&scene, &key, AT_LEAST).await?;
        assert!(start.elapsed() >= AT_LEAST, "due after {:?}", start.elapsed());
        best = best.min(start.elapsed());
    }
    let most = AT_LEAST + scene.info().rounding * 2 + LATE;
    assert!(best <= most, "{AT_LEAST:?} took at least {best:?}");
    Ok(())
}
