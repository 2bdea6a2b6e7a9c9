//! Changes in place: conditional, harmless to repeat, and followed by the walk.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Answer, Capability, Change, Claim, ErrorKind, IfBusy, Released, WHOLE};
use tokio::time::Instant;

use crate::case::cases;
use crate::fixture::RawState;
use crate::scene::{LONG, Scene};
use crate::verdict::{Expect, Verdict};

cases!("amending":
    shrinking_lets_the_next_in_at_once,
    growing_waits_for_the_others_and_goes_before_the_queue,
    a_growing_claim_that_would_rather_not_wait_keeps_what_it_has,
    a_wish_for_more_can_be_taken_back,
    a_late_copy_of_a_change_undoes_nothing,
    a_late_copy_of_a_change_does_not_undo_what_was_waited_for,
    a_late_copy_of_a_try_takes_nothing,
    more_than_the_limit_is_invalid,
    a_count_goes_down_once_per_operation,
    a_count_of_zero_lets_all_waiters_in,
    counting_down_what_is_no_latch_is_a_conflict,
    a_value_is_shown_and_changed,
    a_late_copy_of_a_value_is_not_shown,
    handing_over_gives_a_new_owner_and_a_larger_token,
    a_repeated_hand_over_answers_the_same,
    the_second_adopter_finds_it_gone,
    what_was_handed_over_is_not_claimed_again,
    an_heir_counts_its_own_changes,
    a_tail_keeps_the_units_after_its_owner_has_left,
    a_tail_of_nothing_is_a_release,
    a_larger_limit_lets_waiters_in,
    a_smaller_limit_revokes_nobody_and_grants_nothing,
    a_resized_limit_outlives_its_users_until_it_is_set_back,
    a_claim_that_is_not_there_is_gone,
);

async fn shrinking_lets_the_next_in_at_once(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let (writer, reader) = (scene.claim(&key, WHOLE, WHOLE)?, scene.claim(&key, 1, WHOLE)?);
    scene.ask(&writer).await?.granted()?;
    scene.ask(&reader).await?.waiting()?;
    assert_eq!(scene.amend(&writer, Change::Units { to: 1, op: 1 }).await?.granted()?.units, 1);
    scene.renew(&reader).await?.granted()?;
    scene.renew(&writer).await?.granted()?;
    Ok(())
}

async fn growing_waits_for_the_others_and_goes_before_the_queue(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    scene.needs_order()?;
    let key = scene.key();
    let (grower, reader) = (scene.claim(&key, 2, 3)?, scene.claim(&key, 1, 3)?);
    let waiter = scene.claim(&key, 3, 3)?;
    scene.ask(&grower).await?.granted()?;
    scene.ask(&reader).await?.granted()?;
    scene.ask(&waiter).await?.waiting()?;
    let more = Change::Units { to: 3, op: 1 };
    let place = scene.amend(&grower, more.clone()).await?.waiting()?;
    assert_eq!((place.ahead, place.held), (0, 2));
    // Repeating it is harmless.
    assert_eq!(scene.amend(&grower, more).await?.waiting()?.seat, place.seat);
    scene.release(&reader).await?;
    assert_eq!(scene.renew(&grower).await?.granted()?.units, 3);
    scene.renew(&waiter).await?.waiting()?;
    Ok(())
}

async fn a_growing_claim_that_would_rather_not_wait_keeps_what_it_has(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let grower = Claim { if_busy: IfBusy::Leave, ..scene.claim(&key, 1, 3)? };
    scene.ask(&grower).await?.granted()?;
    scene.ask(&scene.claim(&key, 1, 3)?).await?.granted()?;
    assert_eq!(scene.amend(&grower, Change::Units { to: 3, op: 1 }).await?, Answer::Busy);
    assert_eq!(scene.renew(&grower).await?.granted()?.units, 1);
    assert_eq!(scene.raw(&key).await?.waiters, 0);
    Ok(())
}

