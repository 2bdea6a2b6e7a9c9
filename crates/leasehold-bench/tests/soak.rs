//! The big proofs: after very many cycles, cancellations and deaths nothing is left behind, and a counter
//! that only the lock protects is exact.
//!
//! Small by default, in full with `LEASEHOLD_SOAK=1` (use `--release`, and some minutes). One trial at a
//! time, on the main thread, because they count the threads and descriptors of this process.

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
    fn chosen() -> Self {
        if std::env::var_os("LEASEHOLD_SOAK").is_some_and(|value| value != "0") {
            Self { cycles: 100_000, cancelled: 10_000, killed: 1_000, processes: 64, increments: 50 }
        } else {
            Self { cycles: 2_000, cancelled: 500, killed: 16, processes: 8, increments: 5 }
        }
    }
}

fn trial(name: &str, scale: Scale, check: fn(Scale) -> Found) -> Trial {
    let full_name = name.to_owned();
    Trial::test(name, move || {
        let began = Instant::now();
        let found = check(scale).map_err(|error| Failed::from(error.to_string()))?;
        Ok(writeln!(std::io::stdout(), "{full_name}: {found}, {:.1?}", began.elapsed())?)
    })
}

fn main() {
    // The first runtime of a process opens a signal pipe that stays: here, so that no trial is blamed.
    drop(tokio::runtime::Runtime::new());
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let scale = Scale::chosen();
    let trials = vec![
        trial("memory::cycles_leave_nothing_behind", scale, |s| inside::cycles(Kind::Memory, s.cycles)),
        trial("sqlite::cycles_leave_nothing_behind", scale, |s| inside::cycles(Kind::Sqlite, s.cycles)),
        trial("memory::cancelled_acquires_leave_nothing_behind", scale, |s| {
            inside::cancelled(Kind::Memory, s.cancelled)
        }),
        trial("sqlite::cancelled_acquires_leave_nothing_behind", scale, |s| {
            inside::cancelled(Kind::Sqlite, s.cancelled)
        }),
        trial("sqlite::killed_clients_leave_nothing_behind", scale, |s| killed::clients(s.killed)),
        trial("sqlite::an_unprotected_counter_is_exact", scale, |s| {
            counter::exact(s.processes, s.increments)
        }),
        trial("sqlite::a_counter_equals_its_successes_when_runners_are_killed", scale, |s| {
            counter::with_kills(s.processes, s.increments)
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
