//! Who carries out requests: a caller when nothing is in the way, else a thread of ours.
//!
//! Handing a request to a thread and back costs more than a whole transaction, so a caller that finds the
//! connection free does its own step, which never waits and never syncs. One that finds it taken leaves its
//! request in the queue, and whoever has the connection serves the queue, all in one transaction, before it
//! goes. What may wait is the thread's: another process has the file, a commit must be synced, the log has
//! grown long.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leasehold_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::fault::Stop;
use crate::format;
use crate::job::{Job, Request};
use crate::settings::{Settings, SyncMode};
use crate::step::{Desk, Mode, Step};
use crate::wake::Inboxes;

/// How long the file may be busy before a request is given up.
const GIVE_UP: Duration = Duration::from_secs(10);
/// The most requests in one transaction: other processes wait for it.
const BATCH: usize = 64;
/// How many such transactions a caller makes for others before it leaves the rest to the thread.
const FAVOURS: usize = 2;
/// After how many commits of ours the thread looks at the log and sweeps.
const CHORES_EVERY: u64 = 256;
/// How many pages the log may have before it is moved into the file: 8 MB. Moving it costs three syncs
/// whatever its length, and everybody waits for them.
const LOG_PAGES: i64 = 4000;

/// The open file, its queue of requests and the thread that serves it. Dropping it ends the thread and
/// closes the file.
#[derive(Debug)]
pub(crate) struct Clerk {
    office: Arc<Office>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Office {
    path: PathBuf,
    settings: Settings,
    inboxes: Inboxes,
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

impl Clerk {
    /// Starts the thread. The file is opened with the first request.
    pub(crate) fn start(path: &Path, settings: Settings) -> Result<Self> {
        let office = Arc::new(Office {
            path: path.to_owned(),
            settings,
            inboxes: Inboxes::default(),
            desk: Mutex::default(),
            queue: Mutex::default(),
            bell: Condvar::new(),
        });
        let serve = {
            let office = office.clone();
            move || office.serve()
        };
        let thread = std::thread::Builder::new().name("leasehold-sqlite".to_owned()).spawn(serve);
        let thread = thread.map_err(|e| {
            let message = "no thread to be had: raise the limit on processes";
            Error::new(ErrorKind::Unavailable, message).at("sqlite").because(e)
        })?;
        Ok(Self { office, thread: Some(thread) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.office.path
    }

    pub(crate) fn inboxes(&self) -> &Inboxes {
        &self.office.inboxes
    }

    /// Opens the file, if it is not open, and has the thread tidy up what others left.
    pub(crate) async fn open(&self) -> Result<()> {
        self.have_done(Mode::Read, |_| Ok(())).await?;
        self.office.ask_for_chores();
        Ok(())
    }

    /// Carries out a request: completely or, when this future is dropped early enough, not at all.
    pub(crate) async fn carry_out<T, F>(&self, mode: Mode, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut Step<'_>) -> Result<T> + Send + 'static,
    {
        // A call that never waits must still let the runtime's other tasks have their turn.
        tokio::task::coop::consume_budget().await;
        if mode != Mode::Read && self.office.settings.sync == SyncMode::Full {
            return self.have_done(mode, body).await;
        }
        match self.office.try_alone(mode, &body) {
            Some(result) => result,
            None => {
                let answer = self.office.enter(mode, body);
                self.office.serve_here();
                hear(answer).await
            }
        }
    }

    /// Leaves a request to the thread.
    pub(crate) async fn have_done<T, F>(&self, mode: Mode, body: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut Step<'_>) -> Result<T> + Send + 'static,
    {
        let answer = self.office.enter(mode, body);
        self.office.bell.notify_one();
        hear(answer).await
    }
}

async fn hear<T>(answer: oneshot::Receiver<Result<T>>) -> Result<T> {
    answer.await.unwrap_or_else(|_| {
        let message = "the store's thread has ended: open the store again";
        Err(Error::new(ErrorKind::Indeterminate, message).at("sqlite"))
    })
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.office.queue().closed = true;
        self.office.bell.notify_one();
        if let Some(thread) = self.thread.take() {
            // Nobody is left to tell that it panicked; those who waited for it were told.
            let _ = thread.join();
        }
    }
}

impl Office {
    /// Puts a request at the end of the queue.
    fn enter<T, F>(&self, mode: Mode, body: F) -> oneshot::Receiver<Result<T>>
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
    fn try_alone<T>(&self, mode: Mode, body: impl Fn(&mut Step<'_>) -> Result<T>) -> Option<Result<T>> {
        let mut guard = self.free_desk()?;
        let desk = guard.as_mut().filter(|_| self.queue().jobs.is_empty())?;
        let result = desk.step(mode, body);
        let chores_are_due = mode != Mode::Read && desk.commits() % CHORES_EVERY == 0;
        drop(guard);
        self.serve_here();
        if chores_are_due {
            self.ask_for_chores();
        }
        match result {
            Ok((value, notices)) => {
                self.inboxes.tell(notices);
                Some(Ok(value))
            }
            Err(Stop::Busy | Stop::NeedsSync) => None,
            Err(stop) => Some(Err(stop.into_error())),
        }
    }

    /// Serves the queue on the caller's thread, as long as that needs no waiting.
    fn serve_here(&self) {
        for _ in 0..FAVOURS {
            if self.queue().jobs.is_empty() {
                return;
            }
            let Some(mut guard) = self.free_desk() else { return };
            let Some(desk) = guard.as_mut() else { break };
            let (mut jobs, chores) = self.next_batch();
            let result = desk.step(mode_of(&jobs), |step| jobs.iter_mut().try_for_each(|job| job.run(step)));
            if chores {
                self.ask_for_chores();
            }
            let Ok(((), notices)) = result else {
                // The thread finds out what is the matter, and with which.
                let mut queue = self.queue();
                jobs.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
                break;
            };
            drop(guard);
            self.inboxes.tell(notices);
            jobs.into_iter().for_each(|job| job.answer());
        }
        self.bell.notify_one();
    }

    fn ask_for_chores(&self) {
        self.queue().chores = true;
        self.bell.notify_one();
    }

    /// The thread's life.
    fn serve(&self) {
        loop {
            let mut queue = self.queue();
            while queue.jobs.is_empty() && !queue.chores && !queue.closed {
                queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.closed {
                break;
            }
            drop(queue);
            // Locked before the jobs leave the queue: who finds the queue empty and the desk free comes
            // after everything that was queued.
            let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
            let (jobs, chores) = self.next_batch();
            self.work(&mut desk, jobs, chores);
        }
        // Closing the last connection to the file also tidies up its log.
        *self.desk.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn next_batch(&self) -> (Vec<Box<dyn Job>>, bool) {
        let mut queue = self.queue();
        let count = queue.jobs.len().min(BATCH);
        let jobs = queue.jobs.drain(..count).filter(|job| job.is_wanted()).collect();
        (jobs, std::mem::take(&mut queue.chores))
    }

    fn work(&self, desk: &mut Option<Desk>, jobs: Vec<Box<dyn Job>>, chores: bool) {
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
        if chores && let Err(stop) = self.tidy(desk) {
            tracing::debug!(error = %stop.into_error(), "housekeeping did not happen");
        }
    }

    fn open(&self) -> Result<Desk, Stop> {
        let mut connection = self.patiently(|| format::open(&self.path))?;
        self.patiently(|| format::install(&mut connection, &self.settings))?;
        Ok(Desk::new(connection, self.settings.clone()))
    }

    /// All jobs in one transaction; when one of them fails, each in its own.
    fn do_all(&self, desk: &mut Desk, mut jobs: Vec<Box<dyn Job>>) {
        let mode = mode_of(&jobs);
        match self.step(desk, mode, |step| jobs.iter_mut().try_for_each(|job| job.run(step))) {
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
    /// checkpoint syncs the new log's header, and that should not happen to a caller.
    fn tidy(&self, desk: &mut Desk) -> Result<(), Stop> {
        if !desk.has_joined() {
            return Ok(());
        }
        let moved = format::checkpoint(&desk.connection, LOG_PAGES)?;
        self.step(desk, Mode::Write, |step| {
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
        mut mode: Mode,
        mut body: impl FnMut(&mut Step<'_>) -> Result<T>,
    ) -> Result<T, Stop> {
        let (value, notices) = self.patiently(|| match desk.step(mode, &mut body) {
            Err(Stop::NeedsSync) => {
                mode = Mode::Synced;
                desk.step(mode, &mut body)
            }
            other => other,
        })?;
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
