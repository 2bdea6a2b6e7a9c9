//! One leader that everybody can see.

use leasehold_core::{Capability, Election, ErrorKind, Feature, Key, Loss, Options, Owner, Released};

use crate::case::cases;
use crate::scene::{Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("election":
    one_leads_at_a_time,
    the_value_of_the_leader_is_seen_by_everybody,
    a_candidate_that_waits_is_not_seen_as_leader,
    a_proclaimed_value_replaces_the_old_one_in_the_same_term,
    second_campaign_of_the_same_owner_publishes_its_value,
    resigning_hands_over,
    a_dropped_leader_resigns,
    tokens_rise_from_term_to_term,
    observers_see_terms_in_order,
    a_leader_that_is_evicted_learns_it_and_others_are_elected,
    a_leader_that_is_out_of_office_cannot_proclaim,
    nothing_is_left_after_the_last_term,
);

/// Skips the case on stores without elections; otherwise one, seen by a new client.
async fn election(scene: &Scene, key: &Key) -> Verdict<Election> {
    scene.needs_feature(Feature::Election)?;
    Ok(scene.fixture.connect().await?.election(key.as_str()))
}

async fn one_leads_at_a_time(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, two) = (election(&scene, &key).await?, election(&scene, &key).await?);
    let leader = one.campaign("one").await?;
    assert!(two.candidate("two").try_acquire().await?.is_none());
    let waiting = tokio::spawn(async move { two.campaign("two").await });
    scene.until_waiting(&key, 1).await?;
    assert_eq!(scene.raw(&key).await?.holders, 1);
    assert!(leader.is_valid() && !waiting.is_finished());
    Ok(())
}

async fn the_value_of_the_leader_is_seen_by_everybody(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, other) = (election(&scene, &key).await?, election(&scene, &key).await?);
    assert_eq!(other.leader().await?, None);
    let value = [0, 255, 10, 0, b'x'];
    let leader = one.with(Options::new().label("first")).campaign(value).await?;
    let term = other.leader().await?.expect("somebody leads");
    assert_eq!((&term.value[..], term.token, term.label.as_str()), (&value[..], leader.token(), "first"));
    Ok(())
}

async fn a_candidate_that_waits_is_not_seen_as_leader(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, two) = (election(&scene, &key).await?, election(&scene, &key).await?);
    let observer = one.clone();
    let _leader = one.campaign("one").await?;
    let waiting = tokio::spawn(async move { two.campaign("two").await });
    scene.until_waiting(&key, 1).await?;
    assert_eq!(observer.leader().await?.map(|term| term.value[..].to_vec()), Some(b"one".to_vec()));
    waiting.abort();
    Ok(())
}

async fn a_proclaimed_value_replaces_the_old_one_in_the_same_term(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, other) = (election(&scene, &key).await?, election(&scene, &key).await?);
    let leader = one.campaign("before").await?;
    leader.proclaim("after").await?;
    let term = other.leader().await?.expect("somebody leads");
    assert_eq!((&term.value[..], term.token), (&b"after"[..], leader.token()));
    // A renewal must not put the first value back.
    leader.renew(scene.lease()).await?;
    assert_eq!(other.leader().await?.map(|term| term.value[..].to_vec()), Some(b"after".to_vec()));
    Ok(())
}

async fn second_campaign_of_the_same_owner_publishes_its_value(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, other) = (election(&scene, &key).await?, election(&scene, &key).await?);
    let one = one.with(Options::new().owner(&Owner::new()));
    let first = one.campaign("first").await?;
    let value = async || Ok::<_, Stop>(other.leader().await?.map(|term| term.value[..].to_vec()));
    let second = soon(one.campaign("second")).await??;
    assert_eq!((value().await?, second.token()), (Some(b"second".to_vec()), first.token()));
    let third = one.candidate("third").try_acquire().await?.expect("its owner leads");
    assert_eq!(value().await?, Some(b"third".to_vec()));
    // The value stays when a guard of the same term is gone.
    third.resign().await?;
    assert_eq!(value().await?, Some(b"third".to_vec()));
    let within = one.campaign_within("fourth", scene.lease()).await?;
    assert_eq!((value().await?, within.is_some()), (Some(b"fourth".to_vec()), true));
    Ok(())
}

