//! Runs many schedules of the quorum, on all cores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_simulation::{QuorumCoverage, QuorumVerdict, run_quorum};

use super::Found;

/// In so many schedules every class of trouble happens.
const ENOUGH: u64 = 100;

/// Runs `count` schedules from this seed on, or as many as the time limit allows. Tells the story of the first that
/// breaks a law; with `trace` that of the last in any case.
pub(crate) fn run(first: u64, count: u64, time_limit: Duration, trace: bool) -> Found {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, end) = (AtomicU64::new(first), first.saturating_add(count));
    let total = Mutex::new((QuorumCoverage::default(), None::<QuorumVerdict>));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || start.elapsed() >= time_limit {
                        return;
                    }
                    let verdict = run_quorum(seed);
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.0.add(&verdict.coverage);
                    if let Some(violation) = &verdict.violation {
                        let after = start.elapsed().as_secs_f64();
                        println!("VIOLATION in quorum seed {seed} after {after:.2} s: {violation}");
                        next.store(end, Ordering::Relaxed);
                    }
                    if verdict.violation.is_some() || (trace && total.1.is_none()) {
                        total.1 = Some(verdict);
                    }
                }
            });
        }
    });
    let (coverage, told) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let is_clean = told.as_ref().is_none_or(|verdict| verdict.violation.is_none());
    if let Some(verdict) = told {
        println!("the story of quorum seed {}:", verdict.seed);
        verdict.story.iter().for_each(|line| println!("{line}"));
    }
    let seconds = start.elapsed().as_secs_f64();
    print!("{coverage}");
    println!("{seconds:.1} s, {:.0} quorum schedules/s", coverage.schedules as f64 / seconds);
    // A violation ends the run early.
    let is_long = is_clean && coverage.schedules >= ENOUGH;
    let missing = if is_long { coverage.missing() } else { Vec::new() };
    if !missing.is_empty() {
        println!("never happened: {}", missing.join(", "));
    }
    Found { is_clean, is_complete: missing.is_empty() }
}
