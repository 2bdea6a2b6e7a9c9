//! Starting the program, and hearing what becomes of it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, waitid};
use tokio::signal::unix;
use tokio::time::{Instant, sleep};

use super::guardian::Guardian;
use super::terminal::Terminal;
use super::{signals, table};
use crate::exit::Exit;

/// How often a group is asked whether anybody is left in it. Far shorter than it takes the system to use up
/// all process ids, so that the group cannot have become another one in between.
const PROBE: Duration = Duration::from_millis(10);

/// A running program: the leader of a process group.
pub(crate) struct Job {
    child: Child,
    group: Pid,
    changes: unix::Signal,
}

/// Something that happened to the program.
#[derive(Debug)]
pub(crate) enum Change {
    /// It ended; it stays a zombie, and its group's number is not reused, until [`Job::reap`].
    Ended(Exit),
    /// It was stopped by this signal.
    Stopped(Signal),
}

impl Job {
    /// Starts it in a group of its own, guarded from before its first instruction, in the foreground of
    /// `terminal` if one is given.
    pub(crate) fn start(
        mut command: Command,
        guardian: &mut Guardian,
        terminal: Option<&Terminal>,
    ) -> io::Result<Self> {
        // Before there is a child, so that no change is missed.
        let changes = signals::listen(Signal::CHILD)?;
        let announce = guardian.announcer()?;
        let terminal = terminal.map(Terminal::try_clone).transpose()?;
        command.process_group(0);
        signals::before_exec(&mut command, move || {
            announce()?;
            if let Some(terminal) = &terminal {
                terminal.give(getpid());
            }
            Ok(())
        });
        let child = command.spawn()?;
        let group = Pid::from_child(&child);
        guardian.remember(group);
        Ok(Self { child, group, changes })
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// To the program and everything in its group.
    pub(crate) fn signal(&self, signal: Signal) {
        signals::send(self.group, signal);
    }

    /// Waits for the next change. Dropping the future loses nothing.
    pub(crate) async fn change(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.look()? {
                return Ok(change);
            }
            self.changes.recv().await;
        }
    }

    fn look(&self) -> io::Result<Option<Change>> {
        let ask = |options| waitid(WaitId::Pid(self.group), options | WaitIdOptions::NOHANG);
        // Only looked at, not taken: a zombie keeps the group's number from being used again.
        if let Some(status) = ask(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)? {
            return Ok(Some(Change::Ended(ending(&status))));
        }
        let stopped = ask(WaitIdOptions::STOPPED)?;
        let signal = stopped.and_then(|status| status.stopping_signal()).and_then(Signal::from_named_raw);
        Ok(signal.map(Change::Stopped))
    }

    /// Lets go of the program, which has ended.
    pub(crate) fn reap(mut self) {
        let _ = self.child.wait();
    }

    /// Lets go of the program, then waits until nobody is left in its group; `false` when somebody was still
    /// there after `limit`.
    pub(crate) async fn wait_for_group(&mut self, limit: Duration, guardian: Pid) -> bool {
        let until = Instant::now() + limit;
        let _ = self.child.try_wait();
        while table::is_alive(self.group) {
            if Instant::now() >= until {
                return false;
            }
            sleep(PROBE).await;
            let _ = self.child.try_wait();
            table::reap_orphans(&[self.group, guardian]);
        }
        true
    }
}

fn ending(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Program(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}
