//! Re-entrancy: an owner may acquire again what it holds.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use leasehold_core::{Capability, Client, ErrorKind, Feature, Key, Mutex, Options, Owner, Released};

use crate::case::cases;
use crate::gate::{Gate, Passing};
use crate::scene::{Scene, soon};
use crate::verdict::{Stop, Verdict};

cases!("owner":
    an_owner_acquires_again_what_it_holds,
    holds_are_counted,
    an_inner_release_keeps_the_lock,
    the_last_release_gives_the_lock_back,
    dropping_the_last_guard_gives_the_lock_back,
    another_owner_waits,
    without_an_owner_nobody_joins,
    a_reader_that_asks_to_write_is_told_why_not,
    a_hold_that_is_lost_is_not_joined,
    a_hold_that_is_being_released_is_not_joined,
    a_join_that_races_a_release_is_old_and_valid_or_new,
    looking_does_not_hinder_release_and_hand_over,
    a_guard_that_shares_its_hold_cannot_change_its_mode,
    a_guard_that_shares_its_hold_cannot_hand_it_over,
    a_hold_whose_mode_is_being_changed_is_not_joined,
    releasing_one_of_several_says_whether_the_hold_is_lost,
);

/// A mutex as this owner sees it.
fn lock(client: &Client, key: &Key, owner: &Owner) -> Mutex {
    client.mutex(key.as_str()).with(Options::new().owner(owner))
}

async fn an_owner_acquires_again_what_it_holds(scene: Scene) -> Verdict {
    let key = scene.key();
    let lock = lock(&scene.fixture.connect().await?, &key, &Owner::new());
    let outer = lock.acquire().await?;
    let inner = soon(lock.acquire()).await??;
    let third = lock.try_acquire().await?.expect("it is its own");
    assert_eq!([inner.token(), third.token()], [outer.token(); 2]);
    let now = scene.raw(&key).await?;
    assert_eq!((now.holders, now.waiters), (1, 0));
    Ok(())
}

async fn holds_are_counted(scene: Scene) -> Verdict {
    let key = scene.key();
    let me = Owner::new();
    let lock = lock(&scene.fixture.connect().await?, &key, &me);
    assert!(!me.is_held(key.as_str()));
    let outer = lock.acquire().await?;
    let inner = lock.acquire().await?;
    assert_eq!((me.hold_count(key.as_str()), me.is_held(key.as_str())), (2, true));
    assert_eq!(Owner::new().hold_count(key.as_str()), 0);
    inner.release().await?;
    assert_eq!(me.hold_count(key.as_str()), 1);
    outer.release().await?;
    assert_eq!((me.hold_count(key.as_str()), me.is_held(key.as_str())), (0, false));
    Ok(())
}

async fn an_inner_release_keeps_the_lock(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = lock(&client, &key, &Owner::new());
    // Whichever goes first, the other one holds on.
    for first_goes in [0, 1] {
        let mut guards = vec![lock.acquire().await?, lock.acquire().await?];
        assert_eq!(guards.remove(first_goes).release().await?, Released::Held);
        assert!(guards[0].is_valid());
        assert!(client.mutex(key.as_str()).try_acquire().await?.is_none());
        scene.shows(&key, guards[0].token()).await?;
        guards.remove(0).release().await?;
    }
    Ok(())
}

async fn the_last_release_gives_the_lock_back(scene: Scene) -> Verdict {
    let key = scene.key();
    let lock = lock(&scene.fixture.connect().await?, &key, &Owner::new());
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    outer.release().await?;
    assert_eq!(inner.release().await?, Released::Held);
    assert_eq!(scene.raw(&key).await?.holders, 0);
    Ok(())
}

async fn dropping_the_last_guard_gives_the_lock_back(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = lock(&client, &key, &Owner::new());
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    drop((outer, inner));
    scene.until_nothing_is_left(&key).await
}

async fn another_owner_waits(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let (mine, other) = (lock(&client, &key, &Owner::new()), lock(&client, &key, &Owner::new()));
    let held = mine.acquire().await?;
    assert!(other.try_acquire().await?.is_none());
    let waiting = tokio::spawn(async move { other.acquire().await });
    scene.until_waiting(&key, 1).await?;
    let token = held.token();
    held.release().await?;
    assert!(soon(waiting).await?.map_err(Stop::fail)??.token() > token);
    Ok(())
}

async fn without_an_owner_nobody_joins(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let _held = lock(&client, &key, &Owner::new()).acquire().await?;
    assert!(client.mutex(key.as_str()).try_acquire().await?.is_none());
    Ok(())
}

async fn a_reader_that_asks_to_write_is_told_why_not(scene: Scene) -> Verdict {
    scene.needs(Capability::Units)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = client.rwlock(key.as_str()).with(Options::new().owner(&Owner::new()));
    let reader = lock.read().acquire().await?;
    let error = soon(lock.write().acquire()).await?.expect_err("it would wait for itself");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("upgrade"), "{error}");
    assert!(reader.is_valid());
    assert_eq!(scene.raw(&key).await?.waiters, 0);
    reader.release().await?;
    assert!(lock.write().try_acquire().await?.is_some(), "it does not read any more");
    Ok(())
}

async fn a_hold_that_is_lost_is_not_joined(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let key = scene.key();
    let me = Owner::new();
    let client = scene.fixture.connect().await?;
    let options = Options::new().owner(&me).lease(scene.lease());
    let lost = client.mutex(key.as_str()).with(options.clone()).acquire().await?;
    assert!(client.evict(key.as_str(), lost.token()).await?);
    soon(lost.lost()).await?;
    assert!(!me.is_held(key.as_str()));
    let new = soon(client.mutex(key.as_str()).with(options).acquire()).await??;
    assert!(new.token() > lost.token(), "a lost hold was joined");
    assert!(new.is_valid());
    assert_eq!(lost.release().await?, Released::Gone);
    assert!(new.is_valid() && me.is_held(key.as_str()));
    Ok(())
}

