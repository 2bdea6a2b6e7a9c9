//! The guardian: a small process that ends the job when the runner no longer can.
//!
//! It reads a pipe whose other end only the runner holds. End of file means that the runner is dead, however
//! it died; a deadline that passes means that the runner is stopped or hangs while the lease runs out. Either
//! way the whole process group is killed, grandchildren too, which a parent-death signal would not do.
//!
//! There is no moment at which the job runs unguarded: between fork and exec the child itself announces its
//! group, and it holds the pipe open until exec, so that the guardian reads the announcement before any end
//! of file.
//!
//! It has a process group of its own, ignores every signal, and keeps neither the job's output nor its
//! directory open. A job that moves to another session or group is out of its reach.

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold::{BootClock, Clock, Moment, TICK};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpgrp};

use super::signals;
use super::terminal::Terminal;

/// The hidden subcommand.
pub(crate) const NAME: &str = "__guardian";

/// Tag and number. Small enough for a pipe to write it in one piece, whoever else writes.
type Message = [u8; 9];

const GROUP: u8 = b'g';
const DEADLINE: u8 = b'd';

/// The runner's side.
pub(crate) struct Guardian {
    process: Child,
    pipe: PipeWriter,
}

impl Guardian {
    /// Starts one, before there is a job.
    pub(crate) fn start() -> io::Result<Self> {
        let (reader, pipe) = io::pipe()?;
        // A guardian that somebody has stopped must not block the runner.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let mut command = Command::new(own_program()?);
        // Before it is a program of its own: there is no moment at which a signal could end it.
        signals::before_exec(&mut command, || {
            signals::ignore_all();
            Ok(())
        });
        let process = command
            .arg0("leasehold")
            .args([NAME, &getpgrp().as_raw_nonzero().to_string()])
            .process_group(0)
            .current_dir("/")
            .env_clear()
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { process, pipe })
    }

    /// For the child itself, between fork and exec: allocates nothing, takes no lock.
    pub(crate) fn announcer(&self) -> io::Result<impl Fn() -> io::Result<()> + Send + Sync + use<>> {
        let pipe = self.pipe.try_clone()?;
        Ok(move || {
            let own_group = u64::from(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs());
            (&pipe).write_all(&message(GROUP, own_group))
        })
    }

    /// Moves the moment at which the job is killed unless we say otherwise.
    pub(crate) fn kill_at(&self, deadline: Moment) {
        // A guardian that is gone or stopped cannot be helped; the job goes on, as it would without one.
        let _ = (&self.pipe)
            .write_all(&message(DEADLINE, deadline.since(Moment::from_nanos(0)).as_nanos() as u64));
    }

    /// The job is over: nothing is left to guard.
    pub(crate) fn dismiss(mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn message(tag: u8, number: u64) -> Message {
    let mut message = [tag; 9];
    message[1..].copy_from_slice(&number.to_ne_bytes());
    message
}

/// Our own program, even when its file was replaced by an upgrade.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// The guardian's side: the whole life of the process. `runner` is the runner's group.
pub(crate) fn watch(runner: Option<Pid>) -> ExitCode {
    let mut group = None;
    let mut deadline = None;
    while let Some([tag, number @ ..]) = next_message(deadline) {
        let number = u64::from_ne_bytes(number);
        match tag {
            GROUP => group = i32::try_from(number).ok().and_then(Pid::from_raw),
            _ => deadline = Some(Moment::from_nanos(number)),
        }
    }
    let Some(group) = group else { return ExitCode::SUCCESS };
    signals::send(group, Signal::KILL);
    if let (Some(terminal), Some(runner)) = (Terminal::find(), runner) {
        terminal.pass(group, runner);
    }
    ExitCode::SUCCESS
}

/// `None` when the runner is gone or the deadline has passed.
fn next_message(deadline: Option<Moment>) -> Option<Message> {
    let pipe = rustix::stdio::stdin();
    loop {
        let left = deadline.map(|deadline| deadline.since(BootClock.now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        // The kernel's timeout stands still while the machine sleeps: never rely on a long one.
        let nap = left.map(|left| left.min(TICK) + Duration::from_millis(1));
        let nap = nap.and_then(|nap| Timespec::try_from(nap).ok());
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], nap.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            _ => {}
        }
        let mut message = Message::default();
        return match rustix::io::read(pipe, &mut message) {
            Ok(length) if length == message.len() => Some(message),
            _ => None,
        };
    }
}
