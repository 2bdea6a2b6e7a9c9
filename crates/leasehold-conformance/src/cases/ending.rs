//! Laws 6, 7 and 9: releases say what they found, withdrawals win races, and nothing is left behind.

use leasehold_core::{Answer, Capability, ErrorKind, Leases, Released};
use tokio::time::Instant;

use crate::case::cases;
use crate::fixture::RawState;
use crate::scene::{GLANCE, LONG, Scene};
use crate::verdict::{Expect, Verdict};

cases!("ending":
    release_says_what_it_found,
    a_release_leaves_nothing_behind,
    a_repeated_release_does_not_end_a_newer_hold,
    a_release_by_a_stranger_ends_nothing,
    a_waiter_that_withdraws_leaves_nothing_behind,
    a_withdrawal_that_overtakes_its_claim_refuses_it,
    a_withdrawal_refuses_a_second_copy_of_its_claim,
    a_refusal_is_about_one_claim_only,
    a_refusal_ends_by_itself,
    releasing_more_than_once_frees_no_more_than_was_held,
    another_limit_is_a_conflict_while_the_key_is_in_use,
    another_limit_is_no_conflict_once_the_key_is_free,
    another_limit_is_no_conflict_once_the_holder_is_over,
    a_conflict_leaves_nothing_behind,
);

async fn release_says_what_it_found(scene: Scene) -> Verdict {
    let key = scene.key();
    let (holder, waiter) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    assert_eq!(scene.release(&holder).await?, Released::Gone);
    scene.ask(&holder).await?.granted()?;
    if scene.info().can(Capability::Queue) {
        scene.ask(&waiter).await?.waiting()?;
        assert_eq!(scene.release(&waiter).await?, Released::Waiting);
    }
    assert_eq!(scene.release(&holder).await?, Released::Held);
    assert_eq!(scene.release(&holder).await?, Released::Gone);
    Ok(())
}

async fn a_release_leaves_nothing_behind(scene: Scene) -> Verdict {
    let key = scene.key();
    for _ in 0..3 {
        let claim = scene.claim(&key, 1, 1)?;
        scene.ask(&claim).await?.granted()?;
        scene.release(&claim).await?;
        assert_eq!(scene.raw(&key).await?, RawState::default());
        assert_eq!(scene.inspect(&key).await?, None);
    }
    Ok(())
}

async fn a_repeated_release_does_not_end_a_newer_hold(scene: Scene) -> Verdict {
    let key = scene.key();
    let (old, new) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    scene.ask(&old).await?.granted()?;
    scene.release(&old).await?;
    scene.ask(&new).await?.granted()?;
    assert_eq!(scene.release(&old).await?, Released::Gone);
    scene.renew(&new).await?.granted()?;
    Ok(())
}

async fn a_release_by_a_stranger_ends_nothing(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    assert_eq!(scene.release(&scene.claim(&key, 1, 1)?).await?, Released::Gone);
    scene.renew(&claim).await?.granted()?;
    Ok(())
}

async fn a_waiter_that_withdraws_leaves_nothing_behind(scene: Scene) -> Verdict {
    scene.needs(Capability::Queue)?;
    let key = scene.key();
    let (holder, waiter) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    scene.ask(&holder).await?.granted()?;
    scene.ask(&waiter).await?.waiting()?;
    assert_eq!(scene.release(&waiter).await?, Released::Waiting);
    assert_eq!(scene.raw(&key).await?.waiters, 0);
    scene.release(&holder).await?;
    assert_eq!(scene.raw(&key).await?, RawState::default());
    Ok(())
}

async fn a_withdrawal_that_overtakes_its_claim_refuses_it(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    assert_eq!(scene.store.release(&claim, Some(LONG)).await?, Released::Gone);
    assert_eq!(scene.ask(&claim).await?, Answer::Gone);
    assert_eq!(scene.inspect(&key).await?, None);
    // A quorum, which alone has no queue, knows the id only in its own process: its members hear of other ids.
    if scene.info().leases == Leases::PerClaim && scene.info().can(Capability::Queue) {
        // Also on another connection: that is where it would arrive, unless it can only live on the session of this one.
        assert_eq!(scene.another().await?.ask(&claim).await?, Answer::Gone);
    }
    Ok(())
}

async fn a_withdrawal_refuses_a_second_copy_of_its_claim(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    // The reply was lost, the claim was sent again, and that copy is still on its way.
    assert_eq!(scene.store.release(&claim, Some(LONG)).await?, Released::Held);
    assert_eq!(scene.ask(&claim).await?, Answer::Gone);
    assert_eq!(scene.inspect(&key).await?, None);
    Ok(())
}

async fn a_refusal_is_about_one_claim_only(scene: Scene) -> Verdict {
    let key = scene.key();
    let (refused, other) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    scene.store.release(&refused, Some(LONG)).await?;
    scene.ask(&other).await?.granted()?;
    Ok(())
}

async fn a_refusal_ends_by_itself(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    let start = Instant::now();
    scene.store.release(&claim, Some(scene.lease())).await?;
    while scene.ask(&claim).await? == Answer::Gone {
        tokio::time::sleep(GLANCE).await;
    }
    assert!(start.elapsed() + scene.info().rounding >= scene.lease());
    scene.release(&claim).await?;
    scene.until_swept(&key).await
}

async fn releasing_more_than_once_frees_no_more_than_was_held(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let (one, two) = (scene.claim(&key, 2, 3)?, scene.claim(&key, 1, 3)?);
    scene.ask(&one).await?.granted()?;
    scene.ask(&two).await?.granted()?;
    for _ in 0..3 {
        scene.release(&one).await?;
    }
    assert_eq!(scene.ask(&scene.attempt(&key, 3, 3)?).await?, Answer::Busy);
    scene.ask(&scene.attempt(&key, 2, 3)?).await?.granted()?;
    Ok(())
}

async fn another_limit_is_a_conflict_while_the_key_is_in_use(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 1, 5)?).await?.granted()?;
    for limit in [1, 4, 6] {
        let refused = scene.store.claim(&scene.claim(&key, 1, limit)?).await;
        assert_eq!(refused.map_err(|e| e.kind()), Err(ErrorKind::Conflict), "limit {limit}");
    }
    Ok(())
}

async fn another_limit_is_no_conflict_once_the_key_is_free(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let claim = scene.claim(&key, 1, 5)?;
    scene.ask(&claim).await?.granted()?;
    scene.release(&claim).await?;
    scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    Ok(())
}

async fn another_limit_is_no_conflict_once_the_holder_is_over(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    scene.ask(&scene.brief(&key, 1, 5)?).await?.granted()?;
    scene.until_free(&key).await?;
    scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    Ok(())
}

async fn a_conflict_leaves_nothing_behind(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let holder = scene.claim(&key, 1, 5)?;
    scene.ask(&holder).await?.granted()?;
    let before = scene.raw(&key).await?;
    assert!(scene.store.claim(&scene.claim(&key, 1, 1)?).await.is_err());
    assert_eq!(scene.raw(&key).await?, before);
    scene.release(&holder).await?;
    assert_eq!(scene.raw(&key).await?, RawState::default());
    Ok(())
}
