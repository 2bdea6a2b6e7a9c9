//! What anybody may see, and force: inspect, list, evict.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Answer, Capability, Claim, ErrorKind, Feature, Key, Leases, Mode};

use crate::case::cases;
use crate::scene::{SLACK, Scene};
use crate::verdict::{Expect, Verdict};

cases!("sight":
    a_free_key_shows_nobody,
    inspect_shows_who_holds_and_who_waits,
    inspect_shows_who_reads_and_who_writes,
    conflicts_name_the_kind_in_use,
    inspect_shows_who_stands_before_whom,
    inspect_shows_how_long,
    inspect_changes_nothing,
    the_secret_is_shown_to_nobody,
    list_finds_the_keys_that_start_with_a_prefix,
    a_prefix_is_text_and_no_pattern,
    list_shows_every_key_once_over_all_pages,
    list_forgets_released_keys,
    eviction_needs_the_token_that_holds,
    an_evicted_claim_is_gone,
    eviction_lets_the_next_in,
    eviction_is_told_to_the_evicted,
    eviction_ends_one_holder_of_many,
);

async fn a_free_key_shows_nobody(scene: Scene) -> Verdict {
    assert_eq!(scene.inspect(&scene.key()).await?, None);
    Ok(())
}

async fn inspect_shows_who_holds_and_who_waits(scene: Scene) -> Verdict {
    scene.needs_order()?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let named =
        |n, label: &str| -> Verdict<Claim> { Ok(Claim { label: label.into(), ..scene.claim(&key, n, 3)? }) };
    let first = scene.ask(&named(2, "api 1")?).await?.granted()?;
    let second = scene.ask(&named(1, "api 2")?).await?.granted()?;
    let third = scene.ask(&named(3, "job \u{1f512}")?).await?.waiting()?;
    let fourth = scene.ask(&named(1, "")?).await?.waiting()?;

    let seen = scene.inspect(&key).await?.expect("four claims are on it");
    assert_eq!((&seen.key, seen.limit, seen.effective_limit), (&key, 3, 3));
    assert_eq!((seen.held(), seen.available()), (3, 0));
    let holders: Vec<_> = seen.holders.iter().map(|h| (h.seat, h.token, h.units, h.label.as_str())).collect();
    let expected = [(first.seat, first.token, 2, "api 1"), (second.seat, second.token, 1, "api 2")];
    assert_eq!(holders, expected);
    let waiters: Vec<_> = seen.waiters.iter().map(|w| (w.seat, w.units, w.label.as_str())).collect();
    assert_eq!(waiters, [(third.seat, 3, "job \u{1f512}"), (fourth.seat, 1, "")]);
    Ok(())
}

/// The modes of holders and waiters.
async fn modes(scene: &Scene, key: &Key) -> Verdict<[Vec<Option<Mode>>; 2]> {
    let seen = scene.inspect(key).await?.expect("it is held");
    let holders = seen.holders.iter().map(|holder| seen.mode(holder.units)).collect();
    Ok([holders, seen.waiters.iter().map(|waiter| seen.mode(waiter.units)).collect()])
}

async fn inspect_shows_who_reads_and_who_writes(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::RwLock)?;
    let key = scene.key();
    let lock = scene.fixture.connect().await?.rwlock(key.as_str());
    let reader = lock.read().acquire().await?;
    assert_eq!(modes(&scene, &key).await?, [vec![Some(Mode::Shared)], vec![]]);
    reader.release().await?;
    let writer = lock.write().acquire().await?;
    assert_eq!(modes(&scene, &key).await?, [vec![Some(Mode::Exclusive)], vec![]]);
    if scene.info().can(Capability::Queue) {
        let other = scene.fixture.connect().await?.rwlock(key.as_str());
        let waiting = tokio::spawn(async move { other.read().acquire().await.map(drop) });
        scene.until_waiting(&key, 1).await?;
        assert_eq!(modes(&scene, &key).await?, [vec![Some(Mode::Exclusive)], vec![Some(Mode::Shared)]]);
        waiting.abort();
    }
    writer.release().await?;
    if scene.info().supports(Feature::Semaphore) {
        let key = scene.key();
        let _permit = scene.fixture.connect().await?.semaphore(key.as_str(), 3).acquire().await?;
        assert_eq!(modes(&scene, &key).await?, [vec![None], vec![]]);
    }
    Ok(())
}

