//! Law 6 in bulk: after many cycles and cancelled acquires nothing is left, in the store or in the process.

use std::time::Duration;

use leasehold_core::{Client, Key};
use tokio::time::Instant;

use crate::case::{Case, Company};
use crate::scale::Scale;
use crate::scene::{GLANCE, SLACK, Scene};
use crate::verdict::{Expect, Stop, Verdict};

/// They count file descriptors and threads of the whole process.
pub(crate) fn cases() -> Vec<Case> {
    crate::case::cases!("leaks": cycles_leave_nothing, cancelled_acquires_leave_nothing, clients_leave_nothing);
    let mut cases = cases();
    for case in &mut cases {
        case.company = Company::Alone;
    }
    cases
}

/// Far fewer than a leak per cycle would be. SQLite keeps the descriptor of a connection that was closed for the
/// next one while another has locks on the same file, so a few more may be in use than at the start.
const SPARE_FILES: usize = 4;
/// The same for threads. A store with a pool may open another connection, and the proxy in front of a server has two
/// threads for each.
const SPARE_THREADS: usize = 4;

/// What the process has: tasks on this runtime, open files, threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Belongings {
    tasks: usize,
    files: Option<usize>,
    threads: Option<usize>,
}

impl Belongings {
    fn now() -> Self {
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let count = |directory| std::fs::read_dir(directory).ok().map(Iterator::count);
        Self { tasks, files: count("/proc/self/fd"), threads: count("/proc/self/task") }
    }

    /// Waits until there is no more than before: what was dropped may still be on its way out.
    async fn back_to(self, before: Self) -> Verdict {
        let limit = Instant::now() + SLACK;
        let mut now = self;
        let files = before.files.map(|files| files + SPARE_FILES);
        let threads = before.threads.map(|threads| threads + SPARE_THREADS);
        while now.tasks > before.tasks || now.files > files || now.threads > threads {
            if Instant::now() > limit {
                return Err(Stop::fail(format_args!("before {before:?}, afterwards {now:?}")));
            }
            tokio::time::sleep(GLANCE).await;
            now = Self::now();
        }
        Ok(())
    }
}

/// A client that asks the store to refuse late claims only briefly, so that marks end within the case.
async fn hasty(scene: &Scene) -> Verdict<Client> {
    let builder = Client::builder().call_timeout(Duration::from_secs(3));
    Ok(builder.connect(scene.fixture.store().await?).await?)
}

/// Runs `cycles` on a client and looks at what is left of everything.
async fn leaves_nothing<F>(scene: &Scene, cycles: impl FnOnce(Client, Key) -> F) -> Verdict
where
    F: Future<Output = Verdict>,
{
    // Once before counting: what is made on first use and kept for good is no leak.
    warm_up(scene).await?;
    let before = Belongings::now();
    let key = scene.key();
    let client = hasty(scene).await?;
    cycles(client.clone(), key.clone()).await?;
    client.close().await?;
    drop(client);
    scene.until_swept(&key).await?;
    Belongings::now().back_to(before).await
}

async fn warm_up(scene: &Scene) -> Verdict {
    let client = hasty(scene).await?;
    client.mutex(scene.key().as_str()).acquire().await?.release().await?;
    client.close().await?;
    // The scene's own connection too: it sweeps later.
    let claim = scene.claim(&scene.key(), 1, 1)?;
    scene.ask(&claim).await?.granted()?;
    scene.release(&claim).await?;
    // And the fixture's, which looks from outside.
    scene.raw(&claim.key).await?;
    Ok(())
}

async fn cycles_leave_nothing(scene: Scene) -> Verdict {
    leaves_nothing(&scene, |client, key| async move {
        for cycle in 0..Scale::chosen().pick(500, 2_000, 100_000) {
            let guard = client.mutex(key.as_str()).acquire().await?;
            if cycle % 2 == 0 {
                guard.release().await?;
            }
        }
        Ok(())
    })
    .await
}

async fn cancelled_acquires_leave_nothing(scene: Scene) -> Verdict {
    leaves_nothing(&scene, |client, key| async move {
        let holder = client.mutex(key.as_str()).acquire().await?;
        for cycle in 0..Scale::chosen().pick(200, 1_000, 10_000) {
            let lock = client.mutex(key.as_str());
            let acquire = tokio::spawn(async move { lock.acquire().await.map(drop) });
            for _ in 0..cycle % 5 {
                tokio::task::yield_now().await;
            }
            acquire.abort();
            // However far it had come, it is over before the next one starts.
            let _ = acquire.await;
            if cycle % 50 == 0 {
                // Withdrawals go on in the background, and their queue has no end: let it get shorter.
                until_answered(&client, &key).await?;
            }
        }
        until_answered(&client, &key).await?;
        holder.release().await?;
        Ok(())
    })
    .await
}

/// Asks for the lock, which is held, until the store answers. The withdrawals of the key come first, and on a busy machine
/// they can take longer than a call may.
async fn until_answered(client: &Client, key: &Key) -> Verdict {
    let limit = Instant::now() + SLACK;
    loop {
        match client.mutex(key.as_str()).try_acquire().await {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => return Err(Stop::fail("the lock has two holders")),
            Err(error) if error.is_retryable() && Instant::now() < limit => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn clients_leave_nothing(scene: Scene) -> Verdict {
    warm_up(&scene).await?;
    let before = Belongings::now();
    for cycle in 0..Scale::chosen().pick(20, 60, 1_000) {
        let key = scene.key();
        let client = hasty(&scene).await?;
        let guard = client.mutex(key.as_str()).acquire().await?;
        // Closed properly, or just dropped together with what it holds.
        if cycle % 2 == 0 {
            client.close().await?;
        }
        drop((guard, client));
        scene.until_swept(&key).await?;
    }
    Belongings::now().back_to(before).await
}
