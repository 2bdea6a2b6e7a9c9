//! The guardian: a small process that ends the job when the runner no longer can.
//!
//! It reads a pipe whose other end only the runner holds. End of file means that the runner is dead, however
//! it died; a deadline that passes means that the runner is stopped or hangs while the lease runs out. Either
//! way the whole process group is killed, grandchildren too, which a parent-death signal would not do.
//!
//! If the runner is dead, the guardian also releases its lock, as soon as no process of the group is left. The runner names
//! the claim after the grant. The guardian opens the store when it releases the claim, and not before: a guardian that the
//! runner outlives never does.
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

mod held;
mod message;
mod stuck;
mod watch;

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use leasehold::Moment;
use rustix::process::{Pid, Signal};

pub(crate) use self::held::HeldClaim;
pub(crate) use self::watch::watch;
use super::signals;
use crate::store::StoreKind;

/// The hidden subcommand.
pub(crate) const NAME: &str = "__guardian";
/// Its argument for a store that locks a file while it writes.
const SQLITE: &str = "sqlite";

/// The runner's side.
pub(crate) struct Guardian {
    process: Child,
    pipe: PipeWriter,
    store: StoreKind,
    /// What it was told last, for the one that replaces it.
    group: Option<Pid>,
    deadline: Option<Moment>,
    claim: Option<Vec<u8>>,
    /// The runner needs no guardian any more.
    is_dismissed: bool,
}

impl Guardian {
    /// Starts one, before there is a job.
    pub(crate) fn start(store: StoreKind) -> io::Result<Self> {
        let (process, pipe) = spawn(store)?;
        Ok(Self { process, pipe, store, group: None, deadline: None, claim: None, is_dismissed: false })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// For the child itself, between fork and exec: allocates nothing, takes no lock.
    pub(crate) fn announcer(&self) -> io::Result<impl Fn() -> io::Result<()> + Send + Sync + use<>> {
        let pipe = self.pipe.try_clone()?;
        Ok(move || {
            let announcement = message::group(Some(rustix::process::getpid()));
            // A guardian that has just been killed is an error of the start, not the program's death.
            signals::while_ignored(Signal::PIPE, || (&pipe).write_all(&announcement))
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
        if self.send(&message::group(None)).is_err() {
            self.end();
        }
    }

    /// The runner holds this claim from now on, and the guardian releases it if the runner dies.
    ///
    /// The runner does not withdraw this when it has released the claim: a claim that has ended is not found again.
    ///
    /// # Errors
    /// As [`kill_at`](Self::kill_at).
    pub(crate) fn release_if_killed(&mut self, claim: &HeldClaim) -> io::Result<()> {
        // A claim that is too long for a message is left to its lease.
        self.claim = message::claim(&claim.to_bytes());
        match self.claim.as_ref().map_or(Ok(()), |claim| self.send(claim)) {
            Ok(()) => Ok(()),
            Err(_) => self.replace(),
        }
    }

    /// The program has ended by itself, and the runner is about to release the lock and to end.
    ///
    /// The guardian ends while the store answers. Where the store locks a file, it stays until the file is closed.
    pub(crate) fn dismiss(&mut self) {
        if self.store != StoreKind::Sqlite {
            self.is_dismissed = true;
            // Waited for when this is dropped.
            let _ = self.process.kill();
        }
    }

    /// Moves the moment at which the runner counts as stopped unless it says otherwise.
    ///
    /// # Errors
    /// When a guardian that is gone cannot be replaced.
    pub(crate) fn kill_at(&mut self, deadline: Moment) -> io::Result<()> {
        self.deadline = Some(deadline);
        if self.is_dismissed {
            return Ok(());
        }
        // A pipe that is closed or full: it is dead, or was stopped for long.
        match self.send(&message::deadline(deadline)) {
            Ok(()) => Ok(()),
            Err(_) => self.replace(),
        }
    }

    /// Starts another guardian if this one has ended, no matter how.
    ///
    /// # Errors
    /// When there cannot be another.
    pub(crate) fn tend(&mut self) -> io::Result<()> {
        if self.is_dismissed {
            return Ok(());
        }
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            _ => self.replace(),
        }
    }

    fn replace(&mut self) -> io::Result<()> {
        self.end();
        (self.process, self.pipe) = spawn(self.store)?;
        self.send(&message::group(self.group))?;
        self.claim.as_ref().map_or(Ok(()), |claim| self.send(claim))?;
        self.deadline.map_or(Ok(()), |deadline| self.send(&message::deadline(deadline)))
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        (&self.pipe).write_all(message)
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

/// Our own program, even when its file was replaced by an upgrade.
fn own_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}
