//! Runs many schedules on all cores, or one of them with its story.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

#[cfg(feature = "mutants")]
mod findings;
mod many_quorums;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use leasehold_simulation::{Coverage, Leases, Rates, Setup, Trouble, Verdict, run};

/// Runs the client runtime of Leasehold under seeded faults.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many schedules to run. Default: 50,000, or with --check as many as the time limit allows.
    #[arg(long)]
    schedules: Option<u64>,
    /// Stops after so many seconds. Default with --check and without --schedules: 120.
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// The first seed; without --schedules the only one.
    #[arg(long)]
    seed: Option<u64>,
    /// Tells the story of the schedule; tries the seed up to 50 times to see it fail.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// How many events a schedule has.
    #[arg(long, default_value_t = 200)]
    events: u32,
    /// Clocks at 0.9 and 1.1: must find violations.
    #[arg(long)]
    rates_too_far_apart: bool,
    /// Only this kind of store: per-claim or sessions.
    #[arg(long)]
    store: Option<String>,
    /// Leaves a class of trouble out, to look behind a known bug.
    #[arg(long)]
    without: Vec<String>,
    /// The store believes forged promotions: must find violations.
    #[arg(long)]
    believe_forgeries: bool,
    /// Reports like a test, and looks whether clocks that are too far apart are reported: what CI runs.
    #[arg(long, conflicts_with_all = ["trace", "rates_too_far_apart"])]
    check: bool,
    /// Goes on after a violation, and counts them.
    #[arg(long)]
    keep_going: bool,
    /// Runs the schedules of the quorum instead.
    #[arg(long)]
    quorum: bool,
    /// Plants the findings of the attack one by one, and prints the first seed that finds each.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    findings: bool,
    /// How many threads. Default: one per core.
    #[arg(long)]
    threads: Option<usize>,
}

impl Arguments {
    fn setup(&self) -> Result<Setup, String> {
        let rates = if self.rates_too_far_apart { Rates::TooFarApart } else { Rates::Allowed };
        let leases = match self.store.as_deref() {
            None => None,
            Some("per-claim") => Some(Leases::PerClaim),
            Some("sessions") => Some(Leases::Sessions),
            Some(other) => return Err(format!("no such store: {other}; use per-claim or sessions")),
        };
        let find = |word: &String| {
            let found = Trouble::ALL.iter().find(|(name, _)| name == word).map(|(_, trouble)| *trouble);
            found.ok_or_else(|| {
                format!("no such trouble: {word}; use one of {:?}", Trouble::ALL.map(|(name, _)| name))
            })
        };
        let without = self.without.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let believes_forgeries = self.believe_forgeries;
        Ok(Setup { events: self.events, rates, leases, without, believes_forgeries })
    }

    fn schedules(&self) -> u64 {
        let most = if self.check || self.time_limit.is_some() { u64::MAX / 2 } else { 50_000 };
        self.schedules.unwrap_or(most)
    }

    fn time_limit(&self) -> Duration {
        let default = if self.check && self.schedules.is_none() { 120 } else { u64::MAX };
        Duration::from_secs(self.time_limit.unwrap_or(default))
    }

