//! The big proofs: after very many cycles, cancellations and deaths nothing is left behind, and a counter
//! that only the lock protects is exact.
//!
//! Small by default. `LEASEHOLD_FULL=1` asks for what the full tier has time for, and `LEASEHOLD_SOAK=1` for the
//! whole soak (use `--release`; it takes minutes). One trial runs at a time, on the main thread, because
//! trials count the threads and descriptors of this process. The small scale ignores the trials with servers,
//! unless they are asked for (`-- --ignored`).

#[path = "soak/census.rs"]
mod census;
#[path = "soak/command.rs"]
mod command;
#[path = "soak/counter.rs"]
mod counter;
#[path = "soak/inside.rs"]
mod inside;
#[path = "soak/killed.rs"]
mod killed;
#[path = "soak/served.rs"]
mod served;
#[path = "soak/site.rs"]
mod site;

use std::io::Write;
use std::time::Instant;

use leasehold_bench::subject::Outcome;
use leasehold_conformance::Scale;
use libtest_mimic::{Arguments, Failed, Trial};
use site::Kind;

/// What a trial found, in words.
type Found = Outcome<String>;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    cycles: usize,
    cancelled: usize,
    killed: usize,
    processes: usize,
    increments: usize,
}

impl Amounts {
    fn local(scale: Scale) -> Self {
        let small = Self { cycles: 2_000, cancelled: 500, killed: 16, processes: 8, increments: 5 };
        let full = Self { cycles: 20_000, cancelled: 2_000, killed: 50, processes: 16, increments: 15 };
        let soak = Self { cycles: 100_000, cancelled: 10_000, killed: 1_000, processes: 64, increments: 50 };
        scale.pick(small, full, soak)
    }

    /// For a store on a server, where a call is a round trip.
    fn served(scale: Scale) -> Self {
        let small = Self { cycles: 200, cancelled: 50, killed: 4, ..Self::local(scale) };
        let full = Self { cycles: 3_000, cancelled: 300, killed: 50, ..small };
        let soak = Self { cycles: 10_000, cancelled: 1_000, killed: 200, ..small };
        scale.pick(small, full, soak)
    }
}

fn trial(name: &str, amounts: Amounts, check: impl FnOnce(Amounts) -> Found + Send + 'static) -> Trial {
    let full_name = name.to_owned();
    Trial::test(name, move || {
        let began = Instant::now();
        let found = check(amounts).map_err(|error| Failed::from(error.to_string()))?;
        Ok(writeln!(std::io::stdout(), "{full_name}: {found}, {:.1?}", began.elapsed())?)
    })
}

/// The trials of a store that needs a server.
fn served(name: &str, kind: Kind, scale: Scale) -> [Trial; 3] {
    let trial = |law: &str, check: fn(Kind, Amounts) -> Found| {
        let name = format!("{name}::{law}");
        let trial = trial(&name, Amounts::served(scale), move |amounts| check(kind, amounts));
        trial.with_ignored_flag(scale < Scale::Full)
    };
    [
        trial("cycles_leave_nothing_behind", |kind, s| inside::cycles(kind, s.cycles)),
        trial("cancelled_acquires_leave_nothing_behind", |kind, s| inside::cancelled(kind, s.cancelled)),
        trial("killed_clients_leave_nothing_behind", |kind, s| killed::clients(kind, s.killed)),
    ]
}

fn main() {
    // The first runtime of a process opens a signal pipe that stays: here, so that no trial is blamed.
    drop(tokio::runtime::Runtime::new());
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let scale = Scale::chosen();
    let amounts = Amounts::local(scale);
    let mut trials = vec![
        trial("memory::cycles_leave_nothing_behind", amounts, |s| inside::cycles(Kind::Memory, s.cycles)),
        trial("sqlite::cycles_leave_nothing_behind", amounts, |s| inside::cycles(Kind::Sqlite, s.cycles)),
        trial("memory::cancelled_acquires_leave_nothing_behind", amounts, |s| {
            inside::cancelled(Kind::Memory, s.cancelled)
        }),
        trial("sqlite::cancelled_acquires_leave_nothing_behind", amounts, |s| {
            inside::cancelled(Kind::Sqlite, s.cancelled)
        }),
        trial("sqlite::killed_clients_leave_nothing_behind", amounts, |s| {
            killed::clients(Kind::Sqlite, s.killed)
        }),
        trial("sqlite::an_unprotected_counter_is_exact", amounts, |s| {
            counter::exact(s.processes, s.increments)
        }),
        trial("sqlite::a_counter_equals_its_successes_when_runners_are_killed", amounts, |s| {
            counter::with_kills(s.processes, s.increments)
        }),
    ];
    for (name, start) in served::SERVERS {
        trials.extend(served(name, Kind::Served(*start), scale));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
