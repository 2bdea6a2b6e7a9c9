//! Sessions: a file that its client keeps locked, so that the kernel ends them with the process, and that says until when
//! the client was last at work, so that one that stands still ends too.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::record::{Joined, Message, Session};
use leasehold_core::{BootClock, ClaimId, Clock, Inbox, Moment, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::fault::refused;
use crate::home::{Home, SAFELY, number, put_number};

/// How long a session that was seen alive is believed in. Part of what a session may end late by.
pub(crate) const BELIEVED: Duration = Duration::from_millis(20);

/// A session that was renewed less than this part of its lease ago is as good as one that is renewed now.
const FRESH: u32 = 100;

/// More news than this nobody reads: their reader stands still, and asks when it goes on.
const MOST_NEWS: u64 = 1024 * 1024;

/// A session of this process.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) session: Session,
    pub(crate) inbox: Inbox,
    lease: Duration,
    pub(crate) home: Arc<Home>,
    /// Locked for as long as it is open.
    file: File,
    news: Mutex<File>,
    until: AtomicU64,
    is_idle: AtomicBool,
    pub(crate) is_watched: AtomicBool,
}

impl Live {
    fn open(home: Arc<Home>, inbox: Inbox, lease: Duration) -> Result<Self> {
        let name: String = ClaimId::random()?.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let fail = |cause: std::io::Error| refused(&home.path, "open a session", cause);
        let create = |directory| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | SAFELY;
            let made = rustix::fs::openat(directory, &name, flags, Mode::from_raw_mode(0o600));
            made.map(File::from).map_err(|cause| fail(cause.into()))
        };
        // Nobody sees it before it is locked: whoever looks for abandoned ones has the lock.
        let held = home.lock()?;
        let until = home.epoch.now() + millis(lease);
        let (news, file) = (create(&home.news)?, create(&home.sessions)?);
        file.lock().map_err(fail)?;
        put_number(&file, until).map_err(fail)?;
        drop(held);
        let (session, news) = (Session(name.into()), Mutex::new(news));
        let until = AtomicU64::new(until);
        let (is_idle, is_watched) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { session, inbox, lease, home, file, news, until, is_idle, is_watched })
    }

    /// Whether others may take it for over.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero() || self.file.metadata().map_or(true, |found| found.nlink() == 0)
    }

    fn left(&self) -> Duration {
        let until = self.until.load(Ordering::Acquire);
        Duration::from_millis(until.saturating_sub(self.home.epoch.now()))
    }

    /// From now on for its whole length, unless it is over.
    fn renew(&self) -> Result<Option<Duration>> {
        // In a directory that is gone there is no lock either.
        if !self.home.is_here() {
            return Ok(None);
        }
        let _held = self.home.lock()?;
        if self.is_over() {
            return Ok(None);
        }
        let until = self.home.epoch.now() + millis(self.lease);
        put_number(&self.file, until).map_err(|cause| refused(&self.home.path, "renew a session", cause))?;
        self.until.store(until, Ordering::Release);
        Ok(Some(self.lease))
    }

    /// What it was told since the last time.
    pub(crate) fn news(&self) -> Vec<Message> {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = Vec::new();
        if news.read_to_end(&mut text).is_err() {
            return Vec::new();
        }
        // All was read: begin again before it grows.
        if news.stream_position().is_ok_and(|at| at > MOST_NEWS / 2)
            && let Ok(_held) = self.home.lock()
            && news.read_to_end(&mut text).is_ok()
        {
            let _ = news.set_len(0).and_then(|()| news.seek(SeekFrom::Start(0)));
        }
        text.split(|byte| *byte == b'\n').filter_map(Message::read).collect()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Whatever stays is swept by others: the lock goes with the file.
        let _ = self.home.remove(&self.home.news, &self.session.0);
        let _ = self.home.remove(&self.home.sessions, &self.session.0);
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The sessions of this process, and what is known of others'.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    ours: Mutex<HashMap<(Inbox, Duration), Arc<Live>>>,
    seen: Mutex<HashMap<Session, Moment>>,
}

