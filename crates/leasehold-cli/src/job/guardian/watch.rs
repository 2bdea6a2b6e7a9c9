//! The guardian's side: the whole life of the process.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{BootClock, Clock, Moment, TICK};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use super::stuck::Runner;
use super::{GROUP, Message, SQLITE};
use crate::job::signals;
use crate::job::terminal::Terminal;
use crate::store::StoreKind;

/// What the runner has said.
#[derive(Default)]
struct Orders {
    group: Option<Pid>,
    deadline: Option<Moment>,
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
            let mut message = Message::default();
            match rustix::io::read(pipe, &mut message) {
                Ok(length) if length == message.len() => self.obey(message),
                _ => return false,
            }
        }
    }

    fn obey(&mut self, [tag, number @ ..]: Message) {
        let number = u64::from_ne_bytes(number);
        match tag {
            GROUP => self.group = i32::try_from(number).ok().and_then(Pid::from_raw),
            _ => self.deadline = Some(Moment::from_nanos(number)),
        }
    }

    fn end_group(&mut self, terminal_group: Option<Pid>) {
        let Some(group) = self.group.take() else { return };
        signals::send(group, Signal::KILL);
        if let (Some(terminal), Some(runner)) = (Terminal::find(), terminal_group) {
            terminal.pass(group, runner);
        }
    }
}

/// Waits for a message; not longer than `nap`, if there is one. The kernel's timeout stands still while the machine sleeps,
/// so that no nap is longer than a tick.
fn wait(nap: Option<Duration>) {
    let nap = nap.map(|nap| nap + Duration::from_millis(1));
    let nap = nap.and_then(|nap| Timespec::try_from(nap).ok());
    let _ = poll(&mut [PollFd::new(&rustix::stdio::stdin(), PollFlags::IN)], nap.as_ref());
}
