//! The directory: opened once, without following links, so that nobody who swaps names swaps our files.
//!
//! `keys/` has the records, `sessions/` a file per client that the client keeps locked, `news/` what clients are to be
//! told. `lock` is held for every change and counts the turns of its holders. `fence` has the largest number of all
//! records that were removed.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::local::FileSystem;
use leasehold_core::{Check, Error, ErrorKind, Result, Warnings, back_off};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::fault::{refused, unknown};
use crate::slip::{Foreign, LARGEST, Slip};
use crate::time::Epoch;
use crate::url::Target;

const FILE: Mode = Mode::from_raw_mode(0o600);
const DIRECTORY: Mode = Mode::from_raw_mode(0o700);

/// Never a link, never inherited by another program, and never waiting for a pipe's other end.
pub(crate) const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// What a record is written as before it takes its place. There is one: whoever writes has the lock.
const NEW: &str = "new";

/// The pause before the lock is tried again grows between these.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) path: PathBuf,
    root: OwnedFd,
    /// Device and number, to see whether the path still means this directory.
    identity: (u64, u64),
    pub(crate) keys: OwnedFd,
    pub(crate) sessions: OwnedFd,
    pub(crate) news: OwnedFd,
    /// One thread at a time: threads that share a descriptor do not exclude each other by it.
    lock: Mutex<File>,
    fence: File,
    /// What it was when it was last read.
    fence_seen: AtomicU64,
    pub(crate) epoch: Epoch,
    /// What the promises rest on, as it was found.
    pub(crate) checks: Vec<Check>,
    timeout: Duration,
}

/// The lock of the directory, held.
#[derive(Debug)]
pub(crate) struct Held<'a>(MutexGuard<'a, File>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Only a descriptor that is none can fail here.
        let _ = self.0.unlock();
    }
}