async fn a_wish_for_more_can_be_taken_back(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let (grower, other) = (scene.claim(&key, 1, 3)?, scene.claim(&key, 1, 3)?);
    scene.ask(&grower).await?.granted()?;
    scene.ask(&other).await?.granted()?;
    scene.amend(&grower, Change::Units { to: 3, op: 1 }).await?.waiting()?;
    assert_eq!(scene.amend(&grower, Change::Units { to: 1, op: 2 }).await?.granted()?.units, 1);
    scene.release(&other).await?;
    assert_eq!(scene.renew(&grower).await?.granted()?.units, 1);
    Ok(())
}

async fn a_late_copy_of_a_change_undoes_nothing(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let claim = scene.claim(&scene.key(), 3, 3)?;
    scene.ask(&claim).await?.granted()?;
    let changes = [2, 3, 1].into_iter().zip(1..).map(|(to, op)| Change::Units { to, op });
    for change in changes.clone() {
        scene.amend(&claim, change).await?.granted()?;
    }
    let token = scene.renew(&claim).await?.granted()?.token;
    for late in changes {
        let grant = scene.amend(&claim, late.clone()).await?.granted()?;
        assert_eq!((grant.units, grant.token), (1, token), "{late:?}");
    }
    assert_eq!(scene.raw(&claim.key).await?.units, 1);
    Ok(())
}

async fn a_late_copy_of_a_change_does_not_undo_what_was_waited_for(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let (grower, other) = (scene.claim(&key, 3, 3)?, scene.claim(&key, 2, 3)?);
    scene.ask(&grower).await?.granted()?;
    let fewer = Change::Units { to: 1, op: 1 };
    scene.amend(&grower, fewer.clone()).await?.granted()?;
    scene.ask(&other).await?.granted()?;
    scene.amend(&grower, Change::Units { to: 3, op: 2 }).await?.waiting()?;
    scene.release(&other).await?;
    assert_eq!(scene.renew(&grower).await?.granted()?.units, 3);
    assert_eq!(scene.amend(&grower, fewer).await?.granted()?.units, 3);
    assert_eq!(scene.raw(&key).await?.units, 3);
    Ok(())
}

async fn a_late_copy_of_a_try_takes_nothing(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let grower = Claim { if_busy: IfBusy::Leave, ..scene.claim(&key, 1, 3)? };
    let other = scene.claim(&key, 1, 3)?;
    scene.ask(&grower).await?.granted()?;
    scene.ask(&other).await?.granted()?;
    let more = Change::Units { to: 3, op: 1 };
    assert_eq!(scene.amend(&grower, more.clone()).await?, Answer::Busy);
    scene.release(&other).await?;
    // Its owner was told that it was busy, and believes that.
    assert_eq!(scene.amend(&grower, more).await?.granted()?.units, 1);
    assert_eq!(scene.raw(&key).await?.units, 1);
    Ok(())
}

async fn more_than_the_limit_is_invalid(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let claim = scene.claim(&key, 1, 3)?;
    scene.ask(&claim).await?.granted()?;
    for units in [0, 4] {
        let refused = scene.store.amend(&claim, &Change::Units { to: units, op: 1 }).await;
        assert_eq!(refused.map_err(|e| e.kind()), Err(ErrorKind::Invalid), "{units} units");
    }
    assert_eq!(scene.renew(&claim).await?.granted()?.units, 1);
    Ok(())
}

/// A latch: everything, for ever, with a count. And its token.
async fn latch(scene: &Scene, count: u64) -> Verdict<(Claim, u64)> {
    scene.needs(Capability::Count)?;
    let key = scene.key();
    let latch = Claim { lease: None, count: Some(count), ..scene.claim(&key, WHOLE, WHOLE)? };
    let token = scene.ask(&latch).await?.granted()?.token;
    Ok((latch, token))
}

