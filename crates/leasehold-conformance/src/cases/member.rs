//! What a store must do to be a member of a quorum: grant with the number that all members agree on, remember it, and
//! say when it is too young to know.

use std::time::Duration;

use leasehold_core::{Answer, Capability, Claim, ErrorKind, Grant, Key, QuorumTerms, Released};

use crate::case::cases;
use crate::scene::{LONG, Scene};
use crate::verdict::{Expect, Verdict};

cases!("member":
    the_token_is_the_number_after_the_one_that_is_named,
    numbers_of_other_keys_do_not_count,
    the_token_is_above_what_the_key_has_seen,
    the_key_remembers_after_a_release,
    the_key_remembers_after_an_expiry,
    the_key_remembers_for_as_long_as_the_last_renewal_asks,
    the_key_forgets_in_the_end,
    a_member_that_lost_the_claim_grants_the_same_number_again,
    a_number_that_was_passed_is_not_granted_again,
    an_evicted_number_is_not_granted_again,
    a_repeated_claim_answers_the_same_number,
    a_busy_member_leaves_no_number_behind,
    a_store_that_is_too_young_is_unavailable,
    a_store_that_is_too_young_still_knows_what_it_granted,
);

/// Older than any store.
const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Remembers for long, whatever the age, and was not granted before.
const TERMS: QuorumTerms = QuorumTerms { keep: LONG, min_age: Duration::ZERO, again: false };

/// A claim that a quorum makes, which wants the number after `above`.
fn vote(scene: &Scene, key: &Key, above: u64) -> Verdict<Claim> {
    scene.needs(Capability::Member)?;
    Ok(Claim { token_above: above, quorum: Some(TERMS), ..scene.attempt(key, 1, 1)? })
}

/// The same claim on other terms.
fn on(terms: QuorumTerms, claim: &Claim) -> Claim {
    Claim { quorum: Some(terms), ..claim.clone() }
}

/// What a claim is granted that lets go at once.
async fn passing(scene: &Scene, claim: &Claim) -> Verdict<Grant> {
    let grant = scene.ask(claim).await?.granted()?;
    assert_eq!(scene.release(claim).await?, Released::Held);
    Ok(grant)
}

async fn the_token_is_the_number_after_the_one_that_is_named(scene: Scene) -> Verdict {
    let claim = vote(&scene, &scene.key(), 41)?;
    assert_eq!(scene.ask(&claim).await?.granted()?.token, 42);
    assert_eq!(scene.holders(&claim.key).await?[0].token, 42);
    Ok(())
}

async fn numbers_of_other_keys_do_not_count(scene: Scene) -> Verdict {
    scene.ask(&vote(&scene, &scene.key(), 1 << 50)?).await?.granted()?;
    scene.ask(&scene.claim(&scene.key(), 1, 1)?).await?.granted()?;
    assert_eq!(scene.ask(&vote(&scene, &scene.key(), 0)?).await?.granted()?.token, 1);
    Ok(())
}

async fn the_token_is_above_what_the_key_has_seen(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let mut granted = Vec::new();
    for above in [99, 49, 199] {
        let reader = Claim { limit: 3, ..vote(&scene, &key, above)? };
        granted.push(scene.ask(&reader).await?.granted()?.token);
    }
    assert_eq!(granted, [100, 101, 200]);
    Ok(())
}

async fn the_key_remembers_after_a_release(scene: Scene) -> Verdict {
    let key = scene.key();
    passing(&scene, &vote(&scene, &key, 41)?).await?;
    assert_eq!(scene.inspect(&key).await?, None, "remembering is not holding");
    assert_eq!(passing(&scene, &vote(&scene, &key, 0)?).await?.token, 43);
    assert_eq!(passing(&scene, &vote(&scene, &key, 41)?).await?.token, 44);
    Ok(())
}

async fn the_key_remembers_after_an_expiry(scene: Scene) -> Verdict {
    let key = scene.key();
    let dying = Claim { lease: Some(scene.lease()), ..vote(&scene, &key, 41)? };
    scene.ask(&dying).await?.granted()?;
    scene.until_free(&key).await?;
    assert_eq!(scene.ask(&vote(&scene, &key, 0)?).await?.granted()?.token, 43);
    Ok(())
}

