//! Claims that do not mind the queue: the tasks of one client pass the lock on, and others get their turn.

use std::time::Duration;

use leasehold_core::layers::{Fault, Faults, Reply, Verb};
use leasehold_core::{Capability, Client, Guard, Options};
use tokio::task::JoinHandle;

use crate::case::cases;
use crate::scene::{Scene, soon};
use crate::spy::Spy;
use crate::verdict::{Stop, Verdict};

cases!("relay":
    the_tasks_of_a_client_pass_it_on_in_one_call_each,
    each_of_them_has_a_token_of_its_own,
    who_waits_elsewhere_gets_its_turn,
    one_that_gives_up_is_passed_over,
    one_that_is_cancelled_on_the_way_leaves_no_ghost,
    a_pass_whose_reply_was_lost_goes_to_one,
    readers_are_not_kept_apart,
    what_is_left_of_a_write_lock_is_not_passed_on,
    a_lock_passes_only_between_equal_leases,
    an_asked_holder_gives_way_to_the_queue,
);

type Waiting = JoinHandle<leasehold_core::Result<Guard>>;

/// Starts tasks of this client that wait for what it holds.
async fn parked(client: &Client, key: &str, tasks: usize) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for _ in 0..tasks {
        let lock = client.mutex(key).with(Options::new().barging());
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
        // Nothing is sent, so there is nothing to wait for but the task itself.
        tokio::task::yield_now().await;
    }
    waiting
}

async fn granted(waiting: Waiting) -> Verdict<Guard> {
    Ok(soon(waiting).await?.map_err(Stop::fail)??)
}

/// Gives it to each of them, in whatever order they get it: not every store has one.
async fn serve(waiting: Vec<Waiting>) -> Verdict {
    let each = waiting.into_iter().map(|task| async { Ok::<_, Stop>(granted(task).await?.release().await?) });
    futures_util::future::try_join_all(each).await?;
    Ok(())
}

async fn hold(client: &Client, key: &str) -> Verdict<Guard> {
    Ok(client.mutex(key).with(Options::new().barging()).acquire().await?)
}

async fn the_tasks_of_a_client_pass_it_on_in_one_call_each(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    const TASKS: usize = 8;
    let key = scene.key();
    let (spy, counts) = Spy::counting(scene.fixture.store().await?);
    let client = Client::new(spy).await?;
    let first = hold(&client, key.as_str()).await?;
    let waiting = parked(&client, key.as_str(), TASKS).await;
    tokio::time::sleep(crate::scene::GLANCE).await;
    first.release().await?;
    serve(waiting).await?;
    // A claim, a pass to each, and the release of the last.
    assert_eq!((counts.claims(), counts.releases()), (1, 1), "{counts:?}");
    assert_eq!(counts.total() - counts.renewals(), TASKS as u64 + 2, "{counts:?}");
    scene.until_nothing_is_left(&key).await
}

async fn each_of_them_has_a_token_of_its_own(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let first = hold(&client, key.as_str()).await?;
    let mut last = first.token();
    let waiting = parked(&client, key.as_str(), 4).await;
    first.release().await?;
    let mut waiting: futures_util::stream::FuturesUnordered<_> = waiting.into_iter().map(granted).collect();
    while let Some(guard) = futures_util::StreamExt::next(&mut waiting).await {
        let guard = guard?;
        assert!(guard.is_valid() && guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        guard.release().await?;
    }
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn who_waits_elsewhere_gets_its_turn(scene: Scene) -> Verdict {
    let key = scene.key();
    let (client, rival) = (scene.fixture.connect().await?, scene.fixture.connect().await?);
    let first = hold(&client, key.as_str()).await?;
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let lock = client.mutex(key.as_str()).with(Options::new().barging());
            tokio::spawn(async move {
                loop {
                    lock.acquire().await?.release().await?;
                }
                #[expect(unreachable_code, reason = "says what the loop may fail with")]
                Ok::<(), leasehold_core::Error>(())
            })
        })
        .collect();
    let lock = rival.mutex(key.as_str());
    let waiting = tokio::spawn(async move { lock.acquire().await });
    first.release().await?;
    let guard = granted(waiting).await?;
    assert!(guard.is_valid());
    assert!(busy.iter().all(|task| !task.is_finished()));
    busy.iter().for_each(JoinHandle::abort);
    Ok(())
}