async fn a_hold_that_is_being_released_is_not_joined(scene: Scene) -> Verdict {
    let key = scene.key();
    let me = Owner::new();
    let gate = Gate::new(scene.fixture.store().await?);
    let client = Client::new(gate.clone()).await?;
    let outer = lock(&client, &key, &me).acquire().await?;
    let token = outer.token();
    // The release has begun, and the store has not heard of it.
    gate.let_pass(Passing::Nothing);
    let signal = outer.signal();
    let releasing = tokio::spawn(outer.release());
    soon(signal.lost()).await?;
    assert!(!me.is_held(key.as_str()));
    let again = lock(&client, &key, &me);
    let mut inner = Box::pin(again.acquire());
    let has_joined = poll_fn(|cx| Poll::Ready(inner.as_mut().poll(cx).is_ready())).await;
    assert!(!has_joined, "it joined what is being given back");
    gate.let_pass(Passing::Everything);
    soon(releasing).await?.map_err(Stop::fail)??;
    let inner = soon(inner).await??;
    assert!(inner.token() > token, "{} after {token}", inner.token());
    scene.shows(&key, inner.token()).await?;
    Ok(())
}

async fn a_join_that_races_a_release_is_old_and_valid_or_new(scene: Scene) -> Verdict {
    const ROUNDS: usize = 200;
    let key = scene.key();
    let me = Owner::new();
    let client = scene.fixture.connect().await?;
    for _ in 0..ROUNDS {
        let outer = lock(&client, &key, &me).acquire().await?;
        let token = outer.token();
        let again = lock(&client, &key, &me);
        let releasing = tokio::spawn(outer.release());
        let inner = tokio::spawn(async move { again.acquire().await });
        soon(releasing).await?.map_err(Stop::fail)??;
        let inner = soon(inner).await?.map_err(Stop::fail)??;
        // Both calls are over: what it got must be what the store has, whichever came first.
        assert!(inner.token() >= token && inner.is_valid());
        scene.shows(&key, inner.token()).await?;
        assert_eq!(inner.release().await?, Released::Held);
    }
    scene.until_nothing_is_left(&key).await
}

async fn looking_does_not_hinder_release_and_hand_over(scene: Scene) -> Verdict {
    const ROUNDS: usize = 300;
    scene.needs_feature(Feature::HandOver)?;
    let key = scene.key();
    let me = Owner::new();
    let client = scene.fixture.connect().await?;
    let done = Arc::new(AtomicBool::new(false));
    let (stop, owner, name) = (done.clone(), me.clone(), key.clone());
    let looking = std::thread::spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            owner.hold_count(name.as_str());
        }
    });
    let mut failed = Ok(());
    for _ in 0..ROUNDS {
        let held = lock(&client, &key, &me).acquire().await?;
        match held.hand_over().await {
            Ok(ticket) => drop(client.adopt(&ticket).await?.expect("nobody was faster").release().await?),
            Err(error) => failed = Err(error),
        }
    }
    done.store(true, Ordering::SeqCst);
    looking.join().map_err(|_| Stop::fail("looking panicked"))?;
    Ok(failed?)
}

async fn a_guard_that_shares_its_hold_cannot_change_its_mode(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = client.rwlock(key.as_str()).with(Options::new().owner(&Owner::new()));
    let (outer, inner) = (lock.write().acquire().await?, lock.write().acquire().await?);
    let downgraded = inner.downgrade().await;
    let reader = client.rwlock(key.as_str()).read().try_acquire().await?;
    assert!(!outer.is_valid() || reader.is_none(), "a valid writer beside a reader");
    assert_eq!(downgraded.map_err(|error| error.kind()).err(), Some(ErrorKind::Invalid));
    Ok(())
}

async fn a_guard_that_shares_its_hold_cannot_hand_it_over(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::HandOver)?;
    let key = scene.key();
    let lock = lock(&scene.fixture.connect().await?, &key, &Owner::new());
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    let error = inner.hand_over().await.expect_err("the other guard relies on it");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(outer.is_valid());
    assert_eq!(outer.release().await?, Released::Held);
    Ok(())
}

async fn a_hold_whose_mode_is_being_changed_is_not_joined(scene: Scene) -> Verdict {
    scene.needs(Capability::AmendUnits)?;
    let key = scene.key();
    let gate = Gate::new(scene.fixture.store().await?);
    let client = Client::new(gate.clone()).await?;
    let lock = client.rwlock(key.as_str()).with(Options::new().owner(&Owner::new()));
    let writer = lock.write().acquire().await?;
    // The store has made a reader of it, and nobody has heard of that.
    gate.let_pass(Passing::NoReplies);
    let downgrading = tokio::spawn(writer.downgrade());
    scene.until_raw(&key, |now| now.units == 1).await?;
    let error = soon(lock.write().acquire()).await?.expect_err("a second writer, and readers can come");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    gate.let_pass(Passing::Everything);
    let _reader = soon(downgrading).await?.map_err(Stop::fail)??;
    assert!(lock.read().try_acquire().await?.is_some(), "it is a reader now, and can be joined");
    Ok(())
}

async fn releasing_one_of_several_says_whether_the_hold_is_lost(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let options = Options::new().owner(&Owner::new()).lease(scene.lease());
    let lock = client.mutex(key.as_str()).with(options);
    let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
    assert!(client.evict(key.as_str(), outer.token()).await?);
    soon(inner.lost()).await?;
    assert_eq!((inner.release().await?, outer.release().await?), (Released::Gone, Released::Gone));
    Ok(())
}