impl Guests {
    fn ours(&self) -> MutexGuard<'_, HashMap<(Inbox, Duration), Arc<Live>>> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Session, Moment>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, session: &Session) -> Option<Arc<Live>> {
        self.ours().values().find(|live| live.session == *session).cloned()
    }

    /// The sessions of this process that nobody has started to watch.
    pub(crate) fn unwatched(&self) -> Vec<Arc<Live>> {
        let is_new = |live: &&Arc<Live>| !live.is_watched.swap(true, Ordering::AcqRel);
        self.ours().values().filter(is_new).cloned().collect()
    }

    /// The session of a client, and whether it is new.
    pub(crate) fn join(&self, home: Arc<Home>, inbox: Inbox, lease: Duration) -> Result<(Joined, bool)> {
        let mut ours = self.ours();
        if let Some(live) = ours.get(&(inbox, lease)) {
            let is_there = Arc::ptr_eq(&live.home, &home) && !live.is_over();
            let (left, was_idle) = (live.left(), live.is_idle.swap(false, Ordering::AcqRel));
            // A claim that is repeated renews, and one that comes first has its whole lease, but not all of them write.
            let left = match is_there {
                true if was_idle || left < lease * 2 / 3 => live.renew()?,
                true => Some(left),
                false => None,
            };
            if let Some(left) = left {
                return Ok((Joined { session: live.session.clone(), left }, false));
            }
            ours.remove(&(inbox, lease));
        }
        let live = Arc::new(Live::open(home, inbox, lease)?);
        let session = live.session.clone();
        ours.insert((inbox, lease), live);
        Ok((Joined { session, left: lease }, true))
    }

    /// The same where that needs no file and waits for nobody; `None` elsewhere.
    pub(crate) fn joined(&self, home: &Arc<Home>, inbox: Inbox, lease: Duration) -> Option<Joined> {
        let live = self.ours.try_lock().ok()?.get(&(inbox, lease))?.clone();
        let is_idle = live.is_idle.load(Ordering::Acquire);
        let (left, enough) = (live.left(), if is_idle { lease - lease / FRESH } else { lease * 2 / 3 });
        if !Arc::ptr_eq(&live.home, home) || left < enough || live.is_over() {
            return None;
        }
        live.is_idle.store(false, Ordering::Release);
        Some(Joined { session: live.session.clone(), left })
    }

    /// Whether all of these are known to live, without a file.
    pub(crate) fn are_ours(&self, sessions: &[Session]) -> bool {
        let Ok(ours) = self.ours.try_lock() else { return false };
        let lives = |session: &Session| ours.values().any(|live| live.session == *session && !live.is_over());
        sessions.iter().all(lives)
    }

    pub(crate) fn renew(&self, session: &Session) -> Result<Option<Duration>> {
        let Some(live) = self.find(session) else { return Ok(None) };
        let left = live.renew()?;
        if left.is_none() {
            self.ours().retain(|_, live| live.session != *session);
        }
        Ok(left)
    }

    /// It carries nothing any more; the next claim finds it open.
    pub(crate) fn idle(&self, session: &Session) {
        if let Some(live) = self.find(session) {
            live.is_idle.store(true, Ordering::Release);
        }
    }

    /// Clients are gone.
    pub(crate) fn close(&self, is_gone: impl Fn(Inbox) -> bool) {
        self.ours().retain(|(inbox, _), _| !is_gone(*inbox));
    }

    /// Which of these are over.
    pub(crate) fn dead(&self, home: &Home, sessions: &[Session]) -> Result<Vec<Session>> {
        let mut dead = Vec::new();
        for session in sessions {
            let at = BootClock.now();
            let is_over = match self.find(session) {
                Some(live) => live.is_over(),
                None if self.seen().get(session).is_some_and(|seen| at.since(*seen) < BELIEVED) => false,
                None => self.look_at(home, session)?,
            };
            if is_over {
                dead.push(session.clone());
            }
        }
        Ok(dead)
    }

    /// Whether a session of another process is over. Its files are removed then.
    pub(crate) fn look_at(&self, home: &Home, session: &Session) -> Result<bool> {
        let at = BootClock.now();
        let is_over = is_over(home, session)?;
        let mut seen = self.seen();
        if is_over {
            seen.remove(session);
        } else {
            seen.insert(session.clone(), at);
        }
        Ok(is_over)
    }

    /// Whether it was ever asked about: then its end matters to somebody here.
    pub(crate) fn is_known(&self, session: &Session) -> bool {
        self.seen().contains_key(session)
    }
}

/// Whether a session is over, of which others know only its file.
fn is_over(home: &Home, session: &Session) -> Result<bool> {
    let name = &*session.0;
    // It stands in a record, which anybody of this user could have written.
    if name.len() != 32 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(true);
    }
    let fail = |cause: std::io::Error| refused(&home.path, "look at a session", cause);
    let file = match rustix::fs::openat(&home.sessions, name, OFlags::RDONLY | SAFELY, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(true),
        Err(cause) => return Err(fail(cause.into())),
    };
    match file.try_lock_shared() {
        // Nobody has it: its process is gone.
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            if number(&file).map_err(fail)? > home.epoch.now() {
                return Ok(false);
            }
            // Its process stands still. Once more with the lock, so that it cannot go on in the same moment.
            let _held = home.lock()?;
            if number(&file).map_err(fail)? > home.epoch.now() {
                return Ok(false);
            }
            remove(home, name)?;
            return Ok(true);
        }
        Err(TryLockError::Error(cause)) => return Err(fail(cause)),
    }
    remove(home, name)?;
    Ok(true)
}

fn remove(home: &Home, name: &str) -> Result<()> {
    home.remove(&home.news, name)?;
    home.remove(&home.sessions, name)
}

/// Removes the sessions whose processes are gone.
pub(crate) fn sweep(home: &Home) -> Result<()> {
    let _held = home.lock()?;
    for name in home.names(&home.sessions)? {
        let file = rustix::fs::openat(&home.sessions, &name, OFlags::RDONLY | SAFELY, Mode::empty());
        if file.map(File::from).is_ok_and(|file| file.try_lock_shared().is_ok()) {
            remove(home, &name)?;
        }
    }
    Ok(())
}

/// Tells another process's client, if it is still there. Only with the lock.
pub(crate) fn tell(home: &Home, session: &Session, line: &[u8]) {
    let flags = OFlags::WRONLY | OFlags::APPEND | SAFELY;
    let Ok(file) = rustix::fs::openat(&home.news, &*session.0, flags, Mode::empty()) else { return };
    let mut file = File::from(file);
    if file.metadata().is_ok_and(|found| found.len() < MOST_NEWS) {
        // A hint: whoever misses it asks.
        let _ = file.write_all(&[line, b"\n"].concat());
    }
}