async fn one_that_gives_up_is_passed_over(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let first = hold(&client, key.as_str()).await?;
    let mut waiting = parked(&client, key.as_str(), 3).await;
    waiting.remove(0).abort();
    let brief = client.mutex(key.as_str()).with(Options::new().barging());
    assert!(brief.acquire_within(crate::scene::GLANCE).await?.is_none());
    first.release().await?;
    serve(waiting).await?;
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn one_that_is_cancelled_on_the_way_leaves_no_ghost(scene: Scene) -> Verdict {
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let first = hold(&client, key.as_str()).await?;
    let mut waiting = parked(&client, key.as_str(), 2).await;
    let releasing = tokio::spawn(first.release());
    // Wherever the pass is by now: at the store, on its way there or back.
    tokio::task::yield_now().await;
    // Dropped too: it may be done, and have the guard.
    waiting.remove(0).abort();
    releasing.await.map_err(Stop::fail)??;
    serve(waiting).await?;
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn a_pass_whose_reply_was_lost_goes_to_one(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    let key = scene.key();
    let faults = Faults::new(scene.fixture.store().await?);
    faults.once(Verb::Amend, Fault { reply: Reply::Lost, ..Fault::default() });
    let client = Client::new(faults).await?;
    let first = hold(&client, key.as_str()).await?;
    let token = first.token();
    let waiting = parked(&client, key.as_str(), 1).await;
    tokio::time::sleep(crate::scene::GLANCE).await;
    // Nobody can say what it found.
    let _ = first.release().await;
    for task in waiting {
        let guard = granted(task).await?;
        assert!(guard.token() > token, "{} after {token}", guard.token());
        guard.release().await?;
    }
    scene.until_raw(&key, |now| (now.holders, now.waiters) == (0, 0)).await
}

async fn readers_are_not_kept_apart(scene: Scene) -> Verdict {
    scene.needs_feature(leasehold_core::Feature::RwLock)?;
    let client = scene.fixture.connect().await?;
    let lock = client.rwlock(scene.key().as_str());
    let reader = || lock.read().with(Options::new().barging());
    let one = reader().acquire().await?;
    let two = soon(reader().acquire()).await??;
    assert!(one.is_valid() && two.is_valid());
    Ok(())
}

async fn what_is_left_of_a_write_lock_is_not_passed_on(scene: Scene) -> Verdict {
    scene.needs_feature(leasehold_core::Feature::Upgrade)?;
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let lock = client.rwlock(key.as_str());
    let writer = || lock.write().with(Options::new().barging());
    let first = writer().acquire().await?;
    let second = writer();
    let second = tokio::spawn(async move { second.acquire().await });
    tokio::task::yield_now().await;
    first.downgrade().await?.release().await?;
    let second = soon(second).await?.map_err(Stop::fail)??;
    assert!(second.is_valid());
    let reader = scene.fixture.connect().await?.rwlock(key.as_str()).read();
    assert!(reader.try_acquire().await?.is_none(), "it has less than it believes");
    Ok(())
}

async fn a_lock_passes_only_between_equal_leases(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    const SHORT: Duration = Duration::from_secs(5);
    let key = scene.key();
    let client = scene.fixture.connect().await?;
    let first = hold(&client, key.as_str()).await?;
    let lock = client.mutex(key.as_str()).with(Options::new().fixed(SHORT).barging());
    let next = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(crate::scene::GLANCE).await;
    first.release().await?;
    let guard = granted(next).await?;
    assert!(guard.valid_for() < SHORT, "a lease of {SHORT:?} is valid for {:?}", guard.valid_for());
    let left = scene.holders(&key).await?.first().and_then(|holder| holder.lease_left);
    assert!(left.is_none_or(|left| left <= SHORT), "a lease of {SHORT:?} ends in {left:?} at the store");
    Ok(())
}

async fn an_asked_holder_gives_way_to_the_queue(scene: Scene) -> Verdict {
    scene.needs(Capability::Owner)?;
    scene.needs(Capability::Ask)?;
    scene.needs_order()?;
    let key = scene.key();
    let (client, rival) = (scene.fixture.connect().await?, scene.fixture.connect().await?);
    let first = hold(&client, key.as_str()).await?;
    let waits = rival.mutex(key.as_str());
    let waits = tokio::spawn(async move { waits.acquire().await });
    scene.until_waiting(&key, 1).await?;
    let sibling = parked(&client, key.as_str(), 1).await;
    assert!(rival.ask(&key, first.token()).await?);
    soon(first.asked_to_release()).await?;
    first.release().await?;
    let guard = granted(waits).await?;
    let token = guard.token();
    guard.release().await?;
    for task in sibling {
        let guard = granted(task).await?;
        assert!(guard.token() > token, "an asked holder passed the lock on to a task of its own client");
        guard.release().await?;
    }
    Ok(())
}
