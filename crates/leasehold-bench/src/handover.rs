//! From a release to the next holder's hands.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::subject::{Outcome, Subject};

/// How long who waits and who holds rest before a release. Who waits must be listening by then, which nobody outside can
/// see, and be done with the answer that said so. Threads that sleep are woken more slowly than those that have just
/// worked, so whatever it is measured against gets the same [`rest`].
const REST: Duration = Duration::from_millis(5);

/// The longest that is told apart, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// How long something took, each time.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"))
    }
}

impl Times {
    /// Once more.
    pub fn add(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(LONGEST));
    }

    /// In nanoseconds.
    pub fn quantile(&self, q: f64) -> u64 {
        self.0.value_at_quantile(q)
    }
}

impl Serialize for Times {
    /// Nanoseconds.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("p50", self.quantile(0.5)), ("p99", self.quantile(0.99))])
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {} us, p99 {} us", self.quantile(0.5) / 1000, self.quantile(0.99) / 1000)
    }
}

/// Waits as long as both sides do before a release.
pub async fn rest() {
    tokio::time::sleep(REST).await;
}

/// One that has asked for the lock, on a task of its own.
struct Turn {
    granted: oneshot::Receiver<Instant>,
    may_go: oneshot::Sender<()>,
    released: oneshot::Receiver<Instant>,
    pair: JoinHandle<Outcome<()>>,
}

impl Turn {
    fn take(subject: impl Subject) -> Self {
        let (has_it, granted) = oneshot::channel();
        let (may_go, go) = oneshot::channel();
        let (goes, released) = oneshot::channel();
        // Who listens may have gone, because the other one failed.
        let inside = async move {
            let _ = has_it.send(Instant::now());
            let _ = go.await;
            let _ = goes.send(Instant::now());
        };
        let pair = tokio::spawn(async move { subject.pair("bench/wake", inside).await });
        Self { granted, may_go, released, pair }
    }

    /// When it has the lock.
    async fn granted(&mut self) -> Outcome<Instant> {
        if let Ok(at) = (&mut self.granted).await {
            return Ok(at);
        }
        (&mut self.pair).await??;
        Err("released what it never held".into())
    }
}

/// Two hand one lock to and fro for a while: each asks again as soon as the other has it.
///
/// # Errors
/// The first of either.
pub async fn hand_overs(subjects: [&impl Subject; 2], length: Duration, times: &mut Times) -> Outcome<()> {
    let began = Instant::now();
    let mut holder = Turn::take(subjects[0].clone());
    holder.granted().await?;
    for turn in 1.. {
        let mut next = Turn::take(subjects[turn % 2].clone());
        rest().await;
        let _ = holder.may_go.send(());
        let granted = next.granted().await?;
        times.add(granted - holder.released.await?);
        holder.pair.await??;
        holder = next;
        if began.elapsed() >= length {
            break;
        }
    }
    let _ = holder.may_go.send(());
    holder.pair.await?
}

/// Ours beside the least that it could take.
#[derive(Clone, Debug)]
pub struct Wake {
    /// From a release to a grant.
    pub grants: Times,
    /// The same without us, in several ways.
    pub beside: Vec<Bare>,
}

/// What takes the place of a release and a grant.
#[derive(Clone, Debug)]
pub struct Bare {
    what: &'static str,
    /// What our median should be at most, as a multiple of its median.
    goal: Option<f64>,
    /// How long it took.
    pub times: Times,
}

impl Wake {
    /// Nothing is measured yet. Each is called something, and may be a goal.
    pub fn beside(what: &[(&'static str, Option<f64>)]) -> Self {
        let bare =
            |(what, goal): &(&'static str, Option<f64>)| Bare { what, goal: *goal, times: Times::default() };
        Self { grants: Times::default(), beside: what.iter().map(bare).collect() }
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release to grant: {}", self.grants)?;
        for Bare { what, goal, times } in &self.beside {
            let ratio = self.grants.quantile(0.5) as f64 / times.quantile(0.5) as f64;
            write!(f, "\n{what}: {times}; ours {ratio:.2} x")?;
            if let Some(most) = goal {
                write!(f, ", goal at most {most:.1}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Wake {
    /// Nanoseconds, each by what it is called.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = [("release to grant", &self.grants)].into_iter();
        serializer.collect_map(all.chain(self.beside.iter().map(|bare| (bare.what, &bare.times))))
    }
}
