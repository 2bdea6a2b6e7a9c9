//! The big proofs: after very many cycles, cancellations and deaths nothing is left behind, and a counter
//! that only the lock protects is exact.
//!
//! Small by default, in full with `LEASEHOLD_SOAK=1` (use `--release`, and some minutes). One trial at a
//! time, on the main thread, because they count the threads and descriptors of this process. Those with servers are
//! only run in full, or when they are asked for (`-- --ignored`).

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
use libtest_mimic::{Arguments, Failed, Trial};
use site::Kind;

/// What a trial found, in words.
type Found = Outcome<String>;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Scale {
    cycles: usize,
    cancelled: usize,
    killed: usize,
    processes: usize,
    increments: usize,
}

impl Scale {
    fn is_full() -> bool {
        std::env::var_os("LEASEHOLD_SOAK").is_some_and(|value| value != "0")
    }

    fn chosen() -> Self {
        if Self::is_full() {
            Self { cycles: 100_000, cancelled: 10_000, killed: 1_000, processes: 64, increments: 50 }
        } else {
            Self { cycles: 2_000, cancelled: 500, killed: 16, processes: 8, increments: 5 }
        }
    }
}

fn trial(name: &str, scale: Scale, check: impl FnOnce(Scale) -> Found + Send + 'static) -> Trial {
    let full_name = name.to_owned();
    Trial::test(name, move || {
        let began = Instant::now();
        let found = check(scale).map_err(|error| Failed::from(error.to_string()))?;
        Ok(writeln!(std::io::stdout(), "{full_name}: {found}, {:.1?}", began.elapsed())?)
    })
}

/// The trials of a store that needs a server.
fn served(name: &str, kind: Kind, scale: Scale) -> [Trial; 3] {
    // A round trip costs more than a call into a library: a tenth of everything.
    let scale = Scale {
        cycles: scale.cycles / 10,
        cancelled: scale.cancelled / 10,
        killed: scale.killed.div_ceil(5),
        ..scale
    };
    let trial = |law: &str, check: fn(Kind, Scale) -> Found| {
        let trial = trial(&format!("{name}::{law}"), scale, move |scale| check(kind, scale));
        trial.with_ignored_flag(!Scale::is_full())
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
    let mut trials = vec![
        trial("memory::cycles_leave_nothing_behind", scale, |s| inside::cycles(Kind::Memory, s.cycles)),
        trial("sqlite::cycles_leave_nothing_behind", scale, |s| inside::cycles(Kind::Sqlite, s.cycles)),
        trial("memory::cancelled_acquires_leave_nothing_behind", scale, |s| {
            inside::cancelled(Kind::Memory, s.cancelled)
        }),
        trial("sqlite::cancelled_acquires_leave_nothing_behind", scale, |s| {
            inside::cancelled(Kind::Sqlite, s.cancelled)
        }),
        trial("sqlite::killed_clients_leave_nothing_behind", scale, |s| {
            killed::clients(Kind::Sqlite, s.killed)
        }),
        trial("sqlite::an_unprotected_counter_is_exact", scale, |s| {
            counter::exact(s.processes, s.increments)
        }),
        trial("sqlite::a_counter_equals_its_successes_when_runners_are_killed", scale, |s| {
            counter::with_kills(s.processes, s.increments)
        }),
    ];
    for (name, start) in served::SERVERS {
        trials.extend(served(name, Kind::Served(*start), scale));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
