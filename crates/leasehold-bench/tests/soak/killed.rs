//! Clients that are killed: processes that hold or wait and get SIGKILL.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::Client;

use crate::census::{Census, becomes};
use crate::command::{MARK, processes_marked, run};
use crate::site::{Kind, Site, stir};
use crate::{Found, Outcome};

/// At once.
const TOGETHER: usize = 16;
/// A key that is held for the whole trial, for those who are to die waiting.
const CROWDED: &str = "soak/crowded";

/// Half of them die holding a key that nobody touches again, half waiting in one queue.
pub(crate) fn clients(kind: Kind, count: usize) -> Found {
    let site = Site::new(kind)?;
    site.warm_up()?;
    let before = Census::take()?;
    let mark = format!("{}-{}", std::process::id(), fastrand::u64(..));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = site.connect().await?;
        let held = client.mutex(CROWDED).acquire().await?;

        let (url, next) = (site.url(), AtomicUsize::new(0));
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..TOGETHER)
                    .map(|_| {
                        scope.spawn(|| -> Outcome<()> {
                            loop {
                                let number = next.fetch_add(1, Ordering::Relaxed);
                                if number >= count {
                                    return Ok(());
                                }
                                if number % 2 == 0 {
                                    kill_a_holder(&url, &mark, number)?;
                                } else {
                                    kill_a_waiter(&url, &mark, number, &client, &handle)?;
                                }
                            }
                        })
                    })
                    .collect();
                workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
            })
        })?;

        assert!(held.is_valid(), "the crowd's death cost a bystander its lock");
        held.release().await?;
        becomes("processes", 0, || async { processes_marked(&mark) }).await?;
        becomes("stored rows", 0, || async {
            stir(&client).await?;
            site.rows().await
        })
        .await?;
        client.close().await?;
        drop(client);
        becomes("sessions after close", 0, || site.sessions()).await
    })?;
    drop(runtime);
    before.comes_back()?;
    Ok(format!("{count} killed"))
}

fn start(url: &str, mark: &str, key: &str) -> Outcome<(Child, BufReader<ChildStdout>)> {
    let mut command = run(url, "2s", key, &["hold"]);
    command.env(MARK, mark);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let out = BufReader::new(child.stdout.take().ok_or("stdout was asked for")?);
    Ok((child, out))
}

/// Kills the runner and waits until everything that shared its output is gone: the whole group.
fn kill(mut runner: Child, mut out: BufReader<ChildStdout>) -> Outcome<()> {
    runner.kill()?;
    runner.wait()?;
    let mut rest = String::new();
    while out.read_line(&mut rest)? > 0 {}
    Ok(())
}

fn kill_a_holder(url: &str, mark: &str, number: usize) -> Outcome<()> {
    let (runner, mut out) = start(url, mark, &format!("soak/holder-{number}"))?;
    let mut line = String::new();
    out.read_line(&mut line)?;
    if line != "in\n" {
        return Err(format!("holder {number} said {line:?}").into());
    }
    kill(runner, out)
}

fn kill_a_waiter(
    url: &str,
    mark: &str,
    number: usize,
    client: &Client,
    handle: &tokio::runtime::Handle,
) -> Outcome<()> {
    let (runner, out) = start(url, mark, CROWDED)?;
    let me = format!(":{}", runner.id());
    handle.block_on(becomes(&format!("waiter {number} in the queue"), true, || async {
        let seen = client.inspect(CROWDED).await?.ok_or("nobody holds it")?;
        Ok(seen.waiters.iter().any(|waiter| waiter.label.ends_with(&me)))
    }))?;
    // A moment of its life in the queue, so that some die in the middle of a renewal.
    std::thread::sleep(Duration::from_millis(fastrand::u64(0..50)));
    kill(runner, out)
}