async fn a_count_goes_down_once_per_operation(scene: Scene) -> Verdict {
    let (latch, token) = latch(&scene, 5).await?;
    for (n, op, left) in [(1, 1, 4), (1, 1, 4), (2, 2, 2), (1, 1, 2), (2, 2, 2)] {
        assert_eq!(scene.amend(&latch, Change::Give { n, op, token }).await?, Answer::Left(left));
    }
    assert_eq!(scene.holders(&latch.key).await?[0].count, Some(2));
    Ok(())
}

async fn a_count_of_zero_lets_all_waiters_in(scene: Scene) -> Verdict {
    let (latch, token) = latch(&scene, 2).await?;
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let waiter = scene.claim(&latch.key, 1, WHOLE)?;
        scene.ask(&waiter).await?.waiting()?;
        waiters.push(waiter);
    }
    // Anybody may count: the token says which latch.
    let anybody = scene.claim(&latch.key, 1, WHOLE)?;
    scene.amend(&anybody, Change::Give { n: 1, op: 1, token }).await?;
    scene.renew(&waiters[0]).await?.waiting()?;
    assert_eq!(scene.amend(&anybody, Change::Give { n: 1, op: 2, token }).await?, Answer::Left(0));
    for waiter in &waiters {
        scene.renew(waiter).await?.granted()?;
        scene.release(waiter).await?;
    }
    scene.until_only_marks_are_left(&latch.key, 1).await
}

async fn counting_down_what_is_no_latch_is_a_conflict(scene: Scene) -> Verdict {
    scene.needs(Capability::Count)?;
    let claim = scene.claim(&scene.key(), 1, 1)?;
    let token = scene.ask(&claim).await?.granted()?.token;
    let refused = scene.store.amend(&claim, &Change::Give { n: 1, op: 1, token }).await;
    assert_eq!(refused.map_err(|e| e.kind()), Err(ErrorKind::Conflict));
    Ok(())
}

async fn a_value_is_shown_and_changed(scene: Scene) -> Verdict {
    scene.needs(Capability::Value)?;
    let key = scene.key();
    let value = |bytes: &[u8]| -> Arc<[u8]> { bytes.into() };
    let claim = Claim { value: value(b"one\0\xff"), ..scene.claim(&key, 1, 1)? };
    let token = scene.ask(&claim).await?.granted()?.token;
    assert_eq!(scene.holders(&key).await?[0].value, value(b"one\0\xff"));
    let changed = scene.amend(&claim, Change::Value { to: value(b"two"), op: 1 }).await?.granted()?;
    assert_eq!(changed.token, token);
    assert_eq!(scene.holders(&key).await?[0].value, value(b"two"));
    Ok(())
}