async fn resigning_hands_over(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, two) = (election(&scene, &key).await?, election(&scene, &key).await?);
    let leader = one.campaign("one").await?;
    let waiting = tokio::spawn(async move { two.campaign("two").await });
    scene.until_waiting(&key, 1).await?;
    assert_eq!(leader.resign().await?, Released::Held);
    let next = soon(waiting).await?.map_err(Stop::fail)??;
    let term = one.leader().await?.expect("somebody leads");
    assert_eq!((&term.value[..], term.token), (&b"two"[..], next.token()));
    Ok(())
}

async fn a_dropped_leader_resigns(scene: Scene) -> Verdict {
    let key = scene.key();
    let election = election(&scene, &key).await?;
    drop(election.campaign("one").await?);
    scene.until_nothing_is_left(&key).await
}

async fn tokens_rise_from_term_to_term(scene: Scene) -> Verdict {
    let key = scene.key();
    let mut last = 0;
    for _ in 0..4 {
        let election = election(&scene, &key).await?;
        let leader = election.campaign("me").await?;
        assert!(leader.token() > last, "{} after {last}", leader.token());
        last = leader.token();
        leader.resign().await?;
    }
    Ok(())
}

async fn observers_see_terms_in_order(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, observer) = (election(&scene, &key).await?, election(&scene, &key).await?);
    let mut terms = observer.observe()?;
    assert_eq!(soon(terms.next()).await??, None);
    let mut last = 0;
    for value in ["first", "second", "third"] {
        let leader = one.campaign(value).await?;
        // That nobody leads in between may be seen or missed; a leader that stays is always seen.
        let term = soon(async {
            loop {
                if let Some(term) = terms.next().await? {
                    return Ok::<_, Stop>(term);
                }
            }
        });
        let term = term.await??;
        assert_eq!((&term.value[..], term.token), (value.as_bytes(), leader.token()));
        assert!(term.token > last, "{} after {last}", term.token);
        last = term.token;
        leader.resign().await?;
    }
    assert_eq!(soon(terms.next()).await??, None);
    Ok(())
}

async fn a_leader_that_is_evicted_learns_it_and_others_are_elected(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let key = scene.key();
    let (one, two) = (election(&scene, &key).await?, election(&scene, &key).await?);
    // Long enough to be held until the eviction, also on a busy machine.
    let leader = one.with(Options::new().lease(scene.lease() * 4)).campaign("one").await?;
    let waiting = tokio::spawn(async move { two.campaign("two").await });
    scene.until_waiting(&key, 1).await?;
    assert!(scene.fixture.connect().await?.evict(key.as_str(), leader.token()).await?);
    assert_eq!(soon(leader.lost()).await?, Loss::Gone);
    let next = soon(waiting).await?.map_err(Stop::fail)??;
    assert!(next.token() > leader.token());
    assert_eq!(leader.resign().await?, Released::Gone);
    assert!(next.is_valid());
    Ok(())
}

async fn a_leader_that_is_out_of_office_cannot_proclaim(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let key = scene.key();
    let (one, two) = (election(&scene, &key).await?, election(&scene, &key).await?);
    let old = one.campaign("old").await?;
    assert!(scene.fixture.connect().await?.evict(key.as_str(), old.token()).await?);
    let _new = two.campaign("new").await?;
    let error = old.proclaim("old again").await.expect_err("it does not lead any more");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!old.is_valid());
    assert_eq!(one.leader().await?.map(|term| term.value[..].to_vec()), Some(b"new".to_vec()));
    Ok(())
}

async fn nothing_is_left_after_the_last_term(scene: Scene) -> Verdict {
    let key = scene.key();
    let election = election(&scene, &key).await?;
    let leader = election.campaign("one").await?;
    leader.proclaim("another").await?;
    leader.resign().await?;
    assert_eq!(election.leader().await?, None);
    scene.until_nothing_is_left(&key).await
}
