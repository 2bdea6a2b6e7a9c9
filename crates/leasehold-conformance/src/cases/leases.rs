//! Laws 4 and 8: a claim lives on its lease, ends when it is not renewed, and never comes back.

use std::time::Duration;

use leasehold_core::{Answer, Capability, Claim, Extend, Leases, Options};
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::{LONG, SLACK, Scene};
use crate::verdict::{Expect, Stop, Verdict};

cases!("leases":
    a_holder_that_is_not_renewed_ends_no_earlier_than_its_lease,
    the_next_in_the_queue_holds_when_the_holder_is_over,
    renewal_keeps_a_claim_for_many_leases,
    renewal_with_another_lease_changes_it,
    polling_a_claim_does_not_extend_its_fixed_lease,
    a_renewal_that_extends_nothing_moves_no_end,
    renewal_never_creates_a_claim,
    a_holder_that_is_over_never_comes_back,
    one_answer_per_claim_in_order,
    a_repeated_claim_answers_the_same_hold,
    a_repeated_claim_renews_the_hold,
    a_repeated_claim_keeps_its_place,
    an_expired_waiter_keeps_its_place_until_the_front,
    a_dead_waiter_at_the_front_is_passed_over,
    many_dead_waiters_do_not_hold_up_the_living,
    promotion_does_not_move_a_lease,
    a_promoted_claim_that_nobody_picks_up_is_passed_on,
    lock_delay_blocks_the_key_after_an_expiry,
    lock_delay_does_not_block_after_a_release,
    an_expired_claim_leaves_nothing_once_the_key_is_used_again,
);

async fn a_holder_that_is_not_renewed_ends_no_earlier_than_its_lease(scene: Scene) -> Verdict {
    let key = scene.key();
    let start = Instant::now();
    let grant = scene.ask(&scene.brief(&key, 1, 1)?).await?.granted()?;
    if scene.info().leases == Leases::PerClaim {
        let lease = grant.lease.expect("a lease of its own was started by this very call");
        assert!(lease <= scene.lease() && lease + scene.info().rounding >= scene.lease(), "{lease:?}");
    }
    scene.until_free(&key).await?;
    let held = start.elapsed() + scene.info().rounding;
    assert!(held >= scene.lease(), "held for {held:?} of {:?}", scene.lease());
    Ok(())
}

async fn the_next_in_the_queue_holds_when_the_holder_is_over(scene: Scene) -> Verdict {
    scene.needs(Capability::Queue)?;
    let key = scene.key();
    let dying = scene.brief(&key, 1, 1)?;
    scene.ask(&dying).await?.granted()?;
    let next = scene.claim(&key, 1, 1)?;
    scene.ask(&next).await?.waiting()?;
    // Nobody but the waiter itself asks the store anything.
    scene.until_granted(&next).await?;
    assert_eq!(scene.renew(&dying).await?, Answer::Gone);
    assert_eq!(scene.raw(&key).await?.units, 1);
    Ok(())
}

async fn renewal_keeps_a_claim_for_many_leases(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.brief(&key, 1, 1)?;
    let first = scene.ask(&claim).await?.granted()?;
    let start = Instant::now();
    while start.elapsed() < scene.lease() * 3 {
        tokio::time::sleep(scene.lease() / 10).await;
        assert_eq!(scene.renew(&claim).await?.granted()?.token, first.token);
    }
    Ok(())
}

