//! Cycles and cancellations inside one process.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::Client;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;

use crate::census::{Census, becomes};
use crate::site::{Kind, Site, stir};
use crate::{Found, Outcome};

/// Tasks at once.
const TASKS: usize = 32;
/// Keys that they share.
const KEYS: usize = 8;

/// So many acquires and releases; half of the releases are drops.
pub(crate) fn cycles(kind: Kind, count: usize) -> Found {
    nothing_is_left_of(kind, count, |client, number| async move {
        let guard = client.mutex(format!("soak/{}", number % KEYS)).acquire().await?;
        if number % 2 == 0 {
            guard.release().await?;
        }
        Ok(())
    })
}

/// So many acquires that are dropped while they ask or wait: after a few polls, or after a while.
pub(crate) fn cancelled(kind: Kind, count: usize) -> Found {
    nothing_is_left_of(kind, count, |client, number| async move {
        let lock = client.mutex(format!("soak/{}", number % KEYS));
        let mut held = None;
        loop {
            let acquired = match number % 3 {
                0 => poll_at_most(fastrand::usize(1..4), lock.acquire()).await,
                1 => within(Duration::from_micros(fastrand::u64(0..500)), lock.acquire()).await,
                _ => within(Duration::from_millis(fastrand::u64(0..5)), lock.acquire()).await,
            };
            let Some(guard) = acquired.transpose()? else {
                drop(held);
                return Ok(());
            };
            // It came through, so it does not count. Kept, it is what the next try and the others wait for.
            held = Some(guard);
        }
    })
}

/// Gives a future so much time, then drops it.
async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(time, future).await.ok()
}

/// Polls a future so many times, then drops it.
async fn poll_at_most<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Does `step` that often, in many tasks, and checks that no row, task, descriptor or thread is left of it:
/// neither while the client lives, nor of the client itself and its sessions afterwards.
fn nothing_is_left_of<F>(kind: Kind, count: usize, step: fn(Client, usize) -> F) -> Found
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    let site = Site::new(kind)?;
    site.warm_up()?;
    let before = Census::take()?;
    // One worker less or more would look like a leak: all are there from the start.
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = site.connect().await?;
        stir(&client).await?;
        // SQLite keeps the descriptor of a look for the next one, as closing it would drop the store's locks.
        site.rows().await?;
        let (settled, tasks) = (Census::take()?, alive());

        run(&client, count, step).await?;

        becomes("stored rows", 0, || async {
            stir(&client).await?;
            site.rows().await
        })
        .await?;
        becomes("tasks too many", 0, || async { Ok(alive().saturating_sub(tasks)) }).await?;
        becomes("too much in this process", Census::default(), || async {
            Ok(Census::take()?.beyond(settled))
        })
        .await?;
        client.close().await?;
        drop(client);
        becomes("sessions after close", 0, || site.sessions()).await?;
        becomes("tasks after close", 0, || async { Ok(alive()) }).await
    })?;
    drop(runtime);
    before.comes_back()?;
    Ok(format!("{count} done"))
}

async fn run<F>(client: &Client, count: usize, step: fn(Client, usize) -> F) -> Outcome<()>
where
    F: Future<Output = Outcome<()>> + Send + 'static,
{
    let mut tasks: JoinSet<Outcome<()>> = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            for number in (task..count).step_by(TASKS) {
                step(client.clone(), number).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