async fn the_key_remembers_for_as_long_as_the_last_renewal_asks(scene: Scene) -> Verdict {
    let key = scene.key();
    let brief = QuorumTerms { keep: Duration::ZERO, ..TERMS };
    let claim = Claim { lease: Some(scene.lease()), ..on(brief, &vote(&scene, &key, 41)?) };
    scene.ask(&claim).await?.granted()?;
    let renewed = Claim { lease: Some(LONG.min(scene.info().max_lease)), ..claim };
    scene.renew(&renewed).await?.granted()?;
    // What the claim asked for is over, what its renewal asked for is not.
    tokio::time::sleep(scene.lease() * 2).await;
    scene.release(&renewed).await?;
    assert_eq!(scene.ask(&vote(&scene, &key, 0)?).await?.granted()?.token, 43);
    Ok(())
}

async fn the_key_forgets_in_the_end(scene: Scene) -> Verdict {
    let key = scene.key();
    let brief = QuorumTerms { keep: scene.lease(), ..TERMS };
    let claim = Claim { lease: Some(scene.lease()), ..on(brief, &vote(&scene, &key, 41)?) };
    passing(&scene, &claim).await?;
    scene.until_swept(&key).await
}

async fn a_member_that_lost_the_claim_grants_the_same_number_again(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = vote(&scene, &key, 41)?;
    passing(&scene, &claim).await?;
    let again = on(QuorumTerms { again: true, ..TERMS }, &claim);
    assert_eq!(scene.ask(&again).await?.granted()?.token, 42);
    Ok(())
}

async fn a_number_that_was_passed_is_not_granted_again(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = vote(&scene, &key, 41)?;
    passing(&scene, &claim).await?;
    passing(&scene, &vote(&scene, &key, 99)?).await?;
    let again = on(QuorumTerms { again: true, ..TERMS }, &claim);
    assert_eq!(scene.ask(&again).await?.granted()?.token, 101);
    Ok(())
}

async fn an_evicted_number_is_not_granted_again(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let key = scene.key();
    let claim = vote(&scene, &key, 41)?;
    scene.ask(&claim).await?.granted()?;
    assert!(scene.store.evict(&key, 42).await?);
    let again = on(QuorumTerms { again: true, ..TERMS }, &claim);
    // The quorum that asks has not heard of the eviction.
    let token = scene.ask(&again).await?.granted()?.token;
    assert!(token > 42, "{token} again");
    Ok(())
}

async fn a_repeated_claim_answers_the_same_number(scene: Scene) -> Verdict {
    let claim = vote(&scene, &scene.key(), 41)?;
    scene.ask(&claim).await?.granted()?;
    assert_eq!(scene.ask(&claim).await?.granted()?.token, 42);
    assert_eq!(scene.renew(&claim).await?.granted()?.token, 42);
    Ok(())
}

async fn a_busy_member_leaves_no_number_behind(scene: Scene) -> Verdict {
    let key = scene.key();
    let holder = vote(&scene, &key, 41)?;
    scene.ask(&holder).await?.granted()?;
    assert_eq!(scene.ask(&vote(&scene, &key, 99)?).await?, Answer::Busy);
    scene.release(&holder).await?;
    assert_eq!(scene.ask(&vote(&scene, &key, 0)?).await?.granted()?.token, 43);
    Ok(())
}

async fn a_store_that_is_too_young_is_unavailable(scene: Scene) -> Verdict {
    let key = scene.key();
    let claim = on(QuorumTerms { min_age: AGES, ..TERMS }, &vote(&scene, &key, 41)?);
    let refused = scene.store.claim(&claim).await.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Unavailable));
    scene.until_nothing_is_left(&key).await
}

async fn a_store_that_is_too_young_still_knows_what_it_granted(scene: Scene) -> Verdict {
    let claim = vote(&scene, &scene.key(), 41)?;
    scene.ask(&claim).await?.granted()?;
    let old = on(QuorumTerms { min_age: AGES, ..TERMS }, &claim);
    assert_eq!(scene.ask(&old).await?.granted()?.token, 42);
    assert_eq!(scene.renew(&old).await?.granted()?.token, 42);
    assert_eq!(scene.release(&old).await?, Released::Held);
    Ok(())
}
