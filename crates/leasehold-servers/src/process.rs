//! One server process: started, frozen, killed, and never left behind.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Runs the server and kills it when its own standard input ends: when this process closes it or is gone,
/// however it went.
const GUARD: &str = r#"
exec 3<&0
"$@" </dev/null >/dev/null 3<&- &
server=$!
{ read -r _ <&3; kill -9 $server; } >/dev/null 2>&1 &
guard=$!
exec 3<&-
echo $server
wait $server 2>/dev/null
kill $guard 2>/dev/null
"#;

/// A running server.
#[derive(Debug)]
pub struct Process {
    guard: Child,
    /// Closed to stop the server.
    lifeline: Option<ChildStdin>,
    pid: Pid,
}

impl Process {
    /// Starts the program with these arguments. What it has to say it must write to a file.
    ///
    /// # Panics
    /// When there is no shell.
    pub fn start(program: impl AsRef<OsStr>, arguments: &[OsString]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARD, "guard"]).arg(program).args(arguments);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut guard = shell.spawn().expect("sh is on every machine");
        let mut line = String::new();
        let output = guard.stdout.take().expect("it was asked for");
        BufReader::new(output).read_line(&mut line).expect("the guard prints a line");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw).expect("the line is a process id");
        let lifeline = guard.stdin.take();
        Self { guard, lifeline, pid }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.guard.try_wait(), Ok(None))
    }

    /// Kills it with -9 and waits until it is dead.
    pub fn kill(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = self.guard.wait();
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub fn stop(&mut self) {
        let _ = kill_process(self.pid, Signal::TERM);
        let _ = self.guard.wait();
    }

    /// Stops it in the middle of whatever it does: connections stay open and nobody answers.
    ///
    /// # Panics
    /// When it is dead.
    pub fn freeze(&self) {
        kill_process(self.pid, Signal::STOP).expect("the server runs");
        // Its threads stop one after the other, and until then they answer.
        wait_until("it stands still", Duration::from_secs(30), || self.stands_still());
    }

    /// Whether all of its threads are stopped.
    fn stands_still(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok()).all(|stat| {
            // Behind its name, which may have brackets and spaces.
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 't', 'Z', 'X']))
        })
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it is dead.
    pub fn thaw(&self) {
        kill_process(self.pid, Signal::CONT).expect("the server runs");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let _ = self.guard.wait();
    }
}

/// Looks again every few milliseconds until it is so.
///
/// # Panics
/// When it is not so within `limit`.
pub fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Process {
        Process::start("sleep", &["1000".into()])
    }

    fn runs(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_dropped_server_is_dead() {
        let process = sleeper();
        let pid = process.pid();
        assert!(runs(pid));
        drop(process);
        assert!(!runs(pid));
    }

    #[test]
    fn a_frozen_server_is_dead_when_dropped() {
        let process = sleeper();
        let pid = process.pid();
        process.freeze();
        drop(process);
        assert!(!runs(pid));
    }

    #[test]
    fn a_killed_server_does_not_run() {
        let mut process = sleeper();
        assert!(process.is_running());
        process.kill();
        assert!(!process.is_running());
    }
}