    /// The command that shows this schedule again.
    fn replay(&self, seed: u64) -> String {
        let mut command = format!(
            "cargo run -p leasehold-simulation --release -- --seed {seed} --trace --events {}",
            self.events
        );
        if self.rates_too_far_apart {
            command.push_str(" --rates-too-far-apart");
        }
        if let Some(store) = &self.store {
            command.push_str(&format!(" --store {store}"));
        }
        self.without.iter().for_each(|word| command.push_str(&format!(" --without {word}")));
        if self.believe_forgeries {
            command.push_str(" --believe-forgeries");
        }
        command
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "mutants")]
    if arguments.findings {
        return if findings::print_all() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if arguments.quorum {
        let count = if arguments.trace { 1 } else { arguments.schedules() };
        let (first, limit) = (arguments.seed.unwrap_or(1), arguments.time_limit());
        return many_quorums::run(first, count, limit, arguments.trace).exit_code();
    }
    let setup = match arguments.setup() {
        Ok(setup) => setup,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    match arguments.seed.filter(|_| arguments.trace) {
        Some(seed) => tell(&setup, seed),
        None if arguments.check => check(&arguments, &setup),
        None => run_many(&arguments, &setup, arguments.time_limit()).exit_code(),
    }
}

/// How many schedules with clocks that are too far apart may pass before one is reported.
const TOO_FAR_APART: u64 = 500;

/// How many schedules with a store that believes forged promotions may pass before one is reported.
const FORGED: u64 = 500;

/// How many schedules are run for each schedule of a quorum, which takes longer.
const PER_QUORUM: u64 = 20;

/// What many schedules showed.
#[derive(Debug)]
struct Found {
    /// No law was broken.
    is_clean: bool,
    /// Everything that can happen did.
    is_complete: bool,
}

impl Found {
    fn exit_code(&self) -> ExitCode {
        if self.is_clean && self.is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Prints what a test harness would, for whoever counts tests.
fn check(arguments: &Arguments, setup: &Setup) -> ExitCode {
    let for_quorums = arguments.time_limit() / 6;
    let found = run_many(arguments, setup, arguments.time_limit() - for_quorums);
    let quorums = many_quorums::run(1, arguments.schedules() / PER_QUORUM, for_quorums, false);
    let apart = Setup { rates: Rates::TooFarApart, ..setup.clone() };
    let is_reported = (1..=TOO_FAR_APART)
        .filter_map(|seed| run(&apart, seed).violation)
        .any(|violation| violation.contains("believe"));
    let believing = Setup { believes_forgeries: true, ..setup.clone() };
    let is_found = (1..=FORGED).any(|seed| run(&believing, seed).is_false_belief());
    let tests = [
        ("no_schedule_breaks_a_law", found.is_clean),
        ("everything_happens_in_some_schedule", found.is_complete),
        ("clocks_too_far_apart_are_reported", is_reported),
        ("a_believed_forgery_is_found", is_found),
        ("no_quorum_schedule_breaks_a_law", quorums.is_clean),
        ("everything_happens_in_some_quorum_schedule", quorums.is_complete),
    ];
    for (name, is_fine) in tests {
        println!("test simulation::{name} ... {}", if is_fine { "ok" } else { "FAILED" });
    }
    let passed = tests.iter().filter(|(_, is_fine)| *is_fine).count();
    let failed = tests.len() - passed;
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed until it fails, and tells its story.
fn tell(setup: &Setup, seed: u64) -> ExitCode {
    let mut last = run(setup, seed);
    for _ in 1..50 {
        if last.violation.is_some() {
            break;
        }
        last = run(setup, seed);
    }
    last.story.iter().for_each(|line| println!("{line}"));
    match last.violation {
        Some(violation) => {
            println!("VIOLATION {violation}");
            ExitCode::FAILURE
        }
        None => {
            println!("no violation");
            ExitCode::SUCCESS
        }
    }
}

fn run_many(arguments: &Arguments, setup: &Setup, time_limit: Duration) -> Found {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let first = arguments.seed.unwrap_or(1);
    let next = AtomicU64::new(first);
    let end = first + arguments.schedules();
    let total = Mutex::new((Coverage::default(), Vec::<Verdict>::new()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.unwrap_or(cores) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || start.elapsed() >= time_limit {
                        return;
                    }
                    let verdict = run(setup, seed);
                    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    total.0.add(&verdict.coverage);
                    if let Some(violation) = &verdict.violation {
                        println!("VIOLATION in seed {seed}: {violation}\n  {}", arguments.replay(seed));
                        total.1.push(verdict);
                        if !arguments.keep_going {
                            next.store(end, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (coverage, failed) = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seconds = start.elapsed().as_secs_f64();
    print!("{coverage}");
    let (schedules, events) = (coverage.schedules as f64 / seconds, coverage.events as f64 / seconds);
    println!("{seconds:.1} s, {schedules:.0} schedules/s, {events:.0} events/s, {} violations", failed.len());
    if let Some(verdict) = failed.first().filter(|_| !arguments.keep_going) {
        println!("the story of seed {}:", verdict.seed);
        verdict.story.iter().for_each(|line| println!("{line}"));
    }
    let missing = coverage.missing(setup);
    if !missing.is_empty() {
        println!("never happened: {}", missing.join(", "));
    }
    Found { is_clean: failed.is_empty(), is_complete: missing.is_empty() }
}
