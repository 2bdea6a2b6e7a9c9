//! The guardian's side: the whole life of the process.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{BootClock, Clock, Moment, TICK};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use super::SQLITE;
use super::held::HeldClaim;
use super::message::{Message, Received};
use super::stuck::Runner;
use crate::job::terminal::Terminal;
use crate::job::{signals, table};
use crate::store::StoreKind;

/// How often the guardian looks whether a killed group has ended.
const PROBE: Duration = Duration::from_millis(2);

/// What the runner has said.
#[derive(Default)]
struct Orders {
    received: Received,
    group: Option<Pid>,
    /// The group that was killed last.
    killed: Option<Pid>,
    deadline: Option<Moment>,
    claim: Option<HeldClaim>,
}

/// Guards until the runner is gone. The words are the runner's group, which gets the terminal back, and [`SQLITE`]; either
/// may be missing.
pub(crate) fn watch(words: impl Iterator<Item = OsString>) -> ExitCode {
    let (mut terminal_group, mut store) = (None, StoreKind::Other);
    for word in words {
        match word.to_str() {
            Some(SQLITE) => store = StoreKind::Sqlite,
            number => terminal_group = number.and_then(|number| Pid::from_raw(number.parse().ok()?)),
        }
    }
    let mut runner = Runner::of_this_guardian(store);
    let mut orders = Orders::default();
    // It listens before it judges: a guardian that was late itself must not act on an old deadline.
    while orders.listen() {
        let now = BootClock.now();
        let left = orders.deadline.map(|deadline| deadline.since(now).min(TICK));
        let nap = if left.is_some_and(|left| left.is_zero()) {
            orders.end_group(terminal_group);
            Some(runner.kill_if_stuck(now))
        } else {
            runner.is_in_time();
            left
        };
        wait(nap);
    }
    orders.end_group(terminal_group);
    orders.release_claim();
    ExitCode::SUCCESS
}

impl Orders {
    /// Reads all that is in the pipe; `false` when the runner is gone.
    fn listen(&mut self) -> bool {
        let pipe = rustix::stdio::stdin();
        loop {
            match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&Timespec::default())) {
                Ok(0) => return true,
                Err(rustix::io::Errno::INTR) => continue,
                _ => {}
            }
            let mut bytes = [0; 1024];
            match rustix::io::read(pipe, &mut bytes) {
                Ok(length) if length > 0 => self.received.extend(&bytes[..length]),
                _ => return false,
            }
            while let Some(message) = self.received.next() {
                self.obey(message);
            }
        }
    }

    fn obey(&mut self, message: Message) {
        match message {
            Message::Group(group) => (self.group, self.killed) = (group, None),
            Message::Deadline(deadline) => self.deadline = Some(deadline),
            Message::Claim(claim) => self.claim = HeldClaim::from_bytes(&claim),
        }
    }

    fn end_group(&mut self, terminal_group: Option<Pid>) {
        let Some(group) = self.group.take() else { return };
        self.killed = Some(group);
        signals::send(group, Signal::KILL);
        if let (Some(terminal), Some(runner)) = (Terminal::find(), terminal_group) {
            terminal.pass(group, runner);
        }
    }

    /// Releases the dead runner's lock, but not before the last process of the group has ended. If that takes longer than
    /// the lease, the lease decides.
    fn release_claim(self) {
        let (Some(claim), Some(lease_ends)) = (self.claim, self.deadline) else { return };
        if let Some(group) = self.killed {
            while table::is_alive(group) {
                if BootClock.now() >= lease_ends {
                    return;
                }
                std::thread::sleep(PROBE);
            }
        }
        claim.release(lease_ends);
    }
}

/// Waits for a message; not longer than `nap`, if there is one. The kernel's timeout stands still while the machine sleeps,
/// so that no nap is longer than a tick.
fn wait(nap: Option<Duration>) {
    let nap = nap.map(|nap| nap + Duration::from_millis(1));
    let nap = nap.and_then(|nap| Timespec::try_from(nap).ok());
    let _ = poll(&mut [PollFd::new(&rustix::stdio::stdin(), PollFlags::IN)], nap.as_ref());
}
