//! Running test programs side by side, with progress.
//!
//! Most tests wait: for a lease to end, for a server to come back. One after the other they would leave the machine
//! idle most of the time.

use std::collections::VecDeque;
use std::fs;
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cargo;
use crate::process::{self, End};
use crate::programs::Program;
use crate::tally::Tally;

/// How many programs run at a time.
const LANES: usize = 3;
/// How often the programs that are still running are named.
const PROGRESS: Duration = Duration::from_secs(60);

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) program: Program,
    pub(crate) output: String,
    pub(crate) tally: Tally,
    pub(crate) seconds: u64,
    /// It was killed at the time limit.
    pub(crate) is_timeout: bool,
    /// How the process ended, for example `exit status: 101` or `signal: 9 (SIGKILL)`.
    status: String,
}

impl Outcome {
    /// How the process ended, and the last lines of its output.
    pub(crate) fn ending(&self) -> String {
        const LINES: usize = 12;
        let lines: Vec<_> = self.output.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        format!("{}\n    {}", self.status, last.join("\n    "))
    }
}

/// Runs the programs and hands each outcome to `report`, one at a time.
pub(crate) fn run(
    programs: Vec<Program>,
    prepare: impl Fn(&mut Command) + Sync,
    report: &mut (impl FnMut(Outcome) + Send),
) {
    let total = programs.len();
    let board = Board::default();
    let (queue, report) = (Mutex::new(VecDeque::from(programs)), Mutex::new((0, report)));
    let lane = || {
        while let Some(program) = { locked(&queue).pop_front() } {
            let name = program.name();
            board.starts(&name);
            let mut command = program.command();
            prepare(&mut command);
            let outcome = listen(program, command);
            keep_log(&name, &outcome.output);
            board.ends(&name);
            let mut report = locked(&report);
            report.0 += 1;
            println!("[{}/{total}] {name}: {} in {} s", report.0, outcome.tally, outcome.seconds);
            (report.1)(outcome);
        }
        board.leaves();
    };
    board.enter(LANES);
    std::thread::scope(|scope| {
        (0..LANES).for_each(|_| drop(scope.spawn(lane)));
        scope.spawn(|| board.watch());
    });
}

/// Keeps the whole output of a program in the target directory.
fn keep_log(name: &str, output: &str) {
    let logs = cargo::target().join("test-logs");
    let log = logs.join(format!("{}.log", name.replace(['/', ' '], "-")));
    // The log is a convenience: the run does not fail without it.
    let _ = fs::create_dir_all(&logs).and_then(|()| fs::write(log, output));
}

/// Runs a program to its end, or to the time limit.
pub(crate) fn listen(program: Program, command: Command) -> Outcome {
    listen_for(program, command, process::LIMIT)
}

fn listen_for(program: Program, command: Command, limit: Duration) -> Outcome {
    let start = Instant::now();
    let (end, output) = process::run(command, limit);
    let is_timeout = matches!(end, End::TimedOut(_));
    let mut tally = Tally::of_output(&output, end.is_success() || is_timeout);
    let mut status = end.to_string();
    if is_timeout {
        // The test that hangs, besides those that failed.
        tally.failed += 1;
    } else if program.selects_tests() && tally.passed + tally.failed == 0 {
        tally.failed = 1;
        status = "none of the selected tests ran".to_owned();
    }
    Outcome { program, output, tally, seconds: start.elapsed().as_secs(), is_timeout, status }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The programs that are running, for a reader who wonders what takes so long.
#[derive(Debug, Default)]
struct Board {
    state: Mutex<(usize, Vec<(String, Instant)>)>,
    ended: Condvar,
}

impl Board {
    fn enter(&self, lanes: usize) {
        locked(&self.state).0 = lanes;
    }

    fn leaves(&self) {
        locked(&self.state).0 -= 1;
        self.ended.notify_all();
    }

    fn starts(&self, name: &str) {
        locked(&self.state).1.push((name.to_owned(), Instant::now()));
    }

    fn ends(&self, name: &str) {
        locked(&self.state).1.retain(|(running, _)| running != name);
    }

    /// Names the running programs from time to time, until all lanes are done.
    fn watch(&self) {
        let mut state = locked(&self.state);
        while state.0 > 0 {
            let waited = self.ended.wait_timeout(state, PROGRESS);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() {
                let running: Vec<_> = state
                    .1
                    .iter()
                    .map(|(name, since)| format!("{name} ({} s)", since.elapsed().as_secs()))
                    .collect();
                println!("    running: {}", running.join(", "));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Server;

    #[test]
    fn every_program_is_run_and_failures_are_counted() {
        let programs = ["true", "false", "true", "no such program"].map(Program::executable).into();
        let mut total = Tally::default();
        run(programs, |_| {}, &mut |outcome| total.add(&outcome.tally));
        assert_eq!(total, Tally { passed: 0, failed: 2, skipped: 0 });
    }

    #[test]
    fn a_program_that_dies_is_reported_with_its_last_lines() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 1 passed'; echo farewell; kill -9 $$"]);
        let outcome = listen(Program::executable("dies"), command);
        assert_eq!((outcome.tally.passed, outcome.tally.failed), (1, 1));
        assert!(outcome.ending().starts_with("signal: 9") && outcome.ending().ends_with("farewell"));
    }

    #[test]
    fn program_that_hangs_is_a_failure_with_its_last_lines() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: ok. 1 passed'; echo stuck; sleep 600"]);
        let outcome = listen_for(Program::executable("hangs"), command, Duration::from_millis(300));
        assert_eq!((outcome.tally.passed, outcome.tally.failed, outcome.is_timeout), (1, 1, true));
        assert!(outcome.ending().starts_with("killed") && outcome.ending().ends_with("stuck"));
    }

    #[test]
    fn selected_tests_that_are_not_found_are_a_failure() {
        let server = Server { name: "x", variable: "X", place: "/".into(), arguments: &["--ignored"] };
        let program = Program::executable("none").on(server);
        let outcome = listen(program, Command::new("true"));
        assert_eq!(outcome.tally.failed, 1);
        assert!(outcome.ending().contains("none of the selected tests ran"), "{}", outcome.ending());
    }

    #[test]
    fn output_that_is_not_text_does_not_stop_the_count() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf '\\377\\n'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'"]);
        assert_eq!(listen(Program::executable("bytes"), command).tally.passed, 1);
    }
}
