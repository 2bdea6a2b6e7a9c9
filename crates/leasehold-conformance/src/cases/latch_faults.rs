//! Latches whose requests are lost, repeated or late: a latch has no lease, so a mistake would stay for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::layers::{Fault, Faults, Reply, Verb};
use leasehold_core::{Answer, Capability, Change, Claim, Client, Feature, Key, Latch, WHOLE};
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::{Scene, soon};
use crate::verdict::{Expect, Stop, Verdict};

cases!("latch":
    a_latch_that_ended_before_its_set_was_repeated_is_not_set_again,
    a_late_copy_of_set_does_not_set_a_latch_that_reached_zero,
    a_late_copy_of_set_does_not_set_a_latch_that_was_deleted,
    a_late_copy_of_set_does_not_set_a_latch_that_ran_out_of_time,
    a_late_count_down_does_not_count_in_the_next_round,
    a_count_down_whose_latch_ended_unheard_counts_once,
    a_latch_that_ended_answers_gone_to_late_copies,
    set_returns_while_tasks_keep_passing_the_open_latch,
    a_dropped_set_leaves_no_latch,
);

/// How late a late copy is: long enough that the case has done its part before it arrives.
const LATE: Duration = Duration::from_millis(700);
/// How long a case waits for a late copy to arrive and to do its harm.
const ARRIVED: Duration = Duration::from_millis(1500);

/// Skips the case on stores without latches; otherwise a latch seen by a new client.
async fn latch(scene: &Scene, key: &Key) -> Verdict<Latch> {
    scene.needs_feature(Feature::Latch)?;
    Ok(scene.fixture.connect().await?.latch(key.as_str()))
}

/// A latch seen by a client whose next call of this kind meets with a fault.
async fn unlucky(scene: &Scene, key: &Key, verb: Verb, fault: Fault) -> Verdict<Latch> {
    let faults = Faults::new(scene.fixture.store().await?);
    let client = Client::new(faults.clone()).await?;
    faults.once(verb, fault);
    Ok(client.latch(key.as_str()))
}

/// Waits until everybody sees this count.
async fn until_count(latch: &Latch, count: u64) -> Verdict {
    let seen = async {
        while latch.count().await? != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, Stop>(())
    };
    soon(seen).await?
}

async fn a_latch_that_ended_before_its_set_was_repeated_is_not_set_again(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let lost = Fault { after: LATE, reply: Reply::Lost, ..Fault::default() };
    let setter = unlucky(&scene, &key, Verb::Claim, lost).await?;
    let set = tokio::spawn(async move { setter.set(1).await });
    until_count(&latch, 1).await?;
    assert_eq!(latch.count_down().await?, 0);
    assert!(soon(set).await?.map_err(Stop::fail)??, "it was set, whatever became of the reply");
    assert_eq!(latch.count().await?, 0, "the repeat set the latch again");
    Ok(())
}

