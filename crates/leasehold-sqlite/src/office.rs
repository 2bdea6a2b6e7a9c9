//! Who carries out requests: a caller when nothing is in the way, else a thread of ours.
//!
//! Handing a request to a thread and back costs more than a whole transaction, so a caller that finds the
//! connection free does its own step, which never waits and never syncs. One that finds it taken leaves its
//! request in the queue, and whoever has the connection serves the queue, all in one transaction, before it
//! goes. What may wait is the thread's: another process has the file, a commit must be synced, the log has
//! grown long.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use leasehold_core::{Info, Result, Warnings};
use tokio::sync::oneshot;

use crate::fault::Stop;
use crate::format;
use crate::job::{Job, Request};
use crate::settings::{Settings, SyncMode};
use crate::step::{Desk, Mode, Step};
use crate::store::INFO;
use crate::wake::Inboxes;

/// How long the file may be busy before a request is given up.
const GIVE_UP: Duration = Duration::from_secs(10);
/// The most requests in one transaction: other processes wait for it.
const BATCH: usize = 64;
/// How many such transactions a caller makes for others before it leaves the rest to the thread.
const FAVOURS: usize = 2;
/// How many pages the log may have before it is moved into the file: 4 MB. Moving it costs three syncs
/// whatever its length and everybody waits for them; but adding a page costs more, the longer the log is.
const LOG_PAGES: i64 = 2000;

/// A log of at most this many pages stays for the next process. To move it into the file and to delete it takes four
/// syncs, and the next process would have to make it again.
const LOG_PAGES_AT_CLOSE: i64 = 64;

/// The file, the requests that wait for it and those who are told what came of them.
#[derive(Debug)]
pub(crate) struct Office {
    path: PathBuf,
    settings: Settings,
    inboxes: Inboxes,
    /// Set when the file is first opened, with what was checked.
    info: OnceLock<Info>,
    warnings: Warnings,
    /// `None` until the thread has opened the file.
    desk: Mutex<Option<Desk>>,
    queue: Mutex<Queue>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Job>>,
    chores: bool,
    closed: bool,
}

