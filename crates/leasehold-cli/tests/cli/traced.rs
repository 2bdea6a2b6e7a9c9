//! A runner under strace, which stops or delays it at a system call: the same moment every time.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use super::util::{Place, eventually};

pub(crate) struct Traced {
    strace: Child,
    trace: PathBuf,
    pub(crate) runner: i32,
}

impl Traced {
    /// Runs `leasehold` with these words; `options` are strace's, separated by spaces.
    pub(crate) fn start(place: &Place, options: &str, words: &[&str]) -> Self {
        let mut command = Command::new("strace");
        command.args(["-qq", "-o"]).arg(place.path("trace")).args(options.split_whitespace());
        command.arg(env!("CARGO_BIN_EXE_leasehold")).args(words);
        command.env("LEASEHOLD_STORE", place.url()).current_dir(place.path(""));
        let strace = command.spawn().expect("strace is installed: apt-get install strace");
        let runner = eventually("the runner under strace", || first_child(strace.id()));
        Self { strace, trace: place.path("trace"), runner }
    }

    /// Waits until a signal has stopped the runner. Its state does not tell: strace stops it at every system call.
    pub(crate) fn wait_until_stopped(&self) {
        let stopped =
            || std::fs::read_to_string(&self.trace).is_ok_and(|trace| trace.contains("stopped by SIGSTOP"));
        eventually("the runner's stop", || stopped().then_some(()));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(self.runner).unwrap(), signal);
    }

    /// Waits for strace, which ends as the runner does.
    pub(crate) fn finish(mut self) -> Option<i32> {
        eventually("the end of the runner", || self.strace.try_wait().unwrap()).code()
    }
}

/// Nothing of a failed test is left behind: strace would leave the runner stopped.
impl Drop for Traced {
    fn drop(&mut self) {
        if self.strace.try_wait().unwrap().is_none() {
            self.signal(Signal::KILL);
            let _ = self.strace.wait();
        }
    }
}

fn first_child(parent: u32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let child = children.split_whitespace().next()?.parse().ok()?;
    // Until it is the runner, it is strace itself.
    let program = std::fs::read_link(format!("/proc/{child}/exe")).ok()?;
    (program == Path::new(env!("CARGO_BIN_EXE_leasehold")).canonicalize().ok()?).then_some(child)
}

/// How often a run makes a system call: strace's `when=` counts them.
pub(crate) struct Calls {
    pub(crate) before_the_release: usize,
    pub(crate) total: usize,
}

/// Counts the calls of a run on a fresh [`Place::with_synced_file`], where one thread makes all of them: strace counts the
/// calls of each thread separately. The run is over before its lease needs a renewal.
pub(crate) fn calls_of_a_run(call: &str) -> Calls {
    let place = Place::with_synced_file();
    let words = ["run", "k", "--", "true"];
    assert_eq!(Traced::start(&place, &format!("-f -e trace={call}"), &words).finish(), Some(0));
    let trace = std::fs::read_to_string(place.path("trace")).unwrap();
    let (before, _) = trace.split_once("SIGCHLD").expect("the program has ended");
    let count = |trace: &str| trace.matches(&format!("{call}(")).count();
    Calls { before_the_release: count(before), total: count(&trace) }
}
