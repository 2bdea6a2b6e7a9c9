//! From a release to the next holder's hands.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold_core::{Client, Error};
use serde::Serialize;

use crate::subject::Outcome;

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

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {} us, p99 {} us", self.quantile(0.5) / 1000, self.quantile(0.99) / 1000)
    }
}

/// Two clients hand one lock to and fro for a while: each asks again as soon as the other has it. `settle` is how long who
/// waits may need, after it is in the queue, until it would hear of its turn.
///
/// # Errors
/// The first of either client.
pub async fn hand_overs(
    clients: [&Client; 2],
    length: Duration,
    settle: Duration,
    times: &mut Times,
) -> Outcome<()> {
    const NAME: &str = "bench/wake";
    let [mut holder, mut next] = clients;
    let began = Instant::now();
    let mut guard = holder.mutex(NAME).acquire().await?;
    while began.elapsed() < length {
        let lock = next.mutex(NAME);
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().await?;
            Ok::<_, Error>((guard, Instant::now()))
        });
        while holder.inspect(NAME).await?.is_none_or(|seen| seen.waiters.is_empty()) {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(settle).await;
        let released = Instant::now();
        guard.release().await?;
        let (granted, at) = waiting.await??;
        times.add(at - released);
        guard = granted;
        std::mem::swap(&mut next, &mut holder);
    }
    guard.release().await?;
    Ok(())
}

/// Ours beside the least that it could take.
#[derive(Clone, Debug, Default)]
pub struct Wake {
    /// From a release to a grant.
    pub grants: Times,
    /// The same without us.
    pub bare: Times,
}

impl Wake {
    /// For people: what the bare one is, and what our median should be at most, as a multiple of its median.
    pub fn line(&self, bare: &str, goal: Option<f64>) -> String {
        let ratio = self.grants.quantile(0.5) as f64 / self.bare.quantile(0.5) as f64;
        let goal = goal.map(|most| format!(", goal at most {most:.1}")).unwrap_or_default();
        format!("release to grant: {}; {bare}: {}; p50 {ratio:.2} x{goal}", self.grants, self.bare)
    }

    /// For machines, in nanoseconds.
    pub fn json(&self) -> Quantiles {
        let [grant, bare] =
            [&self.grants, &self.bare].map(|times| (times.quantile(0.5), times.quantile(0.99)));
        Quantiles { grant_p50: grant.0, grant_p99: grant.1, bare_p50: bare.0, bare_p99: bare.1 }
    }
}

/// Nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Quantiles {
    pub grant_p50: u64,
    pub grant_p99: u64,
    pub bare_p50: u64,
    pub bare_p99: u64,
}
