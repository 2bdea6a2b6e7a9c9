//! A count that goes down to zero, and those who wait for that.

use std::time::Duration;

use leasehold_core::layers::{Fault, Faults, Reply, Verb};
use leasehold_core::{Client, ErrorKind, Feature, Key, Latch};
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::{LONG, Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("latch":
    an_unset_latch_is_open,
    waiter_for_a_latch_that_must_exist_waits_until_it_is_set,
    waiters_pass_together_when_the_count_is_zero,
    count_says_what_is_left,
    counting_below_zero_opens_it,
    an_open_latch_stays_open_when_counted_down,
    a_latch_of_zero_is_refused,
    the_second_set_changes_nothing,
    of_racing_sets_exactly_one_wins,
    every_count_down_of_many_counts_once,
    a_count_down_whose_reply_was_lost_counts_once,
    a_set_whose_reply_was_lost_knows_its_own,
    an_open_latch_can_be_set_again,
    a_latch_outlives_its_setter,
    a_latch_that_lives_for_a_time_opens_by_itself,
    deleting_ends_waiters_with_an_error,
    wait_within_says_no_and_leaves_no_place,
    nothing_is_left_after_zero,
    a_latch_that_ran_out_of_time_can_be_set_again,
    a_set_that_came_second_does_not_prolong_a_life,
);

/// Skips the case on stores without latches; otherwise one, seen by a new client.
async fn latch(scene: &Scene, key: &Key) -> Verdict<Latch> {
    scene.needs_feature(Feature::Latch)?;
    Ok(scene.fixture.connect().await?.latch(key.as_str()))
}

type Waiter = tokio::task::JoinHandle<leasehold_core::Result<()>>;

/// Clients that wait, once the store shows them all.
async fn waiters(scene: &Scene, key: &Key, many: usize) -> Verdict<Vec<Waiter>> {
    let mut tasks = Vec::new();
    for waiting in 1..=many {
        let latch = latch(scene, key).await?;
        tasks.push(tokio::spawn(async move { latch.wait().await }));
        scene.until_waiting(key, waiting).await?;
    }
    Ok(tasks)
}

async fn an_unset_latch_is_open(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert_eq!(latch.count().await?, 0);
    soon(latch.wait()).await??;
    assert!(latch.wait_within(LONG).await?);
    scene.until_nothing_is_left(&key).await
}

async fn waiter_for_a_latch_that_must_exist_waits_until_it_is_set(scene: Scene) -> Verdict {
    const SHORT: Duration = Duration::from_millis(300);
    let key = scene.key();
    let (one, setter) = (latch(&scene, &key).await?, latch(&scene, &key).await?);
    let one = one.must_exist();
    assert!(!one.wait_within(SHORT).await?, "it passed a latch that was never set");
    assert_eq!(scene.raw(&key).await?.waiters, 0);
    let waiting = one.clone();
    let waiter = tokio::spawn(async move { waiting.wait().await });
    setter.set(1).await?;
    scene.until_waiting(&key, 1).await?;
    setter.count_down().await?;
    soon(waiter).await?.map_err(Stop::fail)??;
    assert!(!one.wait_within(SHORT).await?, "an open latch is not set");
    scene.until_only_marks_are_left(&key, 1).await
}

async fn waiters_pass_together_when_the_count_is_zero(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.set(2).await?);
    let tasks = waiters(&scene, &key, 3).await?;
    assert_eq!(latch.count_down().await?, 1);
    assert_eq!(scene.raw(&key).await?.waiters, 3, "one of two was enough for somebody");
    assert_eq!(latch.count_down().await?, 0);
    for task in tasks {
        soon(task).await?.map_err(Stop::fail)??;
    }
    Ok(())
}

async fn count_says_what_is_left(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, other) = (latch(&scene, &key).await?, latch(&scene, &key).await?);
    assert!(one.set(5).await?);
    assert_eq!(other.count().await?, 5);
    assert_eq!(other.count_down_by(3).await?, 2);
    assert_eq!(one.count().await?, 2);
    Ok(())
}

async fn counting_below_zero_opens_it(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.set(3).await?);
    assert_eq!(latch.count_down_by(u64::MAX).await?, 0);
    soon(latch.wait()).await??;
    Ok(())
}

async fn an_open_latch_stays_open_when_counted_down(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert_eq!(latch.count_down().await?, 0);
    assert!(latch.set(2).await?);
    assert_eq!(latch.count().await?, 2, "counting an open latch down was counted later");
    Ok(())
}

async fn a_latch_of_zero_is_refused(scene: Scene) -> Verdict {
    let latch = latch(&scene, &scene.key()).await?;
    let error = latch.set(0).await.expect_err("zero is open already");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    Ok(())
}

async fn the_second_set_changes_nothing(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, other) = (latch(&scene, &key).await?, latch(&scene, &key).await?);
    assert!(one.set(2).await?);
    assert!(!other.set(7).await?);
    assert!(!one.set(7).await?, "also not for the one who set it");
    assert_eq!(one.count().await?, 2);
    Ok(())
}

