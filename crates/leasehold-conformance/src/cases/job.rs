//! Work that is done by one at a time, and not too often.

use std::time::Duration;

use leasehold_core::layers::{Fault, Faults, Reply, Verb};
use leasehold_core::{Client, ErrorKind, Feature, Job, Key, Run};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::{LONG, SLACK, Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("job":
    a_job_runs_and_gives_its_result_and_its_token,
    while_it_runs_others_are_skipped_and_told_who_runs_it,
    it_can_run_again_when_it_is_done,
    at_least_keeps_it_away_after_it_is_done,
    at_most_stops_it,
    a_job_that_was_stopped_can_be_started_by_others,
    a_dropped_run_frees_the_job,
    a_dropped_run_keeps_its_at_least,
    the_tail_ends_by_itself_and_leaves_nothing,
    a_job_that_was_done_says_so_whatever_became_of_its_release,
);

/// Skips the case on stores without jobs; otherwise one, seen by a new client.
async fn job(scene: &Scene, key: &Key) -> Verdict<Job> {
    Ok(client(scene).await?.job(key.as_str()).at_most(LONG))
}

async fn client(scene: &Scene) -> Verdict<Client> {
    scene.needs_feature(Feature::Job)?;
    Ok(scene.fixture.connect().await?)
}

/// Starts a run that does not end by itself, and waits until it is at work.
async fn at_work(job: Job) -> Verdict<tokio::task::JoinHandle<leasehold_core::Result<Run<()>>>> {
    let (started, at_work) = oneshot::channel();
    let run = tokio::spawn(async move {
        job.run(|_| async {
            // Nobody listens when the case has failed already.
            let _ = started.send(());
            std::future::pending().await
        })
        .await
    });
    soon(at_work).await?.map_err(Stop::fail)?;
    Ok(run)
}

async fn a_job_runs_and_gives_its_result_and_its_token(scene: Scene) -> Verdict {
    let key = scene.key();
    let job = job(&scene, &key).await?;
    let look = async |token| (token, scene.holders(&key).await);
    let Run::Ran((token, seen)) = job.run(look).await? else {
        return Err(Stop::fail("skipped, although nobody runs it"));
    };
    assert_eq!(seen?.first().map(|holder| holder.token), Some(token));
    scene.until_nothing_is_left(&key).await
}

async fn while_it_runs_others_are_skipped_and_told_who_runs_it(scene: Scene) -> Verdict {
    let key = scene.key();
    let _run = at_work(job(&scene, &key).await?.label("the first")).await?;
    let Run::Skipped(who) = job(&scene, &key).await?.run(|_| async {}).await? else {
        return Err(Stop::fail("two run it at once"));
    };
    let who = who.and_then(|seen| seen.holders.into_iter().next());
    assert_eq!(who.map(|holder| holder.label), Some("the first".to_owned()));
    assert_eq!(scene.raw(&key).await?.waiters, 0, "who is skipped does not queue");
    Ok(())
}

async fn it_can_run_again_when_it_is_done(scene: Scene) -> Verdict {
    let key = scene.key();
    let job = job(&scene, &key).await?;
    let mut last = 0;
    for _ in 0..3 {
        let Run::Ran(token) = job.run(|token| async move { token }).await? else {
            return Err(Stop::fail("skipped, although it is done"));
        };
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    Ok(())
}

async fn at_least_keeps_it_away_after_it_is_done(scene: Scene) -> Verdict {
    let key = scene.key();
    let pause = scene.lease();
    let (one, two) = (job(&scene, &key).await?, job(&scene, &key).await?);
    let start = Instant::now();
    assert_eq!(one.at_least(pause).label("done").run(|_| async { 42 }).await?, Run::Ran(42));
    let mut skipped = 0;
    let give_up = start + pause + scene.info().expiry_slack + SLACK;
    loop {
        let asked = start.elapsed();
        match two.run(|_| async {}).await? {
            Run::Skipped(seen) => {
                skipped += 1;
                assert!(seen.is_none_or(|seen| seen.finished.iter().all(|job| job.label == "done")));
                assert!(Instant::now() < give_up, "its pause never ends");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Run::Ran(()) => {
                assert!(start.elapsed() >= pause, "again after {asked:?}");
                break;
            }
        }
    }
    assert!(skipped > 0, "its pause had no effect");
    Ok(())
}

async fn at_most_stops_it(scene: Scene) -> Verdict {
    let key = scene.key();
    let job = job(&scene, &key).await?.at_most(scene.lease());
    let stopped = soon(job.run(|_| std::future::pending::<()>())).await?;
    let error = stopped.expect_err("it never ended by itself");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    Ok(())
}

async fn a_job_that_was_stopped_can_be_started_by_others(scene: Scene) -> Verdict {
    let key = scene.key();
    let run = at_work(job(&scene, &key).await?.at_most(scene.lease())).await?;
    assert!(soon(run).await?.map_err(Stop::fail)?.is_err(), "it never ended by itself");
    scene.until_free(&key).await?;
    assert_eq!(job(&scene, &key).await?.run(|_| async { 1 }).await?, Run::Ran(1));
    Ok(())
}

async fn a_dropped_run_frees_the_job(scene: Scene) -> Verdict {
    let key = scene.key();
    let run = at_work(job(&scene, &key).await?).await?;
    run.abort();
    scene.until_nothing_is_left(&key).await
}

async fn a_dropped_run_keeps_its_at_least(scene: Scene) -> Verdict {
    let key = scene.key();
    let pause = scene.lease() * 2;
    let start = Instant::now();
    let run = at_work(job(&scene, &key).await?.at_least(pause)).await?;
    run.abort();
    scene.until_free(&key).await?;
    assert!(start.elapsed() >= pause, "free after {:?}", start.elapsed());
    Ok(())
}

async fn the_tail_ends_by_itself_and_leaves_nothing(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = client(&scene).await?;
    let job = client.job(key.as_str()).at_most(LONG).at_least(scene.lease());
    assert_eq!(job.run(|_| async { 1 }).await?, Run::Ran(1));
    assert_eq!(scene.raw(&key).await?.holders, 1);
    // Nobody owns a tail: it needs no renewal and no client.
    client.close().await?;
    scene.until_free(&key).await?;
    // Whoever comes next finds it free, and takes what is over along.
    self::job(&scene, &key).await?.run(|_| async {}).await?;
    scene.until_nothing_is_left(&key).await
}

async fn a_job_that_was_done_says_so_whatever_became_of_its_release(scene: Scene) -> Verdict {
    client(&scene).await?;
    let key = scene.key();
    let faults = Faults::new(scene.fixture.store().await?);
    faults.once(Verb::Release, Fault { reply: Reply::Lost, ..Fault::default() });
    let job = Client::new(faults).await?.job(key.as_str()).at_most(LONG);
    assert_eq!(job.run(|_| async { 42 }).await?, Run::Ran(42));
    scene.until_free(&key).await
}
