//! The guardian: a small process that ends the job when the runner no longer can.
//!
//! It reads a pipe whose other end only the runner holds. End of file means that the runner is dead, however
//! it died; a deadline that passes means that the runner is stopped or hangs while the lease runs out. Either
//! way the whole process group is killed, grandchildren too, which a parent-death signal would not do.
//!
//! A runner that is stopped inside a write of a SQLite file blocks every other key of the file, so after the deadline the
//! guardian kills such a runner too. It therefore starts before the runner opens the store, and ends after the store is
//! closed.
//!
//! There is no moment at which the job runs unguarded: the guardian has a deadline before the job starts, and between fork
//! and exec the child itself announces its group. It holds the pipe open until exec, so that the guardian reads the
//! announcement before any end of file. A guardian that is killed is replaced.
//!
//! It has a process group of its own, ignores every signal, and keeps neither the job's output nor its
//! directory open. A job that moves to another session or group is out of its reach.

mod stuck;
mod watch;

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use leasehold::Moment;
use rustix::process::{Pid, Signal};

pub(crate) use self::watch::watch;
use super::signals;
use crate::store::StoreKind;

/// The hidden subcommand.
pub(crate) const NAME: &str = "__guardian";
/// Its argument for a store that locks a file while it writes.
const SQLITE: &str = "sqlite";

/// Tag and number. Small enough for a pipe to write it in one piece, whoever else writes.
type Message = [u8; 9];

/// The group to guard, or 0 for none.
const GROUP: u8 = b'g';
/// When the runner counts as stopped, in nanoseconds of boot time.
const DEADLINE: u8 = b'd';

/// The runner's side.
pub(crate) struct Guardian {
    process: Child,
    pipe: PipeWriter,
    store: StoreKind,
    /// What it was told last, for the one that replaces it.
    group: Option<Pid>,
    deadline: Option<Moment>,
}

impl Guardian {
    /// Starts one, before there is a job.
    pub(crate) fn start(store: StoreKind) -> io::Result<Self> {
        let (process, pipe) = spawn(store)?;
        Ok(Self { process, pipe, store, group: None, deadline: None })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// For the child itself, between fork and exec: allocates nothing, takes no lock.
    pub(crate) fn announcer(&self) -> io::Result<impl Fn() -> io::Result<()> + Send + Sync + use<>> {
        let pipe = self.pipe.try_clone()?;
        Ok(move || {
            let own_group = u64::from(rustix::process::getpid().as_raw_nonzero().get().unsigned_abs());
            // A guardian that has just been killed is an error of the start, not the program's death.
            signals::while_ignored(Signal::PIPE, || (&pipe).write_all(&message(GROUP, own_group)))
        })
    }

    /// The job with this group was started, and has announced itself.
    pub(crate) fn remember(&mut self, group: Pid) {
        self.group = Some(group);
    }

    /// The job is over: its group's number may soon be another's.
    pub(crate) fn forget(&mut self) {
        self.group = None;
        // A guardian that cannot be told must not act on what it knows.
        if self.send(message(GROUP, 0)).is_err() {
            self.end();
        }
    }

    /// Moves the moment at which the runner counts as stopped unless it says otherwise.
    ///
    /// # Errors
    /// When a guardian that is gone cannot be replaced.
    pub(crate) fn kill_at(&mut self, deadline: Moment) -> io::Result<()> {
        self.deadline = Some(deadline);
        // A pipe that is closed or full: it is dead, or was stopped for long.
        match self.send(when(deadline)) {
            Ok(()) => Ok(()),
            Err(_) => self.replace(),
        }
    }

    /// Starts another guardian if this one has ended, no matter how.
    ///
    /// # Errors
    /// When there cannot be another.
    pub(crate) fn tend(&mut self) -> io::Result<()> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            _ => self.replace(),
        }
    }

    fn replace(&mut self) -> io::Result<()> {
        self.end();
        (self.process, self.pipe) = spawn(self.store)?;
        if let Some(group) = self.group {
            self.send(message(GROUP, u64::from(group.as_raw_nonzero().get().unsigned_abs())))?;
        }
        self.deadline.map_or(Ok(()), |deadline| self.send(when(deadline)))
    }

    fn send(&self, message: Message) -> io::Result<()> {
        (&self.pipe).write_all(&message)
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Nothing is left to guard.
impl Drop for Guardian {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(store: StoreKind) -> io::Result<(Child, PipeWriter)> {
    let (reader, pipe) = io::pipe()?;
    // A suspended guardian must not block the runner.
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let mut command = Command::new(own_program()?);
    // Before it is a program of its own: there is no moment at which a signal could end it.
    signals::before_exec(&mut command, || {
        signals::ignore_all();
        Ok(())
    });
    command.arg0("leasehold").arg(NAME);
    if let Some(group) = signals::own_group() {
        command.arg(group.as_raw_nonzero().to_string());
    }
    if store == StoreKind::Sqlite {
        command.arg(SQLITE);
    }
    command.process_group(0).current_dir("/").env_clear();
    let process = command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok((process, pipe))
}

fn message(tag: u8, number: u64) -> Message {
    let mut message = [tag; 9];
    message[1..].copy_from_slice(&number.to_ne_bytes());
    message
}

fn when(deadline: Moment) -> Message {
    message(DEADLINE, deadline.since(Moment::from_nanos(0)).as_nanos() as u64)
}

/// Our own program, even when its file was replaced by an upgrade.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}
