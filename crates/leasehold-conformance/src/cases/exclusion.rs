//! Law 1: no grant makes the units held exceed the limit, by the store's own account.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::{Answer, Capability, Claim, Feature, Units};

use crate::case::cases;
use crate::fixture::RawState;
use crate::scene::Scene;
use crate::verdict::{Expect, Verdict};

cases!("exclusion":
    a_free_key_is_granted_at_once,
    a_second_claim_of_the_same_unit_waits,
    a_claim_that_would_rather_leave_leaves_nothing,
    claims_hold_together_up_to_the_limit,
    up_to_takes_what_is_there,
    up_to_takes_nothing_when_nothing_is_there,
    of_many_that_race_exactly_one_holds,
    of_many_that_race_no_more_than_the_limit_hold,
    keys_do_not_disturb_each_other,
);

async fn a_free_key_is_granted_at_once(scene: Scene) -> Verdict {
    let key = scene.key();
    let grant = scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    assert_eq!(grant.units, 1);
    let raw = scene.raw(&key).await?;
    assert_eq!((raw.holders, raw.units, raw.waiters), (1, 1, 0));
    Ok(())
}

async fn a_second_claim_of_the_same_unit_waits(scene: Scene) -> Verdict {
    scene.needs(Capability::Queue)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    let place = scene.ask(&scene.claim(&key, 1, 1)?).await?.waiting()?;
    assert_eq!((place.ahead, place.held), (0, 0));
    let raw = scene.raw(&key).await?;
    assert_eq!((raw.holders, raw.units, raw.waiters), (1, 1, 1));
    Ok(())
}

async fn a_claim_that_would_rather_leave_leaves_nothing(scene: Scene) -> Verdict {
    let key = scene.key();
    let holder = scene.claim(&key, 1, 1)?;
    scene.ask(&holder).await?.granted()?;
    let before = scene.raw(&key).await?;
    let attempt = scene.attempt(&key, 1, 1)?;
    assert_eq!(scene.ask(&attempt).await?, Answer::Busy);
    assert_eq!(scene.raw(&key).await?, before);
    assert_eq!(scene.renew(&attempt).await?, Answer::Gone);
    scene.release(&holder).await?;
    assert_eq!(scene.raw(&key).await?, RawState::default());
    Ok(())
}

async fn claims_hold_together_up_to_the_limit(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    for n in [2, 1, 2] {
        scene.ask(&scene.claim(&key, n, 5)?).await?.granted()?;
    }
    assert_eq!(scene.ask(&scene.attempt(&key, 1, 5)?).await?, Answer::Busy);
    assert_eq!(scene.raw(&key).await?.units, 5);
    Ok(())
}

async fn up_to_takes_what_is_there(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 3, 5)?).await?.granted()?;
    let rest = Claim { units: Units::UpTo(4), ..scene.claim(&key, 4, 5)? };
    assert_eq!(scene.ask(&rest).await?.granted()?.units, 2);
    assert_eq!(scene.raw(&key).await?.units, 5);
    Ok(())
}

async fn up_to_takes_nothing_when_nothing_is_there(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 5, 5)?).await?.granted()?;
    let rest = Claim { units: Units::UpTo(4), ..scene.attempt(&key, 4, 5)? };
    assert_eq!(scene.ask(&rest).await?, Answer::Busy);
    Ok(())
}

async fn of_many_that_race_exactly_one_holds(scene: Scene) -> Verdict {
    assert_eq!(race(&scene, 1).await?, 1);
    Ok(())
}

async fn of_many_that_race_no_more_than_the_limit_hold(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    assert_eq!(race(&scene, 3).await?, 3);
    Ok(())
}

/// Sixteen connections ask for one unit at the same time; how many hold?
async fn race(scene: &Scene, limit: u64) -> Verdict<usize> {
    const RACERS: usize = 16;
    let key = scene.key();
    let line = Arc::new(tokio::sync::Barrier::new(RACERS));
    let winners = Arc::new(AtomicUsize::new(0));
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..RACERS {
        let (racer, line, key) = (scene.another().await?, line.clone(), key.clone());
        let winners = winners.clone();
        racers.spawn(async move {
            line.wait().await;
            loop {
                if let Answer::Granted(_) = racer.ask(&racer.attempt(&key, 1, limit)?).await? {
                    winners.fetch_add(1, Ordering::SeqCst);
                    return Ok(racer);
                }
                // The members of a quorum may each choose another one, and then there is another round.
                if racer.info().can(Capability::Sum) || winners.load(Ordering::SeqCst) > 0 {
                    return Ok(racer);
                }
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..50))).await;
            }
        });
    }
    // Kept until all have run: a session that ends with its connection frees what it holds.
    let _racers = racers.join_all().await.into_iter().collect::<Verdict<Vec<Scene>>>()?;
    assert!(scene.raw(&key).await?.units <= limit);
    Ok(winners.load(Ordering::SeqCst))
}

async fn keys_do_not_disturb_each_other(scene: Scene) -> Verdict {
    let (one, two) = (scene.claim(&scene.key(), 1, 1)?, scene.claim(&scene.key(), 1, 1)?);
    scene.ask(&one).await?.granted()?;
    scene.ask(&two).await?.granted()?;
    scene.renew(&one).await?.granted()?;
    scene.release(&one).await?;
    scene.renew(&two).await?.granted()?;
    Ok(())
}
