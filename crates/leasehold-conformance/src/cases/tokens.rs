//! Law 3: every grant carries a number larger than that of every earlier grant of the key.

use std::time::{Duration, Instant};

use leasehold_core::{Capability, Change, Claim, Key, Order, TokenStrength};
use tokio::time::sleep;

use crate::case::cases;
use crate::scene::{GLANCE, SLACK, Scene};
use crate::verdict::{Expect, Stop, Verdict};

/// More than two tokens of one case can be apart: what a number source may be ahead of its clock, and how
/// long a case takes.
const NEAR: Duration = Duration::from_secs(180);

/// The token of a claim that is released again.
async fn passing(scene: &Scene, key: &Key) -> Verdict<u64> {
    let claim = scene.claim(key, 1, 1)?;
    let token = scene.ask(&claim).await?.granted()?.token;
    assert!(i64::try_from(token).is_ok(), "{token} fits no signed number");
    scene.release(&claim).await?;
    Ok(token)
}

cases!("tokens":
    tokens_rise_across_a_release,
    tokens_rise_across_an_expiry,
    tokens_rise_across_an_eviction,
    tokens_rise_across_connections,
    a_promoted_claim_has_the_token_of_its_grant,
    holders_side_by_side_have_tokens_of_their_own,
    a_barger_gets_a_larger_token_than_those_before,
    growing_takes_a_new_token,
    the_token_stays_for_as_long_as_the_claim_holds,
    the_token_is_above_what_the_claim_asks,
    claim_far_above_the_clock_is_refused_and_moves_nothing,
    a_promotion_is_told_and_quotes_seat_and_token,
    a_promotion_is_told_to_its_inbox_only,
);

