//! What is measured, in which order, and how rounds become figures.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::round::{Load, Sample, blank, round};
use crate::subject::{Outcome, Subject};

/// How much is measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Effort {
    /// Rounds per subject and load.
    pub rounds: usize,
    /// How long one round lasts.
    pub round: Duration,
}

impl Effort {
    /// Enough to compare: about two minutes for everything.
    pub const FULL: Self = Self { rounds: 7, round: Duration::from_secs(1) };
    /// Enough to see that everything runs: a few seconds for everything.
    pub const QUICK: Self = Self { rounds: 3, round: Duration::from_millis(50) };
}

/// A subject's figures under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What was measured.
    pub subject: &'static str,
    /// The best round, in pairs per second.
    pub best: f64,
    /// The median round, in pairs per second.
    pub median: f64,
    /// The median latency of all rounds, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile of the latency of all rounds, in nanoseconds.
    pub p99_ns: u64,
    /// The longest latency that was seen, in nanoseconds.
    pub longest_ns: u64,
    /// Every round, in the order in which they ran, in pairs per second.
    pub rounds: Vec<f64>,
}

/// Us and our peer under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Result {
    /// The store.
    pub store: &'static str,
    /// How many tasks, and on how many keys.
    pub load: String,
    /// Leasehold.
    pub ours: Figures,
    /// What it is held against.
    pub peer: Figures,
    /// Our median rate as a multiple of the peer's.
    pub ratio: f64,
    /// Our best rate as a multiple of the peer's.
    pub ratio_of_best: f64,
    /// What the ratio should be at least, where we set ourselves a goal.
    pub goal: Option<f64>,
}

impl Result {
    /// The same, with a goal for the ratio.
    #[must_use]
    pub fn goal(self, at_least: f64) -> Self {
        Self { goal: Some(at_least), ..self }
    }
}

/// Measures both in turns, so that whatever else the machine does hits them alike.
///
/// # Errors
/// The first error of either.
pub async fn contest(
    store: &'static str,
    load: Load,
    effort: Effort,
    (our_name, ours): (&'static str, impl Subject),
    (peer_name, peer): (&'static str, impl Subject),
) -> Outcome<Result> {
    // Connections, statements and pages are warm before anything counts.
    let warm_up = effort.round / 5;
    round(&ours, load, warm_up).await?;
    round(&peer, load, warm_up).await?;
    let (mut our_rounds, mut peer_rounds) = (Vec::new(), Vec::new());
    for turn in 0..effort.rounds {
        // Each goes first every other time.
        if turn % 2 == 0 {
            our_rounds.push(round(&ours, load, effort.round).await?);
        }
        peer_rounds.push(round(&peer, load, effort.round).await?);
        if turn % 2 == 1 {
            our_rounds.push(round(&ours, load, effort.round).await?);
        }
    }
    let (ours, peer) = (figures(our_name, &our_rounds)?, figures(peer_name, &peer_rounds)?);
    let (ratio, ratio_of_best) = (ours.median / peer.median, ours.best / peer.best);
    let load = match load {
        Load::Apart(1) => "1 task".to_owned(),
        Load::Apart(tasks) => format!("{tasks} tasks"),
        Load::Together(tasks) => format!("{tasks} on one key"),
        Load::Working(tasks) => format!("{tasks} on one key, 1 ms"),
    };
    Ok(Result { store, load, ours, peer, ratio, ratio_of_best, goal: None })
}

fn figures(subject: &'static str, samples: &[Sample]) -> Outcome<Figures> {
    let rounds: Vec<f64> = samples.iter().map(Sample::per_second).collect();
    let mut sorted = rounds.clone();
    sorted.sort_by(f64::total_cmp);
    let mut latency: Histogram<u64> = blank();
    for sample in samples {
        latency.add(&sample.latency)?;
    }
    Ok(Figures {
        subject,
        best: sorted.last().copied().unwrap_or(f64::NAN),
        median: sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN),
        p50_ns: latency.value_at_quantile(0.5),
        p99_ns: latency.value_at_quantile(0.99),
        longest_ns: latency.max(),
        rounds,
    })
}