impl Home {
    /// Opens the directory, and makes it if it is not there. Its parent must exist: a URL with a mistake in it would
    /// otherwise name another store.
    pub(crate) fn open(target: &Target, warnings: &Warnings) -> Result<Self> {
        let fail = |what: &'static str| move |cause: std::io::Error| refused(&target.path, what, cause);
        let odd = |what: &'static str| move |cause: Errno| refused(&target.path, what, cause);
        let made = DirBuilder::new().mode(0o700).create(&target.path);
        if let Err(cause) = made.or_else(|cause| if target.path.is_dir() { Ok(()) } else { Err(cause) }) {
            let parent = target.path.parent().filter(|parent| *parent != Path::new("") && !parent.exists());
            return Err(match parent {
                Some(parent) => {
                    let message =
                        format!("there is no directory {}: create it, or correct the URL", parent.display());
                    Error::new(ErrorKind::Unavailable, message).at("file")
                }
                None => refused(&target.path, "make the directory", cause),
            });
        }
        let path = std::fs::canonicalize(&target.path).map_err(fail("open the directory"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFELY;
        let root = rustix::fs::open(&path, flags, Mode::empty()).map_err(odd("open the directory"))?;
        let found = rustix::fs::fstat(&root).map_err(odd("open the directory"))?;
        trust(&path, found.st_uid, Mode::from_raw_mode(found.st_mode))?;
        let file_system = FileSystem::of(&root).map_err(fail("see which file system it is"))?;
        let checks = vec![
            file_system.check(target.network),
            // Refused above unless they are as they should be.
            Check::ok("owner", found.st_uid),
            Check::ok("mode", format!("{:04o}", found.st_mode & 0o7777)),
        ];
        // Before anything is created there.
        warnings.judge(&checks, "file")?;
        let directory = |name: &str| {
            match rustix::fs::mkdirat(&root, name, DIRECTORY) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(cause) => return Err(cause),
            }
            rustix::fs::openat(&root, name, flags, Mode::empty())
        };
        let file = |name: &str| {
            let flags = OFlags::RDWR | OFlags::CREATE | SAFELY;
            rustix::fs::openat(&root, name, flags, FILE).map(File::from)
        };
        let make = odd("make the store's files");
        let (keys, sessions) = (directory("keys").map_err(make)?, directory("sessions").map_err(make)?);
        let (news, lock) = (directory("news").map_err(make)?, file("lock").map_err(make)?);
        let fence = file("fence").map_err(make)?;
        let mut home = Self {
            identity: identity(&found),
            path,
            root,
            keys,
            sessions,
            news,
            lock: Mutex::new(lock),
            fence,
            fence_seen: AtomicU64::new(0),
            epoch: Epoch::of("").0,
            checks,
            timeout: target.timeout,
        };
        home.epoch = home.settle_in()?;
        Ok(home)
    }

    /// Makes what must be there, and agrees with the others on the time.
    fn settle_in(&self) -> Result<Epoch> {
        let _held = self.lock()?;
        if self.fence()? == 0 {
            // From now on to raise it needs no space: who holds can leave when the disk is full.
            put_number(&self.fence, 0).map_err(|cause| refused(&self.path, "make the fence", cause))?;
        }
        let noted = self.read(&self.root, "clock")?.unwrap_or_default();
        let (epoch, note) = Epoch::of(&String::from_utf8_lossy(&noted));
        if let Some(note) = note {
            self.replace(&self.root, "clock", note.as_bytes(), true)?;
        }
        Ok(epoch)
    }

    /// Whether the path still means this directory, and this lock.
    pub(crate) fn is_here(&self) -> bool {
        rustix::fs::lstat(&self.path).is_ok_and(|found| identity(&found) == self.identity)
    }

    /// Takes the directory's lock. Each holder works for a moment only, so this waits for as long as the lock changes
    /// hands. A holder that was stopped in the middle is waited for until the timeout.
    pub(crate) fn lock(&self) -> Result<Held<'_>> {
        let file = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = || number(&file).map_err(|cause| refused(&self.path, "read the lock", cause));
        let (mut failed, mut seen, mut end) = (0, turn()?, Instant::now() + self.timeout);
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    std::thread::sleep(back_off(failed, FIRST_PAUSE, LONGEST_PAUSE));
                    failed += 1;
                    let now = turn()?;
                    if now != seen {
                        (seen, end) = (now, Instant::now() + self.timeout);
                    }
                }
                Err(TryLockError::WouldBlock) => {
                    let message = format!(
                        "{} was locked for {:?}: a process that uses it stands still",
                        self.path.join("lock").display(),
                        self.timeout
                    );
                    return Err(Error::new(ErrorKind::Unavailable, message).at("file"));
                }
                Err(TryLockError::Error(cause)) => return Err(refused(&self.path, "take the lock", cause)),
            }
        }
        // Only those who wait read it. Without it they may give up early on a disk that is full.
        let _ = put_number(&file, turn()? + 1);
        let held = Held(file);
        let named = rustix::fs::statat(&self.root, "lock", AtFlags::SYMLINK_NOFOLLOW);
        match (named, rustix::fs::fstat(&*held.0)) {
            (Ok(named), Ok(ours)) if identity(&named) == identity(&ours) => Ok(held),
            _ => {
                let message = format!("somebody removed {}'s files: try again", self.path.display());
                Err(Error::new(ErrorKind::Unavailable, message).at("file"))
            }
        }
    }

    /// What a file has; `None` when there is none.
    pub(crate) fn read(&self, directory: &OwnedFd, name: &str) -> Result<Option<Vec<u8>>> {
        let fail = |cause: std::io::Error| refused(&self.path, "read a file", cause);
        let file = match rustix::fs::openat(directory, name, OFlags::RDONLY | SAFELY, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(cause) => return Err(fail(cause.into())),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
        Ok(Some(bytes))
    }

    /// A record as it is stored; `None` when there is none.
    pub(crate) fn slip(&self, name: &str) -> Result<Option<Slip>> {
        let Some(bytes) = self.read(&self.keys, name)? else { return Ok(None) };
        Slip::read(&bytes).map_err(|Foreign| {
            let message = format!("{} is not ours: remove it", self.path.join("keys").join(name).display());
            Error::new(ErrorKind::Conflict, message).at("file")
        })
    }

    /// Replaces a file as a whole: readers see the old one or the new one. What is `lasting` outlives a power cut.
    /// Only with the lock.
    pub(crate) fn replace(&self, directory: &OwnedFd, name: &str, text: &[u8], lasting: bool) -> Result<()> {
        let fail = |cause: std::io::Error| refused(&self.path, "write a file", cause);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | SAFELY;
        let file = rustix::fs::openat(&self.root, NEW, flags, FILE).map_err(|cause| fail(cause.into()))?;
        let mut file = File::from(file);
        file.write_all(text).map_err(fail)?;
        if lasting {
            file.sync_data().map_err(fail)?;
        }
        rustix::fs::renameat(&self.root, NEW, directory, name).map_err(|cause| fail(cause.into()))?;
        if lasting {
            rustix::fs::fsync(directory).map_err(|cause| unknown(&self.path, cause))?;
        }
        Ok(())
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, directory: &OwnedFd, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(refused(&self.path, "remove a file", cause)),
        }
    }

    /// The names in one of its directories.
    pub(crate) fn names(&self, directory: &OwnedFd) -> Result<Vec<String>> {
        let fail = |cause: Errno| refused(&self.path, "list the files", cause);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            names.extend(entry.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// The largest number of all records that were removed.
    pub(crate) fn fence(&self) -> Result<u64> {
        let fence = number(&self.fence).map_err(|cause| refused(&self.path, "read the fence", cause))?;
        self.fence_seen.fetch_max(fence, Ordering::AcqRel);
        Ok(fence)
    }

    /// What it was at least when it was last read.
    pub(crate) fn fence_seen(&self) -> u64 {
        self.fence_seen.load(Ordering::Acquire)
    }

    /// Raises it. Only with the lock.
    pub(crate) fn raise_fence(&self, least: u64) -> Result<()> {
        if self.fence()? >= least {
            return Ok(());
        }
        put_number(&self.fence, least).map_err(|cause| refused(&self.path, "raise the fence", cause))?;
        self.fence_seen.fetch_max(least, Ordering::AcqRel);
        Ok(())
    }
}

/// The number at the beginning of a file; 0 when there is none.
pub(crate) fn number(file: &File) -> std::io::Result<u64> {
    let mut text = [0; 20];
    let length = file.read_at(&mut text, 0)?;
    Ok(std::str::from_utf8(&text[..length]).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Writes it, in one piece and always as long.
pub(crate) fn put_number(file: &File, number: u64) -> std::io::Result<()> {
    file.write_all_at(format!("{number:020}").as_bytes(), 0)
}

/// Which file it is, whatever it is called.
#[allow(clippy::unnecessary_cast, reason = "other systems have other types for them")]
fn identity(found: &Stat) -> (u64, u64) {
    (found.st_dev as u64, found.st_ino as u64)
}

/// Refuses a directory in which others can write: they could make two locks of one.
fn trust(path: &Path, owner: u32, mode: Mode) -> Result<()> {
    let message = if owner != rustix::process::geteuid().as_raw() {
        format!("{} belongs to somebody else: choose a directory of your own", path.display())
    } else if mode.intersects(Mode::WGRP | Mode::WOTH) {
        format!("others may write in {}: make it yours alone with chmod 700", path.display())
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Denied, message).at("file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(directory: &Path) -> Home {
        let url = format!("file://{}?timeout=200ms", directory.display());
        let target = Target::parse(&url).expect("the URL makes sense");
        Home::open(&target, &Warnings::default()).expect("the directory is ours")
    }

    /// Another process leaves no gap between its turns, so that whoever looks from time to time finds the lock taken.
    #[test]
    fn lock_that_changes_hands_is_waited_for() {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let (ours, busy) = (home(directory.path()), home(directory.path()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let works = std::thread::spawn(move || {
            for turn in 0..20 {
                let _held = busy.lock().expect("it is free for a moment");
                if turn == 0 {
                    sender.send(()).expect("the test goes on");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        receiver.recv().expect("the other process has its first turn");
        let held = ours.lock();
        assert!(held.is_ok(), "{held:?}");
        drop(held);
        works.join().expect("the other process gets all of its turns");
    }
}
