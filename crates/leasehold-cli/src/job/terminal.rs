//! The terminal, and whose turn it is to read from it.
//!
//! The job has a process group of its own, and only one group of a session, the foreground, may read from
//! the terminal and gets its Ctrl-C and Ctrl-Z. So the foreground is handed to the job and taken back.
//!
//! At once when the job talks to the terminal on both sides (`run k -- psql`). Otherwise only when it asks, by
//! being stopped for reading: in `run k -- report | less` the terminal belongs to `less`.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;

use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::signals;

/// The terminal that controls our session.
pub(crate) struct Terminal {
    file: File,
    /// How it was set when we came.
    modes: Option<Termios>,
}

impl Terminal {
    /// `None` when there is none: cron, a service, a container.
    pub(crate) fn find() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&file).ok();
        Some(Self { file, modes })
    }

    /// Whether our group is the one in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground().is_some() && self.foreground() == signals::own_group()
    }

    /// Whether the job should have it from the start.
    pub(crate) fn is_for_the_job(&self) -> bool {
        self.is_ours() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// A second handle, for the child between fork and exec.
    pub(crate) fn try_clone(&self) -> std::io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, modes: None })
    }

    /// Puts a group into the foreground. Safe to call between fork and exec.
    pub(crate) fn give(&self, group: Pid) {
        // From the background this would stop us, unless the signal is ignored. A failure means that the
        // terminal or the group is gone: then nobody needs it.
        signals::while_ignored(Signal::TTOU, || {
            let _ = tcsetpgrp(&self.file, group);
        });
    }

    /// Takes it back from the job.
    pub(crate) fn take_back(&self) {
        if let Some(group) = signals::own_group().filter(|_| !self.is_ours()) {
            self.give(group);
        }
    }

    /// Hands it from one group to another, unless somebody else has it.
    pub(crate) fn pass(&self, from: Pid, to: Pid) {
        if self.foreground() == Some(from) {
            self.give(to);
        }
    }

    /// Sets it as it was: a program that was killed could not do that itself.
    pub(crate) fn restore_modes(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.file, OptionalActions::Drain, modes);
        }
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.file).ok()
    }
}
