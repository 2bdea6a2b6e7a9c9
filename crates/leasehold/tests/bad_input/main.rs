//! Bad input, one suite for all stores: URLs that are none, and the wrong kind of server behind every scheme.
//!
//! Names and numbers are the conformance suite's (`names::`, `options::bad_*`), which runs on every store.
//! Whatever is said meanwhile, in errors and in the log of everything down to `trace`, is searched for a password.
#![allow(clippy::print_stderr, reason = "a test program")]

mod ear;
mod refused;
mod schemes;
mod speeches;
mod strangers;
mod urls;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// What the whole run may need: a declared length of two gigabytes is not believed.
const MEMORY_KIB: u64 = 256 << 10;

fn main() -> ExitCode {
    ear::listen();
    let mut arguments = Arguments::from_args();
    // Most of a trial is waiting for a limit.
    arguments.test_threads.get_or_insert(16);
    let trials = urls::trials().into_iter().chain(refused::trials()).chain(strangers::trials()).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    strangers::go();
    eprintln!("{} lines were logged", ear::lines());
    if let Some(line) = ear::heard() {
        eprintln!("the password was logged: {line}");
        return ExitCode::FAILURE;
    }
    let peak = peak_memory_kib();
    if peak > MEMORY_KIB {
        eprintln!("{peak} KiB of memory were needed, {MEMORY_KIB} are allowed");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// The most that this process ever had.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is told");
    line.trim().trim_end_matches(" kB").parse().expect("it is a number")
}