async fn tokens_rise_across_a_release(scene: Scene) -> Verdict {
    let key = scene.key();
    let mut last = 0;
    for _ in 0..20 {
        let token = passing(&scene, &key).await?;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    Ok(())
}

async fn tokens_rise_across_an_expiry(scene: Scene) -> Verdict {
    let key = scene.key();
    let first = scene.ask(&scene.brief(&key, 1, 1)?).await?.granted()?.token;
    scene.until_free(&key).await?;
    let second = scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?.token;
    assert!(second > first, "{second} after {first}");
    Ok(())
}

async fn tokens_rise_across_an_eviction(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let key = scene.key();
    let first = scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?.token;
    assert!(scene.store.evict(&key, first).await?);
    let second = scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?.token;
    assert!(second > first, "{second} after {first}");
    Ok(())
}

async fn tokens_rise_across_connections(scene: Scene) -> Verdict {
    let key = scene.key();
    let mut last = 0;
    for _ in 0..5 {
        let other = scene.another().await?;
        let claim = other.claim(&key, 1, 1)?;
        let token = other.ask(&claim).await?.granted()?.token;
        assert!(token > last, "{token} after {last}");
        last = token;
        other.release(&claim).await?;
    }
    Ok(())
}

async fn a_promoted_claim_has_the_token_of_its_grant(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let holder = scene.claim(&key, 2, 3)?;
    scene.ask(&holder).await?.granted()?;
    let waiter = scene.claim(&key, 3, 3)?;
    scene.ask(&waiter).await?.waiting()?;
    let barger = Claim { order: Order::Barging, ..scene.claim(&key, 1, 3)? };
    let between = scene.ask(&barger).await?.granted()?.token;
    scene.release(&holder).await?;
    scene.release(&barger).await?;
    // It queued before the barger and was granted after it: the number is that of the grant.
    assert!(scene.renew(&waiter).await?.granted()?.token > between);
    Ok(())
}

async fn holders_side_by_side_have_tokens_of_their_own(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let holder = scene.claim(&key, 3, 3)?;
    scene.ask(&holder).await?.granted()?;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let claim = scene.claim(&key, 1, 3)?;
        scene.ask(&claim).await?.waiting()?;
        waiters.push(claim);
    }
    // One release promotes all three.
    scene.release(&holder).await?;
    let mut last = 0;
    for claim in &waiters {
        let token = scene.renew(claim).await?.granted()?.token;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    Ok(())
}

async fn a_barger_gets_a_larger_token_than_those_before(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let first = scene.ask(&scene.claim(&key, 1, 2)?).await?.granted()?.token;
    let barger = Claim { order: Order::Barging, ..scene.claim(&key, 1, 2)? };
    assert!(scene.ask(&barger).await?.granted()?.token > first);
    Ok(())
}

async fn growing_takes_a_new_token(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let (one, two) = (scene.claim(&key, 1, 3)?, scene.claim(&key, 1, 3)?);
    scene.ask(&one).await?.granted()?;
    let between = scene.ask(&two).await?.granted()?.token;
    let grown = scene.amend(&one, Change::Units { to: 2, op: 1 }).await?.granted()?;
    assert_eq!(grown.units, 2);
    assert!(grown.token > between, "the write that made it hold more has its own number");
    Ok(())
}

async fn the_token_stays_for_as_long_as_the_claim_holds(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    let first = scene.ask(&claim).await?.granted()?;
    for _ in 0..3 {
        let again = scene.renew(&claim).await?.granted()?;
        assert_eq!((again.token, again.seat), (first.token, first.seat));
    }
    assert_eq!(scene.holders(&key).await?[0].token, first.token);
    Ok(())
}

async fn the_token_is_above_what_the_claim_asks(scene: Scene) -> Verdict {
    scene.needs(Capability::TokenAbove)?;
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    // Not far above: a number source may be ahead of its clock by a bound only, and then waits for the clock.
    let above = scene.ask(&claim).await?.granted()?.token + 100_000;
    scene.release(&claim).await?;
    let claim = Claim { token_above: above, ..scene.claim(&key, 1, 1)? };
    let end = Instant::now() + SLACK;
    loop {
        match scene.store.claim(&claim).await {
            Err(error) if error.is_retryable() && Instant::now() < end => sleep(GLANCE).await,
            answer => {
                assert!(answer?.granted()?.token > above);
                return Ok(());
            }
        }
    }
}

async fn claim_far_above_the_clock_is_refused_and_moves_nothing(scene: Scene) -> Verdict {
    scene.needs(Capability::TokenAbove)?;
    if scene.info().tokens != TokenStrength::ClockBound {
        return Err(Stop::skip("the store's numbers do not follow a clock"));
    }
    let key = scene.key();
    let before = passing(&scene, &key).await?;
    let far = Claim { token_above: 1 << 60, ..scene.claim(&key, 1, 1)? };
    let refused = scene.store.claim(&far).await.map_err(|error| error.kind());
    assert!(refused.is_err(), "{refused:?}: all later tokens are ahead of the clock by years");
    let after = passing(&scene, &key).await?;
    let ahead = Duration::from_micros(after.saturating_sub(before));
    assert!(after > before && ahead < NEAR, "{after} after {before}");
    Ok(())
}

async fn a_promotion_is_told_and_quotes_seat_and_token(scene: Scene) -> Verdict {
    scene.needs_pushes()?;
    let key = scene.key();
    let (holder, waiter) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    scene.ask(&holder).await?.granted()?;
    let place = scene.ask(&waiter).await?.waiting()?;
    // From another connection: as far away as a promotion can come from.
    scene.another().await?.release(&holder).await?;
    // Or only to look, where anybody could have sent it.
    assert!(scene.listener.told_within(&key, SLACK).await, "nobody told the promoted");
    let grant = scene.renew(&waiter).await?.granted()?;
    for told in scene.listener.promotions() {
        assert_eq!((&told.key, told.inbox, told.seat), (&key, scene.inbox, place.seat));
        assert_eq!((told.seat, told.token, told.units), (grant.seat, grant.token, grant.units));
    }
    Ok(())
}

async fn a_promotion_is_told_to_its_inbox_only(scene: Scene) -> Verdict {
    scene.needs_pushes()?;
    let other = scene.another().await?;
    let key = scene.key();
    let holder = scene.claim(&key, 1, 1)?;
    scene.ask(&holder).await?.granted()?;
    other.ask(&other.claim(&key, 1, 1)?).await?.waiting()?;
    scene.ask(&scene.claim(&key, 1, 1)?).await?.waiting()?;
    scene.release(&holder).await?;
    assert!(other.listener.told_within(&key, SLACK).await, "nobody told the promoted");
    assert_eq!(scene.listener.promotions(), []);
    Ok(())
}
