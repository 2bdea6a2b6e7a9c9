//! What holds where a session carries many claims: a renewal also compares who is on it, and they end together.

use leasehold_core::{Answer, Claim, Leases};
use tokio::time::Instant;

use crate::case::cases;
use crate::scene::Scene;
use crate::verdict::{Expect, Stop, Verdict};

cases!("sessions":
    a_renewal_withdraws_what_it_does_not_name,
    a_late_renewal_withdraws_nothing_that_is_newer,
    a_renewal_withdraws_nothing_of_another_session,
    a_renewal_withdraws_nothing_of_another_client,
    the_claims_of_a_session_end_together,
    a_new_session_brings_back_nothing,
    a_claim_that_joins_a_session_says_no_more_than_is_true,
);

fn needs_sessions(scene: &Scene) -> Verdict {
    match scene.info().leases {
        Leases::Shared => Ok(()),
        Leases::PerClaim => Err(Stop::skip("every claim has a lease of its own")),
    }
}

/// A claim that holds a key of its own, made after this many renewals.
async fn held(scene: &Scene, round: u64) -> Verdict<Claim> {
    let claim = Claim { round, ..scene.claim(&scene.key(), 1, 1)? };
    scene.ask(&claim).await?.granted()?;
    Ok(claim)
}

/// Whether the store has the claim that [`held`] its key.
async fn is_there(scene: &Scene, claim: &Claim) -> Verdict<bool> {
    Ok(scene.raw(&claim.key).await?.holders == 1)
}

/// The first claim is renewed, as the client's renewal number `round` that names nobody else.
async fn renewed_alone(scene: &Scene, known: &Claim, round: u64) -> Verdict {
    scene.renew(&Claim { round, ..known.clone() }).await?.granted()?;
    Ok(())
}

async fn a_renewal_withdraws_what_it_does_not_name(scene: Scene) -> Verdict {
    needs_sessions(&scene)?;
    let (known, ghost) = (held(&scene, 0).await?, held(&scene, 0).await?);
    renewed_alone(&scene, &known, 1).await?;
    scene.until_free(&ghost.key).await?;
    assert!(is_there(&scene, &known).await?);
    Ok(())
}

async fn a_late_renewal_withdraws_nothing_that_is_newer(scene: Scene) -> Verdict {
    needs_sessions(&scene)?;
    let (known, ghost) = (held(&scene, 0).await?, held(&scene, 0).await?);
    // Made after the renewal was sent, and there before it.
    let newer = held(&scene, 1).await?;
    renewed_alone(&scene, &known, 1).await?;
    scene.until_free(&ghost.key).await?;
    assert!(is_there(&scene, &newer).await?, "what was made since was withdrawn");
    Ok(())
}

async fn a_renewal_withdraws_nothing_of_another_session(scene: Scene) -> Verdict {
    needs_sessions(&scene)?;
    let (known, ghost) = (held(&scene, 0).await?, held(&scene, 0).await?);
    let other = Claim { lease: known.lease.map(|lease| lease / 2), ..scene.claim(&scene.key(), 1, 1)? };
    scene.ask(&other).await?.granted()?;
    renewed_alone(&scene, &known, 1).await?;
    scene.until_free(&ghost.key).await?;
    assert!(is_there(&scene, &other).await?, "another length is another session");
    Ok(())
}

async fn a_renewal_withdraws_nothing_of_another_client(scene: Scene) -> Verdict {
    needs_sessions(&scene)?;
    let (known, ghost) = (held(&scene, 0).await?, held(&scene, 0).await?);
    let another = scene.another().await?;
    let other = held(&another, 0).await?;
    renewed_alone(&scene, &known, 1).await?;
    scene.until_free(&ghost.key).await?;
    assert!(is_there(&scene, &other).await?, "it is not ours to withdraw");
    Ok(())
}

async fn the_claims_of_a_session_end_together(scene: Scene) -> Verdict {
    needs_sessions(&scene)?;
    let (one, two) = (scene.brief(&scene.key(), 1, 1)?, scene.brief(&scene.key(), 1, 1)?);
    scene.ask(&one).await?.granted()?;
    scene.ask(&two).await?.granted()?;
    scene.until_free(&one.key).await?;
    // Where every claim has a connection of its own the second one came, and goes, a moment later.
    scene.until_free(&two.key).await?;
    assert_eq!(scene.store.renew(&[one, two]).await?, [Answer::Gone, Answer::Gone]);
    Ok(())
}

async fn a_new_session_brings_back_nothing(scene: Scene) -> Verdict {
    needs_sessions(&scene)?;
    let (old, new) = (scene.brief(&scene.key(), 1, 1)?, scene.brief(&scene.key(), 1, 1)?);
    scene.ask(&old).await?.granted()?;
    scene.until_free(&old.key).await?;
    let grant = scene.ask(&new).await?.granted()?;
    assert!(grant.lease.is_some(), "it opened a session, and the client must know for how long");
    let answers = scene.store.renew(&[old, new]).await?;
    assert!(matches!(&answers[..], [Answer::Gone, Answer::Granted(_)]), "{answers:?}");
    Ok(())
}

async fn a_claim_that_joins_a_session_says_no_more_than_is_true(scene: Scene) -> Verdict {
    needs_sessions(&scene)?;
    let (opens, joins) = (scene.brief(&scene.key(), 1, 1)?, scene.brief(&scene.key(), 1, 1)?);
    scene.ask(&opens).await?.granted()?;
    tokio::time::sleep(scene.lease().mul_f64(0.6)).await;
    let asked = Instant::now();
    // A session is no younger for carrying one more; a store may renew it on the occasion, and then says so.
    let Some(said) = scene.ask(&joins).await?.granted()?.lease else { return Ok(()) };
    scene.until_free(&joins.key).await?;
    let lived = asked.elapsed() + scene.info().rounding;
    assert!(lived >= said, "ended {lived:?} after a request that said {said:?}");
    Ok(())
}
