//! The blocking API from plain threads: the mutex's laws once more, and async code that calls it by mistake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::blocking::{Client, this_thread};
use leasehold_core::{Capability, ErrorKind, Feature, Key, Loss, Options, Released};
use tokio::sync::oneshot;

use crate::case::cases;
use crate::scene::{LONG, SLACK, Scene};
use crate::verdict::{Stop, Verdict};

cases!("blocking":
    threads_that_take_turns_lose_no_update,
    a_second_thread_waits_until_release,
    try_acquire_gives_none_while_it_is_held,
    acquire_within_gives_none_and_leaves_no_place,
    release_says_that_it_held,
    a_dropped_guard_frees_the_key,
    a_lease_is_renewed_while_the_thread_does_nothing,
    an_evicted_guard_is_lost_and_says_why,
    tokens_rise_from_thread_to_thread,
    blocking_and_async_clients_exclude_each_other,
    close_frees_the_key,
    async_code_gets_an_error_and_no_panic,
    a_guard_released_in_async_code_is_freed_all_the_same,
    a_thread_acquires_again_what_it_holds,
    another_thread_is_another_owner,
    thread_releases_permits_one_by_one,
);

/// Work on a plain thread, where no async code runs.
fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> Verdict<T> + Send + 'static,
) -> Verdict<oneshot::Receiver<Verdict<T>>> {
    let (done, result) = oneshot::channel();
    // Under the trial's name, so that its panics are the trial's.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // Nobody listens when the case has failed already.
        let _ = done.send(work());
    });
    thread.map_err(Stop::fail)?;
    Ok(result)
}

/// What a thread came to.
async fn outcome<T>(result: oneshot::Receiver<Verdict<T>>) -> Verdict<T> {
    let ended = tokio::time::timeout(SLACK * 4, result).await;
    ended.map_err(|_| Stop::fail("the thread still waits"))?.map_err(|_| Stop::fail("the thread panicked"))?
}

/// Does work on a plain thread and waits for it.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Verdict<T> + Send + 'static) -> Verdict<T> {
    outcome(spawn(work)?).await
}

/// A blocking client on a new connection, as another process would have.
async fn client(scene: &Scene) -> Verdict<Client> {
    let store = scene.fixture.store().await?;
    on_thread(move || Ok(Client::new(store)?)).await
}

async fn threads_that_take_turns_lose_no_update(scene: Scene) -> Verdict {
    const THREADS: u64 = 4;
    const TURNS: u64 = 15;
    let key = scene.key();
    let counter = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let (lock, counter) = (client(&scene).await?.mutex(key.as_str()), counter.clone());
        threads.push(spawn(move || {
            for _ in 0..TURNS {
                let guard = lock.acquire()?;
                // Two steps: only the lock keeps others from coming in between.
                let seen = counter.load(Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                counter.store(seen + 1, Ordering::SeqCst);
                guard.release()?;
            }
            Ok(())
        })?);
    }
    for thread in threads {
        outcome(thread).await?;
    }
    assert_eq!(counter.load(Ordering::SeqCst), THREADS * TURNS);
    scene.until_nothing_is_left(&key).await
}

async fn a_second_thread_waits_until_release(scene: Scene) -> Verdict {
    let key = scene.key();
    let (one, two) = (client(&scene).await?.mutex(key.as_str()), client(&scene).await?.mutex(key.as_str()));
    let first = on_thread(move || Ok(one.acquire()?)).await?;
    let mut second = spawn(move || Ok(two.acquire()?))?;
    scene.until_waiting(&key, 1).await?;
    assert!(second.try_recv().is_err(), "it did not wait");
    on_thread(move || Ok(first.release()?)).await?;
    assert!(outcome(second).await?.is_valid());
    Ok(())
}

async fn try_acquire_gives_none_while_it_is_held(scene: Scene) -> Verdict {
    let (one, two, key) = (client(&scene).await?, client(&scene).await?, scene.key());
    on_thread(move || {
        let held = one.mutex(key.as_str()).try_acquire()?.expect("it is free");
        assert!(two.mutex(key.as_str()).try_acquire()?.is_none());
        assert!(one.mutex(key.as_str()).try_acquire()?.is_none());
        held.release()?;
        assert!(two.mutex(key.as_str()).try_acquire()?.is_some());
        Ok(())
    })
    .await
}

async fn acquire_within_gives_none_and_leaves_no_place(scene: Scene) -> Verdict {
    let (one, two, key) = (client(&scene).await?, client(&scene).await?, scene.key());
    let lock = two.mutex(key.as_str());
    let held = on_thread(move || {
        let held = one.mutex(key.as_str()).acquire()?;
        assert!(lock.acquire_within(Duration::from_millis(400))?.is_none());
        Ok(held)
    })
    .await?;
    scene.until_raw(held.key(), |now| (now.holders, now.waiters) == (1, 0)).await
}

async fn release_says_that_it_held(scene: Scene) -> Verdict {
    let (client, key) = (client(&scene).await?, scene.key());
    let lock = client.mutex(key.as_str());
    assert_eq!(on_thread(move || Ok(lock.acquire()?.release()?)).await?, Released::Held);
    assert_eq!(scene.raw(&key).await?.holders, 0);
    Ok(())
}

async fn a_dropped_guard_frees_the_key(scene: Scene) -> Verdict {
    let (client, key) = (client(&scene).await?, scene.key());
    let lock = client.mutex(key.as_str());
    on_thread(move || {
        drop(lock.acquire()?);
        Ok(())
    })
    .await?;
    scene.until_nothing_is_left(&key).await
}