async fn of_racing_sets_exactly_one_wins(scene: Scene) -> Verdict {
    for _ in 0..5 {
        let key = scene.key();
        let mut racers = Vec::new();
        for count in 1..=6 {
            let latch = latch(&scene, &key).await?;
            racers.push(tokio::spawn(async move { Ok::<_, Stop>((count, latch.set(count).await?)) }));
        }
        let mut winners = Vec::new();
        for racer in racers {
            let (count, won) = soon(racer).await?.map_err(Stop::fail)??;
            winners.extend(won.then_some(count));
        }
        assert_eq!(winners, [latch(&scene, &key).await?.count().await?]);
    }
    Ok(())
}

async fn every_count_down_of_many_counts_once(scene: Scene) -> Verdict {
    const EACH: u64 = 10;
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.set(4 * EACH + 1).await?);
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let latch = self::latch(&scene, &key).await?;
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                latch.count_down().await?;
            }
            Ok::<_, Stop>(())
        }));
    }
    for task in tasks {
        soon(task).await?.map_err(Stop::fail)??;
    }
    assert_eq!(latch.count().await?, 1);
    Ok(())
}

/// A client whose store loses the next reply of this kind.
async fn losing(scene: &Scene, verb: Verb) -> Verdict<Client> {
    let faults = Faults::new(scene.fixture.store().await?);
    faults.once(verb, Fault { reply: Reply::Lost, ..Fault::default() });
    Ok(Client::new(faults).await?)
}

async fn a_count_down_whose_reply_was_lost_counts_once(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.set(5).await?);
    let unlucky = losing(&scene, Verb::Amend).await?;
    assert_eq!(unlucky.latch(key.as_str()).count_down_by(2).await?, 3);
    assert_eq!(latch.count().await?, 3);
    Ok(())
}

async fn a_set_whose_reply_was_lost_knows_its_own(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let unlucky = losing(&scene, Verb::Claim).await?;
    assert!(unlucky.latch(key.as_str()).set(4).await?, "it did not know its own setting");
    assert_eq!(latch.count().await?, 4);
    Ok(())
}

async fn an_open_latch_can_be_set_again(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    for count in [1, 2] {
        assert!(soon(latch.set(count)).await??);
        let task = waiters(&scene, &key, 1).await?.remove(0);
        assert_eq!(latch.count_down_by(count).await?, 0);
        soon(task).await?.map_err(Stop::fail)??;
    }
    Ok(())
}

async fn a_latch_outlives_its_setter(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let setter = scene.fixture.connect().await?;
    assert!(setter.latch(key.as_str()).set(1).await?);
    setter.close().await?;
    assert!(!latch.wait_within(Duration::from_millis(20)).await?);
    assert_eq!(latch.count_down().await?, 0);
    soon(latch.wait()).await??;
    Ok(())
}

async fn a_latch_that_lives_for_a_time_opens_by_itself(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    let start = Instant::now();
    assert!(latch.clone().lives_for(scene.lease()).set(3).await?);
    soon(latch.wait()).await??;
    assert!(start.elapsed() + scene.info().rounding >= scene.lease(), "{:?}", start.elapsed());
    assert_eq!(latch.count().await?, 0);
    Ok(())
}

async fn deleting_ends_waiters_with_an_error(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(!latch.delete().await?, "there was none");
    assert!(latch.set(1).await?);
    let tasks = waiters(&scene, &key, 2).await?;
    assert!(latch.delete().await?);
    for task in tasks {
        let error = soon(task).await?.map_err(Stop::fail)?.expect_err("what it waited for is gone");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    scene.until_free(&key).await
}

async fn wait_within_says_no_and_leaves_no_place(scene: Scene) -> Verdict {
    const LIMIT: Duration = Duration::from_millis(400);
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.set(1).await?);
    let start = Instant::now();
    assert!(!latch.wait_within(LIMIT).await?);
    assert!(start.elapsed() >= LIMIT);
    scene.until_raw(&key, |now| now.waiters == 0).await?;
    assert_eq!(latch.count_down().await?, 0);
    assert!(soon(latch.wait_within(LONG)).await??);
    Ok(())
}

async fn nothing_is_left_after_zero(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.set(1).await?);
    let task = waiters(&scene, &key, 1).await?.remove(0);
    assert_eq!(latch.count_down().await?, 0);
    soon(task).await?.map_err(Stop::fail)??;
    // The mark refuses late copies of the request that set the latch, and ends by itself.
    scene.until_only_marks_are_left(&key, 1).await
}

async fn a_latch_that_ran_out_of_time_can_be_set_again(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.clone().lives_for(scene.lease()).set(3).await?);
    scene.until_free(&key).await?;
    assert!(soon(latch.set(1)).await??);
    assert_eq!(latch.count().await?, 1);
    Ok(())
}

async fn a_set_that_came_second_does_not_prolong_a_life(scene: Scene) -> Verdict {
    let key = scene.key();
    let latch = latch(&scene, &key).await?;
    assert!(latch.clone().lives_for(scene.lease()).set(3).await?);
    assert!(!latch.clone().lives_for(LONG).set(3).await?);
    assert!(!latch.set(3).await?);
    scene.until_free(&key).await
}