async fn renewal_with_another_lease_changes_it(scene: Scene) -> Verdict {
    scene.needs_own_leases("its length is not theirs")?;
    let key = scene.key();
    let claim = scene.brief(&key, 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    let longer = Claim { lease: scene.claim(&key, 1, 1)?.lease, ..claim };
    let grant = scene.renew(&longer).await?.granted()?;
    assert!(grant.lease > Some(scene.lease()), "{grant:?}");
    let left = scene.holders(&key).await?[0].lease_left;
    assert!(left > Some(scene.lease()), "{left:?}");
    Ok(())
}

async fn renewal_never_creates_a_claim(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    assert_eq!(scene.renew(&claim).await?, Answer::Gone);
    assert_eq!(scene.inspect(&key).await?, None);
    scene.ask(&claim).await?.granted()?;
    scene.release(&claim).await?;
    assert_eq!(scene.renew(&claim).await?, Answer::Gone);
    assert_eq!(scene.inspect(&key).await?, None);
    Ok(())
}

async fn a_holder_that_is_over_never_comes_back(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.brief(&key, 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    scene.until_free(&key).await?;
    // Nobody else came: the store may still have it, and must not give it back.
    assert_eq!(scene.renew(&claim).await?, Answer::Gone);
    assert_eq!(scene.renew(&claim).await?, Answer::Gone);
    assert_eq!(scene.inspect(&key).await?, None);
    Ok(())
}

async fn one_answer_per_claim_in_order(scene: Scene) -> Verdict {
    let mut claims = Vec::new();
    for n in 0..20 {
        let claim = scene.claim(&scene.key(), 1, 1)?;
        if n % 3 != 0 {
            scene.ask(&claim).await?.granted()?;
        }
        claims.push(claim);
    }
    let answers = scene.store.renew(&claims).await?;
    assert_eq!(answers.len(), claims.len());
    for (n, (claim, answer)) in claims.iter().zip(answers).enumerate() {
        match n % 3 {
            0 => assert_eq!(answer, Answer::Gone),
            _ => assert_eq!(answer.granted()?.token, scene.holders(&claim.key).await?[0].token),
        }
    }
    assert_eq!(scene.store.renew(&[]).await?, []);
    Ok(())
}

async fn a_repeated_claim_answers_the_same_hold(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    let first = scene.ask(&claim).await?.granted()?;
    let again = scene.ask(&claim).await?.granted()?;
    assert_eq!((again.seat, again.token, again.units), (first.seat, first.token, first.units));
    let raw = scene.raw(&key).await?;
    assert_eq!((raw.holders, raw.units), (1, 1));
    Ok(())
}

async fn a_repeated_claim_renews_the_hold(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.brief(&key, 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    let start = Instant::now();
    while start.elapsed() < scene.lease() * 2 {
        tokio::time::sleep(scene.lease() / 10).await;
        scene.ask(&claim).await?.granted()?;
    }
    Ok(())
}

async fn a_repeated_claim_keeps_its_place(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    let (one, two) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    let first = scene.ask(&one).await?.waiting()?;
    scene.ask(&two).await?.waiting()?;
    let again = scene.ask(&one).await?.waiting()?;
    assert_eq!((again.seat, again.ahead), (first.seat, 0));
    assert_eq!(scene.raw(&key).await?.waiters, 2);
    Ok(())
}

/// A holder, a waiter whose place is over but not buried, and a waiter behind it.
async fn with_an_expired_front(scene: &Scene) -> Verdict<[Claim; 3]> {
    let key = scene.key();
    let holder = scene.claim(&key, 1, 1)?;
    let (expired, behind) = (scene.impatient(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    scene.ask(&holder).await?.granted()?;
    scene.ask(&expired).await?.waiting()?;
    scene.ask(&behind).await?.waiting()?;
    scene.until(&key, |seen| seen.is_some_and(|seen| seen.waiters.len() == 1)).await?;
    Ok([holder, expired, behind])
}

async fn an_expired_waiter_keeps_its_place_until_the_front(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs_own_leases("who waits ends with it")?;
    let key = scene.key();
    let holder = scene.claim(&key, 1, 1)?;
    let (front, expired) = (scene.claim(&key, 1, 1)?, scene.impatient(&key, 1, 1)?);
    scene.ask(&holder).await?.granted()?;
    scene.ask(&front).await?.waiting()?;
    let place = scene.ask(&expired).await?.waiting()?;
    scene.until(&key, |seen| seen.is_some_and(|seen| seen.waiters.len() == 1)).await?;
    // An outage shorter than the queue must not cost anybody a place.
    let again = scene.renew(&expired).await?.waiting()?;
    assert_eq!((again.seat, again.ahead), (place.seat, 1));
    Ok(())
}

async fn a_dead_waiter_at_the_front_is_passed_over(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let [holder, expired, behind] = with_an_expired_front(&scene).await?;
    scene.release(&holder).await?;
    scene.renew(&behind).await?.granted()?;
    assert_eq!(scene.renew(&expired).await?, Answer::Gone);
    Ok(())
}

async fn many_dead_waiters_do_not_hold_up_the_living(scene: Scene) -> Verdict {
    scene.needs_order()?;
    const DEAD: usize = 150;
    /// One call buries at most 64.
    const CALLS: usize = 4;
    let key = scene.key();
    let holder = scene.claim(&key, 1, 1)?;
    scene.ask(&holder).await?.granted()?;
    for _ in 0..DEAD {
        scene.ask(&scene.impatient(&key, 1, 1)?).await?.waiting()?;
    }
    let living = scene.claim(&key, 1, 1)?;
    scene.ask(&living).await?.waiting()?;
    scene.until(&key, |seen| seen.is_some_and(|seen| seen.waiters.len() == 1)).await?;
    scene.release(&holder).await?;
    let mut calls = 0;
    while !matches!(scene.renew(&living).await?, Answer::Granted(_)) {
        calls += 1;
        assert!(calls < CALLS, "still waiting after {calls} calls");
    }
    Ok(())
}

async fn promotion_does_not_move_a_lease(scene: Scene) -> Verdict {
    scene.needs(Capability::Queue)?;
    scene.needs_own_leases("a grant does not change it")?;
    let key = scene.key();
    let (holder, waiter) = (scene.claim(&key, 1, 1)?, scene.impatient(&key, 1, 1)?);
    scene.ask(&holder).await?.granted()?;
    scene.ask(&waiter).await?.waiting()?;
    scene.release(&holder).await?;
    let promoted = scene.holders(&key).await?;
    assert_eq!(promoted.len(), 1, "the waiter was not promoted by the release");
    assert!(promoted[0].lease_left <= Some(scene.lease()), "{promoted:?}");
    // The owner shows itself: now the full lease may start.
    scene.renew(&waiter).await?.granted()?;
    assert!(scene.holders(&key).await?[0].lease_left > Some(scene.lease()));
    Ok(())
}

async fn a_promoted_claim_that_nobody_picks_up_is_passed_on(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let key = scene.key();
    let (holder, dead) = (scene.claim(&key, 1, 1)?, scene.impatient(&key, 1, 1)?);
    let living = scene.claim(&key, 1, 1)?;
    scene.ask(&holder).await?.granted()?;
    scene.ask(&dead).await?.waiting()?;
    scene.ask(&living).await?.waiting()?;
    scene.release(&holder).await?;
    scene.renew(&living).await?.waiting()?;
    scene.until_granted(&living).await?;
    assert_eq!(scene.renew(&dead).await?, Answer::Gone);
    Ok(())
}

async fn lock_delay_blocks_the_key_after_an_expiry(scene: Scene) -> Verdict {
    scene.needs(Capability::LockDelay)?;
    let key = scene.key();
    let start = Instant::now();
    let dying = Claim { lock_delay: scene.lease(), ..scene.brief(&key, 1, 1)? };
    scene.ask(&dying).await?.granted()?;
    scene.next_turn(&key).await?;
    let blocked = start.elapsed() + scene.info().rounding;
    assert!(blocked >= scene.lease() * 2, "free after {blocked:?}");
    assert_eq!(scene.renew(&dying).await?, Answer::Gone);
    Ok(())
}

async fn lock_delay_does_not_block_after_a_release(scene: Scene) -> Verdict {
    scene.needs(Capability::LockDelay)?;
    let key = scene.key();
    let claim = Claim { lock_delay: crate::scene::LONG, ..scene.claim(&key, 1, 1)? };
    scene.ask(&claim).await?.granted()?;
    scene.release(&claim).await?;
    scene.ask(&scene.attempt(&key, 1, 1)?).await?.granted()?;
    Ok(())
}

async fn an_expired_claim_leaves_nothing_once_the_key_is_used_again(scene: Scene) -> Verdict {
    let key = scene.key();
    scene.ask(&scene.brief(&key, 1, 1)?).await?.granted()?;
    scene.until_free(&key).await?;
    let claim = scene.claim(&key, 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    assert_eq!(scene.raw(&key).await?.holders, 1);
    scene.release(&claim).await?;
    scene.until_nothing_is_left(&key).await
}

async fn a_renewal_that_extends_nothing_moves_no_end(scene: Scene) -> Verdict {
    scene.needs(Capability::Sight)?;
    scene.needs_own_leases("the session is renewed, whatever is asked about its claims")?;
    let key = scene.key();
    let claim = scene.brief(&key, 1, 1)?;
    let poll = Claim { extend: Extend::Nothing, ..claim.clone() };
    let token = scene.ask(&claim).await?.granted()?.token;
    let give_up = Instant::now() + scene.lease() + scene.info().expiry_slack + SLACK;
    loop {
        match scene.renew(&poll).await? {
            Answer::Granted(grant) => assert_eq!((grant.token, grant.lease), (token, None)),
            answer => {
                assert_eq!(answer, Answer::Gone);
                return Ok(());
            }
        }
        if Instant::now() > give_up {
            return Err(Stop::fail("a claim lives on because it is polled"));
        }
        tokio::time::sleep(scene.lease() / 10).await;
    }
}

async fn polling_a_claim_does_not_extend_its_fixed_lease(scene: Scene) -> Verdict {
    const HELD: Duration = Duration::from_secs(2);
    scene.needs(Capability::Ask)?;
    // Where nobody is told anything, nobody polls a fixed lease.
    scene.needs_pushes()?;
    scene.needs_own_leases("the session is renewed, and its client releases the claim in time")?;
    let (one, two) = (scene.fixture.connect().await?, scene.fixture.connect().await?);
    let key = scene.key();
    let start = Instant::now();
    let guard = one.mutex(&key).with(Options::new().fixed(LONG)).acquire().await?;
    tokio::time::sleep(HELD).await;
    // The holder hears of it and looks whether it still holds.
    assert!(two.ask(&key, guard.token()).await?);
    let heard = tokio::time::timeout(SLACK, guard.asked_to_release()).await;
    heard.map_err(|_| Stop::fail("the holder was asked, and did not hear of it"))?;
    let left = scene.holders(&key).await?.first().and_then(|holder| holder.lease_left);
    let spent = HELD.min(start.elapsed());
    let most = LONG - spent + scene.info().rounding + HELD / 4;
    assert!(left.is_some_and(|left| left <= most), "{left:?} are left after {spent:?} of {LONG:?}");
    assert!(guard.is_valid());
    guard.release().await?;
    Ok(())
}