async fn a_lease_is_renewed_while_the_thread_does_nothing(scene: Scene) -> Verdict {
    let (client, key, lease) = (client(&scene).await?, scene.key(), scene.lease());
    on_thread(move || {
        let held = client.mutex(key.as_str()).with(Options::new().lease(lease)).acquire()?;
        std::thread::sleep(lease * 3);
        assert!(held.is_valid(), "lost: {:?}", held.lost()?);
        assert_eq!(held.release()?, Released::Held);
        Ok(())
    })
    .await
}

async fn an_evicted_guard_is_lost_and_says_why(scene: Scene) -> Verdict {
    scene.needs(Capability::Evict)?;
    let (client, key, lease) = (client(&scene).await?, scene.key(), scene.lease());
    on_thread(move || {
        let held = client.mutex(key.as_str()).with(Options::new().lease(lease)).acquire()?;
        assert!(client.evict(key.as_str(), held.token())?);
        assert_eq!(held.lost()?, Loss::Gone);
        assert_eq!(held.release()?, Released::Gone);
        Ok(())
    })
    .await
}

async fn tokens_rise_from_thread_to_thread(scene: Scene) -> Verdict {
    let key = scene.key();
    let mut last = 0;
    for _ in 0..4 {
        let lock = client(&scene).await?.mutex(key.as_str());
        let token = on_thread(move || {
            let held = lock.acquire()?;
            let token = held.token();
            held.release()?;
            Ok(token)
        });
        let token = token.await?;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    Ok(())
}

async fn blocking_and_async_clients_exclude_each_other(scene: Scene) -> Verdict {
    let key = scene.key();
    let lock = client(&scene).await?.mutex(key.as_str());
    let held = scene.fixture.connect().await?.mutex(key.as_str()).acquire().await?;
    let token = held.token();
    let waiting = spawn(move || Ok(lock.acquire()?))?;
    scene.until_waiting(&key, 1).await?;
    held.release().await?;
    assert!(outcome(waiting).await?.token() > token);
    Ok(())
}

async fn close_frees_the_key(scene: Scene) -> Verdict {
    let (client, key) = (client(&scene).await?, scene.key());
    let lock = client.mutex(key.as_str());
    let held = on_thread(move || {
        let held = lock.acquire()?;
        client.close()?;
        Ok(held)
    });
    assert!(!held.await?.is_valid());
    scene.until_nothing_is_left(&key).await
}

async fn async_code_gets_an_error_and_no_panic(scene: Scene) -> Verdict {
    let (client, key) = (client(&scene).await?, scene.key());
    let lock = client.mutex(key.as_str());
    let held = on_thread(move || Ok(lock.acquire()?)).await?;
    let store = scene.fixture.store().await?;
    let lock = client.mutex(key.as_str());
    let errors = [
        Client::new(store).map(drop),
        lock.acquire().map(drop),
        lock.try_acquire().map(drop),
        lock.acquire_within(LONG).map(drop),
        held.renew(LONG).map(drop),
        held.lost().map(drop),
        client.inspect(key.as_str()).map(drop),
        client.close(),
    ];
    for (number, error) in errors.into_iter().enumerate() {
        let error = error.expect_err("it would block a thread that async code runs on");
        assert_eq!(error.kind(), ErrorKind::Invalid, "call {number}: {error}");
        assert!(error.to_string().contains("async"), "call {number}: {error}");
    }
    assert!(held.is_valid(), "the refused calls did something");
    assert_eq!(scene.raw(&key).await?.waiters, 0);
    Ok(())
}

async fn a_guard_released_in_async_code_is_freed_all_the_same(scene: Scene) -> Verdict {
    let (client, key) = (client(&scene).await?, scene.key());
    let lock = client.mutex(key.as_str());
    let held = on_thread(move || Ok(lock.acquire()?)).await?;
    assert_eq!(held.release().map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    scene.until_nothing_is_left(&key).await
}

async fn a_thread_acquires_again_what_it_holds(scene: Scene) -> Verdict {
    let (client, key) = (client(&scene).await?, scene.key());
    let name = key.clone();
    on_thread(move || {
        let me = this_thread();
        let lock = client.mutex(key.as_str()).with(Options::new().owner(&me));
        let (outer, inner) = (lock.acquire()?, lock.acquire()?);
        assert_eq!((outer.token(), me.hold_count(key.as_str())), (inner.token(), 2));
        outer.release()?;
        assert!(inner.is_valid() && this_thread().is_held(key.as_str()));
        assert_eq!(inner.release()?, Released::Held);
        assert!(!me.is_held(key.as_str()));
        Ok(())
    })
    .await?;
    scene.until_nothing_is_left(&name).await
}

async fn another_thread_is_another_owner(scene: Scene) -> Verdict {
    let (client, key) = (client(&scene).await?, scene.key());
    let again = client.clone();
    let try_it = move |client: Client, key: Key| {
        let lock = client.mutex(key.as_str()).with(Options::new().owner(&this_thread()));
        Ok::<_, Stop>(lock.try_acquire()?)
    };
    let name = key.clone();
    let held = on_thread(move || try_it(client, name)).await?.expect("it is free");
    assert!(on_thread(move || try_it(again, key)).await?.is_none(), "two threads are one owner");
    assert!(held.is_valid());
    Ok(())
}

async fn thread_releases_permits_one_by_one(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::PartialRelease)?;
    let (one, two, key) = (client(&scene).await?, client(&scene).await?, scene.key());
    on_thread(move || {
        let mut held = one.semaphore(key.as_str(), 2).permits(2).acquire()?;
        let other = two.semaphore(key.as_str(), 2);
        assert!(other.try_acquire()?.is_none());
        held.release_permits(1)?;
        assert_eq!(held.units(), 1);
        assert!(other.try_acquire()?.is_some());
        held.release()?;
        Ok(())
    })
    .await
}