impl Office {
    pub(crate) fn new(path: PathBuf, settings: Settings) -> Self {
        let (inboxes, info, warnings, desk, queue, bell) = Default::default();
        Self { path, settings, inboxes, info, warnings, desk, queue, bell }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn info(&self) -> &Info {
        self.info.get().unwrap_or(&INFO)
    }

    pub(crate) fn inboxes(&self) -> &Inboxes {
        &self.inboxes
    }

    /// Whether no caller may commit by itself, because every commit waits for the disk.
    pub(crate) fn always_syncs(&self) -> bool {
        self.settings.sync == SyncMode::Full
    }

    /// Puts a request at the end of the queue.
    pub(crate) fn enter<T, F>(&self, mode: Mode, body: F) -> oneshot::Receiver<Result<T>>
    where
        T: Send + 'static,
        F: Fn(&mut Step<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.queue().jobs.push_back(Box::new(Request::new(mode, body, reply)));
        answer
    }

    /// The desk, if nobody has it. Whoever has it looks at the queue after letting go, so who finds it taken
    /// and has put its request into the queue will be served.
    fn free_desk(&self) -> Option<MutexGuard<'_, Option<Desk>>> {
        match self.desk.try_lock() {
            Ok(desk) => Some(desk),
            // A transaction that a panic left open is undone by the next step.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Does it on the spot if nothing is in the way.
    pub(crate) fn try_alone<T>(
        &self,
        mode: Mode,
        body: impl Fn(&mut Step<'_>) -> Result<T>,
    ) -> Option<Result<T>> {
        let mut guard = self.free_desk()?;
        let desk = guard.as_mut().filter(|_| self.queue().jobs.is_empty())?;
        let result = desk.step(mode, body);
        let is_untidy = desk.is_untidy();
        drop(guard);
        let done = match result {
            Ok((value, notices)) => {
                self.inboxes.tell(notices);
                Some(Ok(value))
            }
            Err(Stop::Busy | Stop::NeedsSync | Stop::Moved) => None,
            Err(stop) => Some(Err(stop.into_error())),
        };
        self.serve_here();
        if is_untidy {
            self.ask_for_chores();
        }
        done
    }

    /// Serves the queue on the caller's thread, as long as that needs no waiting.
    pub(crate) fn serve_here(&self) {
        for _ in 0..FAVOURS {
            if self.queue().jobs.is_empty() {
                return;
            }
            let Some(mut guard) = self.free_desk() else { return };
            let Some(desk) = guard.as_mut() else { break };
            let mut jobs = self.next_batch();
            let result = desk.step(mode_of(&jobs), |step| run(&mut jobs, step));
            let is_untidy = desk.is_untidy();
            let Ok(((), notices)) = result else {
                // The thread finds out what is the matter, and with which.
                let mut queue = self.queue();
                jobs.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
                break;
            };
            drop(guard);
            self.inboxes.tell(notices);
            jobs.into_iter().for_each(|job| job.answer());
            if is_untidy {
                self.ask_for_chores();
            }
        }
        self.ring();
    }

    /// Wakes the thread.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.queue().closed = true;
        self.ring();
    }

    pub(crate) fn ask_for_chores(&self) {
        self.queue().chores = true;
        self.ring();
    }

    /// The thread's life.
    pub(crate) fn serve(&self) {
        loop {
            let mut queue = self.queue();
            while queue.jobs.is_empty() && !queue.chores && !queue.closed {
                queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.closed {
                break;
            }
            let chores = std::mem::take(&mut queue.chores);
            drop(queue);
            // Locked before the jobs leave the queue: who finds the queue empty and the desk free comes
            // after everything that was queued.
            let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
            let jobs = self.next_batch();
            self.work(&mut desk, jobs, chores);
        }
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(desk) = desk.take()
            && let Err(error) = format::checkpoint(&desk.connection, LOG_PAGES_AT_CLOSE)
        {
            tracing::debug!(%error, "the log was not moved into the file");
        }
    }

    fn next_batch(&self) -> Vec<Box<dyn Job>> {
        let mut queue = self.queue();
        let count = queue.jobs.len().min(BATCH);
        queue.jobs.drain(..count).collect()
    }

    fn work(&self, desk: &mut Option<Desk>, jobs: Vec<Box<dyn Job>>, chores: bool) {
        if desk.as_ref().is_some_and(Desk::has_moved) {
            tracing::warn!(
                "the lock file was deleted or replaced while in use: all that was held in it is lost"
            );
            *desk = None;
        }
        if desk.is_none() {
            match self.open() {
                Ok(opened) => *desk = Some(opened),
                Err(stop) => return fail(jobs, stop),
            }
        }
        let Some(desk) = desk else { return };
        if !jobs.is_empty() {
            self.do_all(desk, jobs);
        }
        if (chores || desk.is_untidy())
            && let Err(stop) = self.tidy(desk)
        {
            tracing::debug!(error = %stop.into_error(), "housekeeping did not happen");
        }
    }

    fn open(&self) -> Result<Desk, Stop> {
        let (mut connection, file, mut checks) =
            self.patiently(|| format::open(&self.path, &self.settings, &self.warnings))?;
        checks.extend(self.patiently(|| format::install(&mut connection, &self.settings))?);
        self.info.get_or_init(|| Info { checks, ..INFO.clone() });
        Ok(Desk::new(connection, file, self.settings.clone()))
    }

    /// All jobs in one transaction; when one of them fails, each in its own.
    fn do_all(&self, desk: &mut Desk, mut jobs: Vec<Box<dyn Job>>) {
        let mode = mode_of(&jobs);
        match self.step(desk, mode, |step| run(&mut jobs, step)) {
            Ok(()) => jobs.into_iter().for_each(|job| job.answer()),
            Err(Stop::Failed(_)) if jobs.len() > 1 => {
                for job in jobs {
                    self.do_all(desk, vec![job]);
                }
            }
            Err(stop) => fail(jobs, stop),
        }
    }

    /// Moves a long log into the file and sweeps. In this order, because the first write after a
    /// checkpoint syncs the new log's header, and that should not happen to a caller. If another process has
    /// the file, it can be done another time.
    fn tidy(&self, desk: &mut Desk) -> Result<(), Stop> {
        desk.note_tidied();
        if !desk.has_joined() {
            return Ok(());
        }
        let moved = format::checkpoint(&desk.connection, LOG_PAGES)?;
        self.step_now(desk, Mode::Write, |step| {
            if moved {
                step.fence.touch();
            }
            step.sweep()
        })
    }

    /// A step that waits until it can be done.
    fn step<T>(
        &self,
        desk: &mut Desk,
        mode: Mode,
        mut body: impl FnMut(&mut Step<'_>) -> Result<T>,
    ) -> Result<T, Stop> {
        self.patiently(|| self.step_now(desk, mode, &mut body))
    }

    /// A step that is synced if it must be, and then tells everybody.
    fn step_now<T>(
        &self,
        desk: &mut Desk,
        mode: Mode,
        mut body: impl FnMut(&mut Step<'_>) -> Result<T>,
    ) -> Result<T, Stop> {
        let (value, notices) = match desk.step(mode, &mut body) {
            Err(Stop::NeedsSync) => desk.step(Mode::Synced, &mut body)?,
            other => other?,
        };
        self.inboxes.tell(notices);
        Ok(value)
    }

    /// Tries until the file is not busy, with pauses that differ from everybody else's: SQLite's own
    /// waiting lets some processes starve.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> Result<T, Stop>) -> Result<T, Stop> {
        let deadline = Instant::now() + GIVE_UP;
        let mut longest = 200;
        loop {
            match attempt() {
                Err(Stop::Busy) if Instant::now() < deadline && !self.queue().closed => {
                    std::thread::sleep(Duration::from_micros(fastrand::u64(50..longest)));
                    longest = (longest * 2).min(5_000);
                }
                result => return result,
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does all that somebody still waits for.
fn run(jobs: &mut [Box<dyn Job>], step: &mut Step<'_>) -> Result<()> {
    jobs.iter_mut().filter(|job| job.is_wanted()).try_for_each(|job| job.run(step))
}

/// What all of them together need.
fn mode_of(jobs: &[Box<dyn Job>]) -> Mode {
    if jobs.iter().all(|job| job.mode() == Mode::Read) { Mode::Read } else { Mode::Write }
}

/// Tells all jobs why nothing came of them.
fn fail(jobs: Vec<Box<dyn Job>>, stop: Stop) {
    let mut jobs = jobs.into_iter();
    let Some(first) = jobs.next() else { return };
    for job in jobs {
        job.fail(stop.copy().into_error());
    }
    first.fail(stop.into_error());
}
