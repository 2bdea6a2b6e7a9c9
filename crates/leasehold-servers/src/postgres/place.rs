//! Where a server is, and what it is shown of the machine.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{around, give_away, program};
use crate::clock::Clock;
use crate::disk::SmallDisk;

/// Where a server is, and what it is shown of the machine.
#[derive(Debug)]
pub(super) enum Place {
    Plain(TempDir),
    Timed(TempDir, Clock),
    Small(SmallDisk),
}

impl Place {
    pub(super) fn plain(directory: TempDir) -> Self {
        give_away(directory.path());
        Self::Plain(directory)
    }

    pub(super) fn timed() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        give_away(directory.path());
        let clock = Clock::inside(directory.path());
        Self::Timed(directory, clock)
    }

    pub(super) fn small(megabytes: u32) -> Option<Self> {
        SmallDisk::of(megabytes).map(Self::Small)
    }

    pub(super) fn clock(&self) -> &Clock {
        let Self::Timed(_, clock) = self else { panic!("start it with a clock of its own") };
        clock
    }

    pub(super) fn disk(&self) -> &SmallDisk {
        let Self::Small(disk) = self else { panic!("start it on a small disk") };
        disk
    }

    /// Makes an empty database there.
    pub(super) fn initdb(&self) {
        let mut initdb = self.command("initdb");
        initdb.args(["-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C"]);
        if matches!(self, Self::Small(_)) {
            // There is no room for one of the usual size.
            initdb.arg("--wal-segsize=1");
        }
        self.make(initdb);
    }

    /// Copies the database of the server on this port, to follow it.
    pub(super) fn copy(&self, port: u16) {
        let mut copy = self.command("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "-p"]);
        copy.arg(port.to_string());
        self.make(copy);
    }

    fn command(&self, name: &str) -> Command {
        let words = self.around();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program(name)).current_dir("/");
        command
    }

    fn make(&self, mut command: Command) {
        let made = command.arg("-D").arg(self.directory().join("data")).output();
        let made = made.expect("PostgreSQL is there: `cargo xtask test` installs it");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "no database could be made: {said}");
    }

    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Plain(directory) | Self::Timed(directory, _) => directory.path(),
            Self::Small(disk) => disk.path(),
        }
    }

    /// The words before the name of a program that is there.
    pub(super) fn around(&self) -> Vec<OsString> {
        match self {
            Self::Plain(_) => around(),
            Self::Timed(_, clock) => [around(), vec![clock.word()]].concat(),
            Self::Small(disk) => [disk.words(), around()].concat(),
        }
    }
}
