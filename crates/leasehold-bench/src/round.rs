//! One round: many tasks that acquire and release for a while, counted and timed.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::Barrier;
use tokio::task::{JoinSet, yield_now};

use crate::subject::{Outcome, Subject};

/// Every how many pairs one is timed: reading the clock twice costs as much as an uncontended
/// `tokio::sync::Mutex`, so timing each would flatter us. A prime, so that it beats with nothing.
const SAMPLED: u64 = 17;

/// The longest latency that is told apart, in nanoseconds.
const LONGEST: u64 = 600_000_000_000;

/// Who contends for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// So many tasks, each with a key of its own.
    Apart(usize),
    /// So many tasks, all on one key; whoever holds it lets the others run once, so that they queue.
    Together(usize),
    /// The same, and whoever holds it takes a millisecond.
    Working(usize),
}

impl Load {
    /// How many tasks there are.
    pub fn tasks(self) -> usize {
        let (Self::Apart(tasks) | Self::Together(tasks) | Self::Working(tasks)) = self;
        tasks
    }
}

/// What a round found.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Acquire and release, both done.
    pub pairs: u64,
    /// From the first task's start to the last one's end.
    pub took: Duration,
    /// Nanoseconds from asking to released, of every 17th pair; of every pair where tasks wait for each other.
    pub latency: Histogram<u64>,
}

impl Sample {
    /// The rate of the round.
    pub fn per_second(&self) -> f64 {
        self.pairs as f64 / self.took.as_secs_f64()
    }
}

/// Lets the subject run under `load` for about `length`.
///
/// # Errors
/// The first error of any task; the others stop then.
pub async fn round(subject: &impl Subject, load: Load, length: Duration) -> Outcome<Sample> {
    let (stop, start) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(load.tasks() + 1)));
    let mut tasks = JoinSet::new();
    for number in 0..load.tasks() {
        tasks.spawn(worker(subject.clone(), load, number, start.clone(), stop.clone()));
    }
    start.wait().await;
    let began = Instant::now();
    let ends = tokio::time::sleep(length);
    tokio::pin!(ends);
    let (mut pairs, mut latency) = (0, blank());
    loop {
        tokio::select! {
            () = &mut ends, if !stop.load(Ordering::Relaxed) => stop.store(true, Ordering::Relaxed),
            done = tasks.join_next() => match done {
                None => break,
                Some(done) => {
                    let (count, timed) = done??;
                    pairs += count;
                    latency.add(timed)?;
                }
            }
        }
    }
    Ok(Sample { pairs, took: began.elapsed(), latency })
}

async fn worker(
    subject: impl Subject,
    load: Load,
    number: usize,
    start: Arc<Barrier>,
    stop: Arc<AtomicBool>,
) -> Outcome<(u64, Histogram<u64>)> {
    let name = match load {
        Load::Apart(_) => format!("bench/task-{number}"),
        Load::Together(_) | Load::Working(_) => "bench/all".to_owned(),
    };
    let (mut pairs, mut latency) = (0_u64, blank());
    start.wait().await;
    while !stop.load(Ordering::Relaxed) {
        // Who waits has time to read the clock, and the longest wait is to be known.
        let is_timed = !matches!(load, Load::Apart(_)) || pairs.is_multiple_of(SAMPLED);
        let asked = is_timed.then(Instant::now);
        pair(&subject, &name, load).await?;
        if let Some(asked) = asked {
            latency.saturating_record(u64::try_from(asked.elapsed().as_nanos())?);
        }
        pairs += 1;
        // Uncontended pairs may never have to wait: without this one task would run to its end alone.
        if load.tasks() > 1 {
            yield_now().await;
        }
    }
    Ok((pairs, latency))
}

async fn pair(subject: &impl Subject, name: &str, load: Load) -> Outcome<()> {
    match load {
        Load::Apart(_) => subject.pair(name, std::future::ready(())).await,
        Load::Together(_) => subject.pair(name, yield_now()).await,
        Load::Working(_) => {
            // Not the sleep itself: it would count from here.
            let work = async { tokio::time::sleep(Duration::from_millis(1)).await };
            subject.pair(name, work).await
        }
    }
}

/// Two significant digits: small enough to give one to each of 256 tasks without emptying the caches.
pub(crate) fn blank() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are in order")
}

/// A future that a subject awaits while it holds the lock.
pub trait Inside: Future<Output = ()> + Send {}

impl<F: Future<Output = ()> + Send> Inside for F {}