async fn conflicts_name_the_kind_in_use(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    scene.needs_feature(Feature::Latch)?;
    let [locked, permits, latched] = std::array::from_fn(|_| scene.key());
    let client = scene.fixture.connect().await?;
    let _lock = client.mutex(locked.as_str()).acquire().await?;
    let _permit = client.semaphore(permits.as_str(), 3).acquire().await?;
    client.latch(latched.as_str()).set(2).await?;
    let other = scene.fixture.connect().await?;
    for (conflict, kind) in [
        (other.semaphore(locked.as_str(), 3).try_acquire().await.map(drop), "is a lock"),
        (other.latch(locked.as_str()).set(1).await.map(drop), "is a lock"),
        (other.mutex(permits.as_str()).try_acquire().await.map(drop), "is a semaphore with 3 permits"),
        (other.semaphore(permits.as_str(), 4).try_acquire().await.map(drop), "is a semaphore with 3 permits"),
        (other.mutex(latched.as_str()).try_acquire().await.map(drop), "is a latch"),
        (other.semaphore(latched.as_str(), 3).try_acquire().await.map(drop), "is a latch"),
    ] {
        let error = conflict.expect_err("the key is in use as something else");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains(kind), "{error}");
        assert!(!error.to_string().contains("45035996273704"), "{error}");
    }
    client.latch(latched.as_str()).delete().await?;
    Ok(())
}

async fn inspect_shows_who_stands_before_whom(scene: Scene) -> Verdict {
    scene.needs_order()?;
    let key = scene.key();
    let holder = scene.ask(&scene.claim(&key, 1, 1)?).await?.granted()?;
    let first = scene.ask(&scene.claim(&key, 1, 1)?).await?.waiting()?;
    let second = scene.ask(&scene.claim(&key, 1, 1)?).await?.waiting()?;
    let seen = scene.inspect(&key).await?.expect("three claims are on it");
    let (holders, waiters) = seen.blockers(second.seat);
    assert_eq!(holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [holder.token]);
    assert_eq!(waiters.iter().map(|waiter| waiter.seat).collect::<Vec<_>>(), [first.seat]);
    Ok(())
}

async fn inspect_shows_how_long(scene: Scene) -> Verdict {
    scene.needs(Capability::Queue)?;
    let key = scene.key();
    let (holder, waiter) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    scene.ask(&holder).await?.granted()?;
    scene.ask(&waiter).await?.waiting()?;
    const A_WHILE: Duration = Duration::from_millis(50);
    tokio::time::sleep(A_WHILE + scene.info().rounding).await;
    let seen = scene.inspect(&key).await?.expect("two claims are on it");
    // Whole milliseconds may be cut off on both ends.
    let least = A_WHILE - Duration::from_millis(2);
    assert!(seen.holders[0].held_for >= least && seen.holders[0].held_for < SLACK, "{seen:?}");
    assert!(seen.waiters[0].waiting_for >= least && seen.waiters[0].waiting_for < SLACK, "{seen:?}");
    let (holds, waits) = (seen.holders[0].lease_left, seen.waiters[0].lease_left);
    assert!(holds < holder.lease && holds != Some(Duration::ZERO), "{seen:?}");
    assert!(waits < Some(waiter.patience) && waits != Some(Duration::ZERO), "{seen:?}");
    // A session may not say when it ends.
    let says = holds.is_some() && waits.is_some();
    assert!(says || scene.info().leases == Leases::Shared, "{seen:?}");
    Ok(())
}

async fn inspect_changes_nothing(scene: Scene) -> Verdict {
    let key = scene.key();
    scene.ask(&scene.brief(&key, 1, 1)?).await?.granted()?;
    // Looking all the time must neither prolong a lease nor end it early.
    scene.until_free(&key).await?;
    assert_eq!(scene.inspect(&scene.key()).await?, None);
    Ok(())
}

async fn the_secret_is_shown_to_nobody(scene: Scene) -> Verdict {
    let claim = scene.claim(&scene.key(), 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    let seen = format!("{:?} {:?}", scene.inspect(&claim.key).await?, claim);
    let hex: String = claim.id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{:?}", claim.id.as_bytes());
    assert!(!seen.to_lowercase().contains(&hex) && !seen.contains(list.trim_matches(['[', ']'])));
    Ok(())
}

/// Claims these names, below a name of their own.
async fn take(scene: &Scene, names: &[String]) -> Verdict<(String, Vec<Claim>)> {
    scene.needs(Capability::List)?;
    let root = scene.key();
    let mut claims = Vec::new();
    for name in names {
        let claim = scene.claim(&Key::new(format!("{root}/{name}"))?, 1, 1)?;
        scene.ask(&claim).await?.granted()?;
        claims.push(claim);
    }
    Ok((root.as_str().to_owned(), claims))
}

/// All pages of a listing.
async fn listing(scene: &Scene, prefix: &str) -> Verdict<Vec<String>> {
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let page = scene.store.list(prefix, cursor.as_deref()).await?;
        names.extend(page.resources.iter().map(|seen| seen.key.as_str().to_owned()));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(names),
        }
    }
}

