//! Where a server is, and what it is shown of the machine.

use std::ffi::OsString;
use std::path::Path;

use tempfile::TempDir;

use crate::clock::Clock;
use crate::disk::SmallDisk;
use crate::postgres::{around, give_away};
use crate::power::PowerDisk;

/// Where a server is, and what it is shown of the machine.
#[derive(Debug)]
pub(crate) enum Place {
    Plain(TempDir),
    Timed(TempDir, Clock),
    Small(SmallDisk),
    Powered(PowerDisk),
}

impl Place {
    pub(crate) fn plain(directory: TempDir) -> Self {
        give_away(directory.path());
        Self::Plain(directory)
    }

    pub(crate) fn timed() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        give_away(directory.path());
        let clock = Clock::inside(directory.path());
        Self::Timed(directory, clock)
    }

    pub(crate) fn small(megabytes: u32) -> Option<Self> {
        SmallDisk::of(megabytes).map(Self::Small)
    }

    pub(crate) fn clock(&self) -> &Clock {
        let Self::Timed(_, clock) = self else { panic!("start it with a clock of its own") };
        clock
    }

    pub(crate) fn disk(&self) -> &SmallDisk {
        let Self::Small(disk) = self else { panic!("start it on a small disk") };
        disk
    }

    pub(crate) fn power(&self) -> &PowerDisk {
        let Self::Powered(disk) = self else { panic!("start it on a disk whose power can be cut") };
        disk
    }

    pub(crate) fn directory(&self) -> &Path {
        match self {
            Self::Plain(directory) | Self::Timed(directory, _) => directory.path(),
            Self::Small(disk) => disk.mounted().path(),
            Self::Powered(disk) => disk.path(),
        }
    }

    /// The words before the name of a program that is there.
    pub(crate) fn around(&self) -> Vec<OsString> {
        match self {
            Self::Plain(_) => around(),
            Self::Timed(_, clock) => [around(), vec![clock.word()]].concat(),
            Self::Small(disk) => [disk.mounted().words(), around()].concat(),
            Self::Powered(disk) => [disk.words(), around()].concat(),
        }
    }
}
