//! Many processes on one directory, and what is left of those that are killed.
#![allow(clippy::print_stdout, reason = "a child tells its parent how far it is")]

mod elsewhere;
mod warnings;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use leasehold_conformance::Scale;
use leasehold_core::Client;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::time::timeout;

type Anything<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Processes, increments of each, and kills at each scale.
const SMALL: (usize, u64, usize) = (12, 15, 6);
const FULL: (usize, u64, usize) = (24, 30, 20);
const SOAK: (usize, u64, usize) = (64, 50, 60);

/// How soon a killed holder's lock is held by the next. A busy machine may be slower now and then, but not always.
const FREED: Duration = Duration::from_millis(100);
const KILLS: usize = 10;

/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [_, "increment", directory, counter, name, times] => increment(directory, counter, name, times),
        [_, "hold", directory] => hold(directory, false),
        [_, "hold-and-start", directory] => hold(directory, true),
        [_, case, directory] if elsewhere::CASES.contains(&case) => elsewhere::run(case, directory),
        _ => return judge(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => panic!("{error}"),
    }
}

fn judge() -> ExitCode {
    let mut trials = vec![
        Trial::test("no_increment_is_lost_whoever_is_killed", || contend().map_err(Failed::from)),
        Trial::test("a_killed_holder_frees_the_lock_at_once", || killed("hold").map_err(Failed::from)),
        Trial::test("a_program_that_the_holder_started_does_not_keep_the_lock", || {
            killed("hold-and-start").map_err(Failed::from)
        }),
    ];
    trials.extend(elsewhere::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn url(directory: &str) -> String {
    format!("file://{directory}")
}

fn start(words: &[&str]) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn text(path: &Path) -> Anything<&str> {
    path.to_str().ok_or_else(|| "a path that is text".into())
}

/// How often each process has added to the counter: `name count` in every line.
fn counted(counter: &Path, name: &str) -> u64 {
    let all = fs::read_to_string(counter).unwrap_or_default();
    let mut counts = all.lines().filter_map(|line| line.split_once(' '));
    counts.find(|(other, _)| *other == name).and_then(|(_, count)| count.parse().ok()).unwrap_or(0)
}

/// Processes add to one counter, each a number of times. Some are killed, wherever they are, and started again for what
/// is left of their work.
fn contend() -> Anything {
    let (processes, times, kills) = Scale::chosen().pick(SMALL, FULL, SOAK);
    let directory = tempfile::tempdir()?;
    let (store, counter) = (directory.path().join("locks"), directory.path().join("counter"));
    let run = |process: usize| -> Anything<Child> {
        let name = format!("p{process}");
        let left = (times - counted(&counter, &name)).to_string();
        Ok(start(&["increment", text(&store)?, text(&counter)?, &name, &left])?)
    };
    let mut children: Vec<Child> = (0..processes).map(run).collect::<Anything<_>>()?;
    let done = || (0..processes).map(|process| counted(&counter, &format!("p{process}"))).sum::<u64>();
    for kill in 0..kills {
        let end = Instant::now() + LIMIT;
        // One after another, while the work goes on.
        let enough = processes as u64 * times * kill as u64 / (kills as u64 + 1);
        while done() < enough {
            assert!(Instant::now() < end, "the work does not go on: {} of {enough}", done());
            std::thread::sleep(Duration::from_millis(2));
        }
        let victim = kill * 7 % processes;
        children[victim].kill()?;
        children[victim].wait()?;
        children[victim] = run(victim)?;
    }
    for child in children {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
    }
    for process in 0..processes {
        let name = format!("p{process}");
        let count = counted(&counter, &name);
        if count != times {
            return Err(format!("{name} added {count} times, not {times}").into());
        }
    }
    let left: Vec<_> = fs::read_dir(store.join("keys"))?.collect();
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}").into()) }
}

#[tokio::main(flavor = "current_thread")]
async fn increment(directory: &str, counter: &str, name: &str, times: &str) -> Anything {
    let client = Client::new(leasehold_file::file(&url(directory))?).await?;
    let counter = Path::new(counter);
    for _ in 0..times.parse()? {
        let guard = client.mutex("counter").acquire().await?;
        let all = fs::read_to_string(counter).unwrap_or_default();
        let mut lines: Vec<String> = all.lines().map(str::to_owned).collect();
        let count = counted(counter, name) + 1;
        lines.retain(|line| !line.starts_with(&format!("{name} ")));
        lines.push(format!("{name} {count}\n"));
        tokio::task::yield_now().await;
        // Killed or not, it has happened or it has not.
        let new = counter.with_extension(name);
        fs::write(&new, lines.join("\n"))?;
        fs::rename(&new, counter)?;
        guard.release().await?;
    }
    client.close().await?;
    Ok(())
}

/// Holds the lock until it is killed.
#[tokio::main(flavor = "current_thread")]
async fn hold(directory: &str, starts: bool) -> Anything {
    let client = Client::new(leasehold_file::file(&url(directory))?).await?;
    let _guard = client.mutex("lock").acquire().await?;
    if starts {
        // It outlives its starter for a while, with everything that it inherited.
        let quiet = Stdio::null;
        Command::new("sleep").arg("5").stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn()?;
    }
    println!("held");
    std::future::pending().await
}

/// Whoever waits has the lock soon after its holder was killed.
#[tokio::main]
async fn killed(word: &str) -> Anything {
    let directory = tempfile::tempdir()?;
    let best = freed(word, text(directory.path())?, KILLS).await?;
    println!("{word}: freed after {best:?}");
    if best <= FREED { Ok(()) } else { Err(format!("freed after {best:?} at best").into()) }
}

/// How soon whoever waits has the lock after its holder was killed, at best.
async fn freed(word: &str, store: &str, kills: usize) -> Anything<Duration> {
    let client = Client::new(leasehold_file::file(&url(store))?).await?;
    let mut best = Duration::MAX;
    for _ in 0..kills {
        let mut child = start(&[word, store])?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("a child with output")?).read_line(&mut line)?;
        assert_eq!(line, "held\n");
        let waiter = client.clone();
        let next = tokio::spawn(async move { waiter.mutex("lock").acquire().await });
        until_waiting(&client, 1).await?;
        let killed = Instant::now();
        child.kill()?;
        let guard = timeout(LIMIT, next).await???;
        best = best.min(killed.elapsed());
        child.wait()?;
        guard.release().await?;
    }
    Ok(best)
}

/// Waits until this many wait for the lock.
async fn until_waiting(client: &Client, count: usize) -> Anything {
    let queued = async {
        while client.inspect("lock").await?.is_none_or(|lock| lock.waiters.len() < count) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, leasehold_core::Error>(())
    };
    Ok(timeout(LIMIT, queued).await??)
}