/// A latch whose set arrives once more when `end` has ended it.
async fn ends_before_a_late_copy(
    scene: &Scene,
    lives_for: Option<Duration>,
    end: impl AsyncFnOnce(&Latch) -> Verdict,
) -> Verdict {
    let key = scene.key();
    let latch = latch(scene, &key).await?;
    // A latch that lives for a time may be late to end, and its copy must come after that.
    let lives = lives_for.map_or(Duration::ZERO, |time| time * 2 + scene.info().expiry_slack);
    let late = LATE + lives;
    let twice = Fault { again_after: Some(late), ..Fault::default() };
    let mut setter = unlucky(scene, &key, Verb::Claim, twice).await?;
    if let Some(time) = lives_for {
        setter = setter.lives_for(time);
    }
    assert!(setter.set(1).await?);
    end(&latch).await?;
    let until = Instant::now() + ARRIVED.max(late);
    while Instant::now() < until {
        // It may end again by itself.
        assert_eq!(latch.count().await?, 0, "a late copy of set has set the latch again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn a_late_copy_of_set_does_not_set_a_latch_that_reached_zero(scene: Scene) -> Verdict {
    ends_before_a_late_copy(&scene, None, async |latch| {
        assert_eq!(latch.count_down().await?, 0);
        Ok(())
    })
    .await
}

async fn a_late_copy_of_set_does_not_set_a_latch_that_was_deleted(scene: Scene) -> Verdict {
    ends_before_a_late_copy(&scene, None, async |latch| {
        assert!(latch.delete().await?);
        Ok(())
    })
    .await
}

async fn a_late_copy_of_set_does_not_set_a_latch_that_ran_out_of_time(scene: Scene) -> Verdict {
    ends_before_a_late_copy(&scene, Some(scene.lease()), async |latch| until_count(latch, 0).await).await
}

async fn a_late_count_down_does_not_count_in_the_next_round(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let twice = Fault { again_after: Some(LATE), ..Fault::default() };
    let worker = unlucky(&scene, &key, Verb::Amend, twice).await?;
    assert!(latch.set(1).await?);
    assert_eq!(worker.count_down().await?, 0);
    assert!(latch.set(2).await?, "the next round");
    tokio::time::sleep(ARRIVED).await;
    assert_eq!(latch.count().await?, 2, "a late copy of a count-down has counted in the next round");
    Ok(())
}

async fn a_count_down_whose_latch_ended_unheard_counts_once(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let lost = Fault { after: LATE, reply: Reply::Lost, ..Fault::default() };
    let worker = unlucky(&scene, &key, Verb::Amend, lost).await?;
    assert!(latch.set(1).await?);
    let counted = tokio::spawn(async move { worker.count_down().await });
    until_count(&latch, 0).await?;
    assert!(latch.set(2).await?, "the next round");
    assert_eq!(soon(counted).await?.map_err(Stop::fail)??, 0);
    assert_eq!(latch.count().await?, 2, "the repeat of a count-down has counted in the next round");
    Ok(())
}

async fn a_latch_that_ended_answers_gone_to_late_copies(scene: Scene) -> Verdict {
    scene.needs(Capability::Count)?;
    let key = scene.key();
    let set = |count| {
        Ok::<_, Stop>(Claim { lease: None, count: Some(count), ..scene.attempt(&key, WHOLE, WHOLE)? })
    };
    let first = set(1)?;
    let token = scene.ask(&first).await?.granted()?.token;
    let count = Change::Give { n: 1, op: 1, token };
    assert_eq!(scene.amend(&first, count.clone()).await?, Answer::Left(0));
    assert_eq!(scene.ask(&first).await?, Answer::Gone, "set again by a copy of the same request");
    scene.ask(&set(3)?).await?.granted()?;
    assert_eq!(scene.amend(&first, count).await?, Answer::Gone, "counted in the next round");
    assert_eq!(scene.holders(&key).await?[0].count, Some(3));
    Ok(())
}

async fn set_returns_while_tasks_keep_passing_the_open_latch(scene: Scene) -> Verdict {
    const TASKS: usize = 12;
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        // Whoever takes a share of the latch to pass it keeps the share for a while: some task always has one.
        let faults = Faults::new(scene.fixture.store().await?);
        faults.plan(|call| match call.verb {
            Verb::Release => Fault { before: Duration::from_millis(30), ..Fault::default() },
            _ => Fault::default(),
        });
        let (gate, stop) = (Client::new(faults).await?.latch(key.as_str()), stop.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                gate.wait().await?;
                tokio::task::yield_now().await;
            }
            Ok::<_, Stop>(())
        }));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let set = soon(latch.set(1)).await;
    stop.store(true, Ordering::Relaxed);
    assert!(set??, "nobody else sets it");
    assert_eq!(latch.count_down().await?, 0);
    for task in tasks {
        soon(task).await?.map_err(Stop::fail)??;
    }
    Ok(())
}

async fn a_dropped_set_leaves_no_latch(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let slow = Fault { before: LATE, ..Fault::default() };
    let setter = unlucky(&scene, &key, Verb::Claim, slow).await?;
    let given_up = tokio::time::timeout(Duration::from_millis(50), setter.set(1)).await;
    assert!(given_up.is_err(), "the request was still under way");
    tokio::time::sleep(ARRIVED).await;
    assert_eq!(latch.count().await?, 0, "a set that was given up has set the latch");
    Ok(())
}
