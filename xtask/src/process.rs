//! Running one program to its end, or to its time limit.
//!
//! The program gets a process group of its own, and a guard: a process that reads from a pipe and kills the group if the
//! pipe closes before a line arrives. Closing the pipe is how the time limit ends the program. It also closes if this
//! process dies, for example of Ctrl-C, which no longer reaches the group.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a program may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(25 * 60);
/// How often a running program is polled.
const POLL: Duration = Duration::from_millis(20);
/// How long the output may stay open after the program has ended: a process that it left behind may still have it.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// How a program ended.
#[derive(Debug)]
pub(crate) enum End {
    Exited(ExitStatus),
    /// It was killed at its time limit.
    TimedOut(Duration),
    CannotStart(String),
}

impl End {
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "{status}"),
            Self::TimedOut(limit) => write!(f, "killed, because it was still running after {limit:?}"),
            Self::CannotStart(error) => write!(f, "cannot start: {error}"),
        }
    }
}

/// Runs the program and returns how it ended, with its standard output followed by its standard error.
pub(crate) fn run(mut command: Command, limit: Duration) -> (End, String) {
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = command.spawn().and_then(|mut child| match guard(child.id()) {
        Ok(guard) => Ok((child, guard)),
        Err(error) => {
            let _ = child.kill();
            Err(error)
        }
    });
    let (mut child, guard) = match started {
        Ok(started) => started,
        Err(error) => return (End::CannotStart(error.to_string()), String::new()),
    };
    let outputs = [child.stdout.take().map(Output::collect), child.stderr.take().map(Output::collect)];
    let end = wait(&mut child, guard, limit);
    let deadline = Instant::now() + LAST_OUTPUT;
    let output: Vec<u8> = outputs.into_iter().flatten().flat_map(|output| output.finish(deadline)).collect();
    (end, String::from_utf8_lossy(&output).into_owned())
}

/// Starts the guard of the group that this process leads.
fn guard(leader: u32) -> std::io::Result<Child> {
    let mut guard = Command::new("sh");
    guard.args(["-c", "read -r line || kill -s KILL -- \"-$1\"", "guard", &leader.to_string()]);
    guard.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Waits for the program. Kills its group at the limit.
fn wait(child: &mut Child, mut guard: Child, limit: Duration) -> End {
    let deadline = Instant::now() + limit;
    let mut pipe = guard.stdin.take();
    let end = loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                // Dismisses the guard: the number of the group may soon be another's.
                let _ = pipe.as_mut().map(|pipe| pipe.write_all(b"done\n"));
                break End::Exited(status);
            }
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            _ => {
                drop(pipe.take());
                let _ = (guard.wait(), child.wait());
                break End::TimedOut(limit);
            }
        }
    };
    let _ = guard.wait();
    end
}

/// What a program writes, collected while it runs, so that its last lines are known even if it never ends.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Output {
    fn collect(mut source: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let collected = bytes.clone();
        let reader = thread::spawn(move || {
            let mut buffer = [0; 1 << 14];
            while let Ok(length @ 1..) = source.read(&mut buffer) {
                collected.lock().unwrap_or_else(PoisonError::into_inner).extend(&buffer[..length]);
            }
        });
        Self { bytes, reader }
    }

    /// Everything until the end, or until the deadline.
    fn finish(self, deadline: Instant) -> Vec<u8> {
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn is_running(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn program_that_hangs_is_killed_with_its_group() {
        let (end, output) = run(shell("sleep 600 & echo $!; wait"), Duration::from_millis(300));
        assert!(matches!(end, End::TimedOut(_)), "{end}");
        assert!(!output.is_empty());
        // The kernel ends the members of a group one after the other.
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_running(&output) {
            assert!(Instant::now() < deadline, "process {output} is left behind");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn process_left_behind_delays_the_report_only_briefly() {
        let start = Instant::now();
        let (end, output) = run(shell("sleep 600 & echo $!"), LIMIT);
        let _ = Command::new("kill").arg(output.trim()).status();
        assert!(end.is_success() && start.elapsed() < LIMIT / 2, "{end} after {:?}", start.elapsed());
    }

    #[test]
    fn guard_kills_the_group_if_the_test_runner_dies() {
        let mut group = shell("sleep 600");
        let mut group = group.process_group(0).spawn().unwrap();
        let mut guard = guard(group.id()).unwrap();
        // As the kernel does for a process that dies.
        drop(guard.stdin.take());
        guard.wait().unwrap();
        assert!(!group.wait().unwrap().success());
    }

    #[test]
    fn program_that_ends_in_time_is_not_killed() {
        let (end, output) = run(shell("echo out; echo err >&2; exit 3"), LIMIT);
        assert_eq!((end.to_string(), output), ("exit status: 3".to_owned(), "out\nerr\n".to_owned()));
    }
}
