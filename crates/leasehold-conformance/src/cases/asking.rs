//! Asking a holder to give back what it holds: it is told, and decides.

use std::time::Duration;

use leasehold_core::{Answer, Capability, Change, Options, Released};

use crate::case::cases;
use crate::scene::{SLACK, Scene};
use crate::verdict::{Expect, Stop, Verdict};

cases!("asking":
    who_holds_hears_that_it_is_asked,
    a_holder_that_does_not_heed_keeps_holding,
    asking_needs_the_token_that_holds,
    asking_does_not_prolong_a_lease,
    what_is_over_cannot_be_asked_for,
    the_next_holder_was_not_asked,
);

async fn who_holds_hears_that_it_is_asked(scene: Scene) -> Verdict {
    scene.needs(Capability::Ask)?;
    let (one, two) = (scene.fixture.connect().await?, scene.fixture.connect().await?);
    let key = scene.key();
    let guard = one.mutex(&key).with(Options::new().lease(Duration::from_secs(3))).acquire().await?;
    assert!(!guard.is_asked_to_release(), "nobody has asked yet");
    assert!(two.ask(&key, guard.token()).await?);
    let heard = tokio::time::timeout(SLACK, guard.asked_to_release()).await;
    heard.map_err(|_| Stop::fail("the holder was asked, and did not hear of it"))?;
    assert!(guard.is_valid() && guard.is_asked_to_release());
    assert_eq!(guard.release().await?, Released::Held);
    Ok(())
}

async fn a_holder_that_does_not_heed_keeps_holding(scene: Scene) -> Verdict {
    scene.needs(Capability::Ask)?;
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    let token = scene.ask(&claim).await?.granted()?.token;
    let other = scene.attempt(&key, 1, 1)?;
    assert_eq!(scene.amend(&other, Change::Ask(token)).await?, Answer::Done);
    assert_eq!(scene.ask(&other).await?, Answer::Busy);
    let grant = scene.renew(&claim).await?.granted()?;
    assert!(grant.asked && grant.token == token, "{grant:?}");
    Ok(())
}

async fn asking_needs_the_token_that_holds(scene: Scene) -> Verdict {
    scene.needs(Capability::Ask)?;
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    let token = scene.ask(&claim).await?.granted()?.token;
    let other = scene.attempt(&key, 1, 1)?;
    assert_eq!(scene.amend(&other, Change::Ask(token + 1)).await?, Answer::Gone);
    assert_eq!(scene.amend(&scene.attempt(&scene.key(), 1, 1)?, Change::Ask(token)).await?, Answer::Gone);
    assert!(!scene.renew(&claim).await?.granted()?.asked, "it was asked with another's token");
    Ok(())
}

async fn asking_does_not_prolong_a_lease(scene: Scene) -> Verdict {
    scene.needs(Capability::Ask)?;
    let key = scene.key();
    let token = scene.ask(&scene.brief(&key, 1, 1)?).await?.granted()?.token;
    let other = scene.attempt(&key, 1, 1)?;
    let deadline = tokio::time::Instant::now() + scene.lease() + scene.info().expiry_slack + SLACK;
    while scene.amend(&other, Change::Ask(token)).await? == Answer::Done {
        if tokio::time::Instant::now() > deadline {
            return Err(Stop::fail("a claim lives on because it is asked for"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn what_is_over_cannot_be_asked_for(scene: Scene) -> Verdict {
    scene.needs(Capability::Ask)?;
    let key = scene.key();
    let claim = scene.claim(&key, 1, 1)?;
    let token = scene.ask(&claim).await?.granted()?.token;
    scene.store.release(&claim, None).await?;
    assert_eq!(scene.amend(&claim, Change::Ask(token)).await?, Answer::Gone);
    assert_eq!(scene.inspect(&key).await?, None);
    Ok(())
}

async fn the_next_holder_was_not_asked(scene: Scene) -> Verdict {
    scene.needs(Capability::Ask)?;
    let client = scene.fixture.connect().await?;
    let key = scene.key();
    let lock = client.mutex(&key);
    let first = lock.acquire().await?;
    client.ask(&key, first.token()).await?;
    first.release().await?;
    let second = lock.acquire().await?;
    second.renew(Duration::from_secs(20)).await?;
    assert!(!second.is_asked_to_release(), "the request was for the one before");
    second.release().await?;
    Ok(())
}
