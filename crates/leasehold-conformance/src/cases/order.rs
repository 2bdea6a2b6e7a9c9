//! Law 2: grants follow the queue.

use leasehold_core::{Answer, Capability, Claim, Order, Place, Released, Units};

use crate::case::cases;
use crate::scene::Scene;
use crate::verdict::{Expect, Verdict};

cases!("order":
    waiters_are_granted_in_order_of_arrival,
    a_release_grants_as_many_as_fit_and_no_more,
    a_large_claim_at_the_front_is_not_overtaken,
    the_next_may_hold_when_the_front_gives_up,
    barging_passes_the_queue_when_it_fits,
    barging_waits_behind_all_when_it_does_not_fit,
    up_to_takes_what_is_there_when_its_turn_comes,
    ahead_counts_those_before,
    a_seat_is_never_reused,
    a_renewal_beside_a_promotion_does_not_miss_the_claim,
    a_long_queue_drains_in_order,
);

async fn waiters_are_granted_in_order_of_arrival(scene: Scene) -> Verdict {
    scene.needs_order()?;
    drain(&scene, 5).await
}

async fn a_long_queue_drains_in_order(scene: Scene) -> Verdict {
    scene.needs_order()?;
    drain(&scene, scene.fixture.crowd()).await
}

/// A store that looks in two places, one after the other, finds it in neither.
async fn a_renewal_beside_a_promotion_does_not_miss_the_claim(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let (other, key) = (scene.another().await?, scene.key());
    for round in 0..40 {
        let (holder, waiter) = (scene.claim(&key, 1, 1)?, other.claim(&key, 1, 1)?);
        scene.ask(&holder).await?.granted()?;
        other.ask(&waiter).await?.waiting()?;
        let (renewed, released) = tokio::join!(other.renew(&waiter), scene.release(&holder));
        assert_eq!(released?, Released::Held);
        let renewed = renewed?;
        assert!(matches!(renewed, Answer::Granted(_) | Answer::Waiting(_)), "{renewed:?} in round {round}");
        other.until_granted(&waiter).await?;
        assert_eq!(other.release(&waiter).await?, Released::Held);
    }
    Ok(())
}

/// Queues this many behind a holder and lets them through one by one.
async fn drain(scene: &Scene, waiters: usize) -> Verdict {
    let key = scene.key();
    let mut holder = scene.claim(&key, 1, 1)?;
    scene.ask(&holder).await?.granted()?;
    let mut queue = Vec::new();
    for _ in 0..waiters {
        let claim = scene.claim(&key, 1, 1)?;
        scene.ask(&claim).await?.waiting()?;
        queue.push(claim);
    }
    for pair in queue.windows(2) {
        assert_eq!(scene.release(&holder).await?, Released::Held);
        scene.renew(&pair[0]).await?.granted()?;
        scene.renew(&pair[1]).await?.waiting()?;
        holder = pair[0].clone();
    }
    Ok(())
}

async fn a_release_grants_as_many_as_fit_and_no_more(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let holder = scene.claim(&key, 4, 4)?;
    scene.ask(&holder).await?.granted()?;
    let queue = [1, 2, 2, 1].map(|n| scene.claim(&key, n, 4));
    let [a, b, c, d] = queue;
    let (a, b, c, d) = (a?, b?, c?, d?);
    for claim in [&a, &b, &c, &d] {
        scene.ask(claim).await?.waiting()?;
    }
    scene.release(&holder).await?;
    scene.renew(&a).await?.granted()?;
    scene.renew(&b).await?.granted()?;
    scene.renew(&c).await?.waiting()?;
    // One unit is free and `d` wants one, but `c` came first.
    scene.renew(&d).await?.waiting()?;
    assert_eq!(scene.raw(&key).await?.units, 3);
    Ok(())
}

async fn a_large_claim_at_the_front_is_not_overtaken(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 1, 3)?).await?.granted()?;
    scene.ask(&scene.claim(&key, 3, 3)?).await?.waiting()?;
    assert_eq!(scene.ask(&scene.attempt(&key, 1, 3)?).await?, Answer::Busy);
    let place = scene.ask(&scene.claim(&key, 1, 3)?).await?.waiting()?;
    assert_eq!(place.ahead, 1);
    Ok(())
}

async fn the_next_may_hold_when_the_front_gives_up(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 1, 3)?).await?.granted()?;
    let (front, next) = (scene.claim(&key, 3, 3)?, scene.claim(&key, 1, 3)?);
    scene.ask(&front).await?.waiting()?;
    scene.ask(&next).await?.waiting()?;
    assert_eq!(scene.release(&front).await?, Released::Waiting);
    scene.renew(&next).await?.granted()?;
    Ok(())
}

async fn barging_passes_the_queue_when_it_fits(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 2, 3)?).await?.granted()?;
    let patient = scene.claim(&key, 2, 3)?;
    scene.ask(&patient).await?.waiting()?;
    let barger = Claim { order: Order::Barging, ..scene.claim(&key, 1, 3)? };
    scene.ask(&barger).await?.granted()?;
    scene.renew(&patient).await?.waiting()?;
    Ok(())
}

async fn barging_waits_behind_all_when_it_does_not_fit(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    scene.ask(&scene.claim(&key, 1, 1)?).await?.waiting()?;
    let barger = Claim { order: Order::Barging, ..scene.claim(&key, 1, 1)? };
    assert_eq!(scene.ask(&barger).await?.waiting()?.ahead, 1);
    Ok(())
}

async fn up_to_takes_what_is_there_when_its_turn_comes(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let (small, large) = (scene.claim(&key, 2, 5)?, scene.claim(&key, 3, 5)?);
    scene.ask(&small).await?.granted()?;
    scene.ask(&large).await?.granted()?;
    let taker = Claim { units: Units::UpTo(5), ..scene.claim(&key, 5, 5)? };
    scene.ask(&taker).await?.waiting()?;
    scene.release(&small).await?;
    assert_eq!(scene.renew(&taker).await?.granted()?.units, 2);
    Ok(())
}

async fn ahead_counts_those_before(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    for before in 0..Place::COUNTED + 5 {
        let place = scene.ask(&scene.claim(&key, 1, 1)?).await?.waiting()?;
        assert_eq!(place.ahead, before.min(Place::COUNTED), "with {before} claims before it");
    }
    Ok(())
}

async fn a_seat_is_never_reused(scene: Scene) -> Verdict {
    scene.needs(Capability::Queue)?;
    let key = scene.key();
    let mut seats = std::collections::HashSet::new();
    for _ in 0..5 {
        let (holder, waiter) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
        assert!(seats.insert(scene.ask(&holder).await?.granted()?.seat));
        assert!(seats.insert(scene.ask(&waiter).await?.waiting()?.seat));
        scene.release(&waiter).await?;
        scene.release(&holder).await?;
    }
    Ok(())
}