async fn list_finds_the_keys_that_start_with_a_prefix(scene: Scene) -> Verdict {
    let names = ["a", "a/b", "ab", "b", "ba"].map(str::to_owned);
    let (root, _claims) = take(&scene, &names).await?;
    for (prefix, expected) in [("a", vec!["a", "a/b", "ab"]), ("a/", vec!["a/b"]), ("c", vec![])] {
        let found: BTreeSet<_> = listing(&scene, &format!("{root}/{prefix}")).await?.into_iter().collect();
        let expected: BTreeSet<_> = expected.iter().map(|name| format!("{root}/{name}")).collect();
        assert_eq!(found, expected, "with the prefix {prefix}");
    }
    Ok(())
}

async fn a_prefix_is_text_and_no_pattern(scene: Scene) -> Verdict {
    let names = ["a%b", "axb", "a_b", "a*b", "a?b", "a[x]b", "a\\b", "A%b"].map(str::to_owned);
    let (root, _claims) = take(&scene, &names).await?;
    for name in ["a%", "a_", "a*", "a?", "a[", "a\\", "A"] {
        let prefix = format!("{root}/{name}");
        let found = listing(&scene, &prefix).await?;
        assert!(found.len() == 1 && found[0].starts_with(&prefix), "{name} finds {found:?}");
    }
    Ok(())
}

async fn list_shows_every_key_once_over_all_pages(scene: Scene) -> Verdict {
    // More than a page has anywhere.
    let names: Vec<_> = (0..1200).map(|n| format!("{n:04}")).collect();
    let (root, claims) = take(&scene, &names).await?;
    let mut found = listing(&scene, &format!("{root}/")).await?;
    found.sort();
    let expected: Vec<_> = claims.iter().map(|claim| claim.key.as_str().to_owned()).collect();
    assert!(found == expected, "{} keys listed, {} in use", found.len(), expected.len());
    Ok(())
}

async fn list_forgets_released_keys(scene: Scene) -> Verdict {
    let (root, claims) = take(&scene, &["a", "b"].map(str::to_owned)).await?;
    scene.release(&claims[0]).await?;
    assert_eq!(listing(&scene, &root).await?, [claims[1].key.as_str()]);
    Ok(())
}

async fn eviction_needs_the_token_that_holds(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let key = scene.key();
    let (old, new) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    let first = scene.ask(&old).await?.granted()?.token;
    scene.release(&old).await?;
    let second = scene.ask(&new).await?.granted()?.token;
    for token in [0, first, second + 1] {
        assert!(!scene.store.evict(&key, token).await?);
    }
    assert!(!scene.store.evict(&scene.key(), second).await?);
    scene.renew(&new).await?.granted()?;
    assert!(scene.store.evict(&key, second).await?);
    assert!(!scene.store.evict(&key, second).await?);
    Ok(())
}

async fn an_evicted_claim_is_gone(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let claim = scene.claim(&scene.key(), 1, 1)?;
    let token = scene.ask(&claim).await?.granted()?.token;
    assert!(scene.store.evict(&claim.key, token).await?);
    assert_eq!(scene.renew(&claim).await?, Answer::Gone);
    assert_eq!(scene.inspect(&claim.key).await?, None);
    Ok(())
}

async fn eviction_lets_the_next_in(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    scene.needs(Capability::Queue)?;
    let key = scene.key();
    let (holder, waiter) = (scene.claim(&key, 1, 1)?, scene.claim(&key, 1, 1)?);
    let token = scene.ask(&holder).await?.granted()?.token;
    scene.ask(&waiter).await?.waiting()?;
    assert!(scene.store.evict(&key, token).await?);
    assert!(scene.renew(&waiter).await?.granted()?.token > token);
    Ok(())
}

async fn eviction_is_told_to_the_evicted(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    scene.needs_pushes()?;
    let claim = scene.claim(&scene.key(), 1, 1)?;
    let token = scene.ask(&claim).await?.granted()?.token;
    assert!(scene.another().await?.store.evict(&claim.key, token).await?);
    assert!(scene.listener.look_within(&claim.key, SLACK).await, "nobody told the evicted to look");
    Ok(())
}

async fn eviction_ends_one_holder_of_many(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let (one, two) = (scene.claim(&key, 1, 3)?, scene.claim(&key, 1, 3)?);
    let token = scene.ask(&one).await?.granted()?.token;
    scene.ask(&two).await?.granted()?;
    assert!(scene.store.evict(&key, token).await?);
    scene.renew(&two).await?.granted()?;
    assert_eq!(scene.raw(&key).await?.units, 1);
    Ok(())
}