async fn a_late_copy_of_a_value_is_not_shown(scene: Scene) -> Verdict {
    scene.needs(Capability::Value)?;
    let claim = scene.claim(&scene.key(), 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    for (value, op) in [(b"one", 1), (b"two", 2), (b"one", 1)] {
        let to: Arc<[u8]> = value[..].into();
        scene.amend(&claim, Change::Value { to, op }).await?.granted()?;
    }
    assert_eq!(&*scene.holders(&claim.key).await?[0].value, b"two");
    Ok(())
}

/// Hands over to this claim.
fn to(heir: &Claim) -> Change {
    Change::Owner { to: Box::new(heir.clone()), refuse_for: LONG }
}

/// A holder and the claim that is to take its place.
async fn heir(scene: &Scene) -> Verdict<(Claim, Claim)> {
    scene.needs(Capability::Owner)?;
    let key = scene.key();
    let owner = scene.claim(&key, 1, 1)?;
    scene.ask(&owner).await?.granted()?;
    let heir = Claim { label: "heir".into(), ..scene.claim(&key, 1, 1)? };
    Ok((owner, heir))
}

async fn handing_over_gives_a_new_owner_and_a_larger_token(scene: Scene) -> Verdict {
    let (owner, heir) = heir(&scene).await?;
    let before = scene.renew(&owner).await?.granted()?.token;
    let change = Change::Owner { to: Box::new(heir.clone()), refuse_for: Duration::ZERO };
    let grant = scene.amend(&owner, change).await?.granted()?;
    assert!(grant.token > before);
    assert_eq!(scene.renew(&heir).await?.granted()?.token, grant.token);
    assert_eq!(scene.holders(&owner.key).await?[0].label, "heir");
    assert_eq!(scene.renew(&owner).await?, Answer::Gone);
    assert_eq!(scene.release(&owner).await?, Released::Gone);
    assert_eq!(scene.release(&heir).await?, Released::Held);
    assert_eq!(scene.raw(&owner.key).await?, RawState::default());
    Ok(())
}

async fn a_repeated_hand_over_answers_the_same(scene: Scene) -> Verdict {
    let (owner, heir) = heir(&scene).await?;
    let change = to(&heir);
    let first = scene.amend(&owner, change.clone()).await?.granted()?;
    let again = scene.amend(&owner, change).await?.granted()?;
    assert_eq!((again.token, again.seat), (first.token, first.seat));
    Ok(())
}

async fn the_second_adopter_finds_it_gone(scene: Scene) -> Verdict {
    let (owner, first) = heir(&scene).await?;
    let second = scene.claim(&owner.key, 1, 1)?;
    scene.amend(&owner, to(&first)).await?.granted()?;
    assert_eq!(scene.amend(&owner, to(&second)).await?, Answer::Gone);
    assert_eq!(scene.renew(&second).await?, Answer::Gone);
    scene.renew(&first).await?.granted()?;
    Ok(())
}

async fn what_was_handed_over_is_not_claimed_again(scene: Scene) -> Verdict {
    let (owner, heir) = heir(&scene).await?;
    scene.amend(&owner, to(&heir)).await?.granted()?;
    scene.release(&heir).await?;
    // A copy of the first claim that was long on its way: nobody would look after it.
    assert_eq!(scene.ask(&owner).await?, Answer::Gone);
    assert_eq!(scene.inspect(&owner.key).await?, None);
    Ok(())
}

async fn an_heir_counts_its_own_changes(scene: Scene) -> Verdict {
    scene.needs(Capability::Value)?;
    let (owner, heir) = heir(&scene).await?;
    for (claim, value, op) in [(&owner, 1, 7), (&heir, 2, 1)] {
        if op == 1 {
            scene.amend(&owner, to(&heir)).await?.granted()?;
        }
        scene.amend(claim, Change::Value { to: [value].into(), op }).await?.granted()?;
        assert_eq!(*scene.holders(&owner.key).await?[0].value, [value]);
    }
    Ok(())
}

async fn a_tail_keeps_the_units_after_its_owner_has_left(scene: Scene) -> Verdict {
    scene.needs(Capability::Tail)?;
    let key = scene.key();
    let owner = scene.claim(&key, 1, 1)?;
    scene.ask(&owner).await?.granted()?;
    let start = Instant::now();
    assert_eq!(scene.amend(&owner, Change::Tail(scene.lease())).await?, Answer::Done);
    // A late renewal must not make a hold of it again, nor a late release an early end.
    assert_eq!(scene.renew(&owner).await?, Answer::Gone);
    assert_eq!(scene.release(&owner).await?, Released::Gone);
    scene.next_turn(&key).await?;
    assert!(start.elapsed() + scene.info().rounding >= scene.lease());
    Ok(())
}

async fn a_tail_of_nothing_is_a_release(scene: Scene) -> Verdict {
    scene.needs(Capability::Tail)?;
    let claim = scene.claim(&scene.key(), 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    assert_eq!(scene.amend(&claim, Change::Tail(Duration::ZERO)).await?, Answer::Done);
    assert_eq!(scene.raw(&claim.key).await?, RawState::default());
    Ok(())
}

async fn a_larger_limit_lets_waiters_in(scene: Scene) -> Verdict {
    scene.needs(Capability::Limit)?;
    let key = scene.key();
    scene.ask(&scene.claim(&key, 2, 2)?).await?.granted()?;
    let waiter = scene.claim(&key, 1, 2)?;
    scene.ask(&waiter).await?.waiting()?;
    assert_eq!(scene.amend(&waiter, Change::Limit(3)).await?, Answer::Done);
    scene.renew(&waiter).await?.granted()?;
    let seen = scene.inspect(&key).await?.expect("two claims hold");
    assert_eq!((seen.limit, seen.effective_limit, seen.held()), (2, 3, 3));
    Ok(())
}

async fn a_smaller_limit_revokes_nobody_and_grants_nothing(scene: Scene) -> Verdict {
    scene.needs(Capability::Limit)?;
    let key = scene.key();
    let (one, two) = (scene.claim(&key, 1, 3)?, scene.claim(&key, 1, 3)?);
    scene.ask(&one).await?.granted()?;
    scene.ask(&two).await?.granted()?;
    assert_eq!(scene.amend(&one, Change::Limit(1)).await?, Answer::Done);
    scene.renew(&one).await?.granted()?;
    scene.renew(&two).await?.granted()?;
    scene.release(&one).await?;
    assert_eq!(scene.ask(&scene.attempt(&key, 1, 3)?).await?, Answer::Busy);
    scene.release(&two).await?;
    scene.ask(&scene.attempt(&key, 1, 3)?).await?.granted()?;
    Ok(())
}

async fn a_resized_limit_outlives_its_users_until_it_is_set_back(scene: Scene) -> Verdict {
    scene.needs(Capability::Limit)?;
    let key = scene.key();
    let any = scene.claim(&key, 1, 2)?;
    assert_eq!(scene.amend(&any, Change::Limit(1)).await?, Answer::Done);
    let seen = scene.inspect(&key).await?.expect("a resized key is in use");
    assert_eq!((seen.limit, seen.effective_limit), (2, 1));
    let user = scene.claim(&key, 1, 2)?;
    scene.ask(&user).await?.granted()?;
    assert_eq!(scene.ask(&scene.attempt(&key, 1, 2)?).await?, Answer::Busy);
    scene.release(&user).await?;
    assert!(scene.raw(&key).await?.residue > 0, "the resize was forgotten");
    // The same request once more is a copy, which changes nothing.
    assert_eq!(scene.amend(&any, Change::Limit(2)).await?, Answer::Done);
    assert!(scene.inspect(&key).await?.is_some(), "a copy of a resize was made");
    assert_eq!(scene.amend(&scene.claim(&key, 1, 2)?, Change::Limit(2)).await?, Answer::Done);
    assert_eq!(scene.inspect(&key).await?, None);
    scene.until_only_marks_are_left(&key, 2).await
}

async fn a_claim_that_is_not_there_is_gone(scene: Scene) -> Verdict {
    let key = scene.key();
    let stranger = scene.claim(&key, 1, 1)?;
    let heir = scene.claim(&key, 1, 1)?;
    for (needs, change) in [
        (Capability::AmendUnits, Change::Units { to: 1, op: 1 }),
        (Capability::Count, Change::Give { n: 1, op: 1, token: 7 }),
        (Capability::Value, Change::Value { to: [1].into(), op: 1 }),
        (Capability::Owner, to(&heir)),
        (Capability::Tail, Change::Tail(scene.lease())),
    ] {
        if scene.info().can(needs) {
            assert_eq!(scene.amend(&stranger, change.clone()).await?, Answer::Gone, "{change:?}");
        }
    }
    assert_eq!(scene.raw(&key).await?, RawState::default());
    Ok(())
}
