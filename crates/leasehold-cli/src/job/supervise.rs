//! Program, lock, signals and terminal, watched together until one of them ends it.
//!
//! The lock ends with the program itself. What the program left running in its group is not waited for and not
//! killed; only the loss of the lock ends the whole group.

use std::io;
use std::time::Duration;

use leasehold::{BootClock, Clock, Guard, Loss, Moment};
use rustix::process::{Signal, getpid};
use tokio::time::{sleep, timeout};

use super::guardian::Guardian;
use super::locks::holds_write_lock;
use super::margin::Margin;
use super::process::{Change, Job};
use super::signals::{self, Incoming};
use super::table;
use super::terminal::Terminal;
use crate::exit::Exit;
use crate::output::{Remark, flushed};
use crate::settings::OnAsk;

/// How often the guardian hears of renewals: often enough for one that came at the last moment.
const REPORTS: u32 = 20;

/// How long killed processes may take to go away before we stop waiting for them.
const DYING: Duration = Duration::from_secs(2);

/// How long a write to a file may take before we stop in the middle of it.
const WRITING: Duration = Duration::from_millis(500);

/// How it ended.
pub(crate) enum End {
    /// The program ended by itself.
    Program {
        exit: Exit,
        /// The terminal's Ctrl-C or Ctrl-\ that ended it, which our own group has not seen.
        unseen: Option<Signal>,
    },
    /// Others asked for the lock, and the group was ended for them.
    GaveWay(Exit),
    /// The lock was lost, and the group is dead.
    Lost(Loss),
}

/// Everything that is watched.
pub(crate) struct Supervisor<'a> {
    pub(crate) job: Job,
    pub(crate) guard: &'a Guard,
    pub(crate) guardian: &'a mut Guardian,
    pub(crate) incoming: &'a mut Incoming,
    pub(crate) terminal: Option<Terminal>,
    /// The job is in the foreground of the terminal.
    pub(crate) given: bool,
    pub(crate) margin: Margin,
    pub(crate) grace: Duration,
    pub(crate) on_ask: OnAsk,
}

impl Supervisor<'_> {
    /// Watches until the program has ended or the lock is lost.
    ///
    /// # Errors
    /// If the program cannot be watched or guarded any longer. Its group is dead then.
    pub(crate) async fn watch(mut self) -> io::Result<End> {
        let (ended, gives_way_by) = match self.wait_for_an_end().await {
            Ok(found) => found,
            Err(error) => {
                // A program that nothing watches could outlive the lock.
                let rest = self.grace_left();
                self.end_group(rest).await;
                return Err(error);
            }
        };
        match (ended, gives_way_by) {
            // We ended it before its time: what it has started may still be at work.
            (Some(exit), Some(by)) if self.guard.is_valid() => {
                let (guard, rest) = (self.guard, by.since(BootClock.now()).min(self.time_left()));
                self.end_group(rest).await;
                Ok(if guard.is_valid() { End::GaveWay(exit) } else { End::Lost(guard.lost().await) })
            }
            (Some(exit), None) if self.guard.is_valid() => Ok(self.ended(exit)),
            _ => {
                let loss = self.guard.lost().await;
                let rest = self.grace_left();
                self.end_group(rest).await;
                Ok(End::Lost(loss))
            }
        }
    }

    /// Returns how the program ended, or `None` if the lock was lost first; and by when the program must give way, if
    /// another client has asked for the lock.
    async fn wait_for_an_end(&mut self) -> io::Result<(Option<Exit>, Option<Moment>)> {
        let mut children = signals::listen(Signal::CHILD)?;
        let (mut asked, mut gives_way_by, mut killed) = (false, None::<Moment>, false);
        loop {
            if self.guard.is_valid() {
                self.report()?;
            }
            let grace_left = gives_way_by.map_or(Duration::MAX, |by| by.since(BootClock.now()));
            tokio::select! {
                biased;
                change = self.job.change() => match change? {
                    Change::Ended(exit) => return Ok((Some(exit), gives_way_by)),
                    Change::Stopped(signal) => self.stopped(signal).await?,
                },
                _ = self.guard.lost() => return Ok((None, gives_way_by)),
                signal = self.incoming.next() => self.pass_on(signal).await?,
                () = self.guard.asked_to_release(), if !asked => {
                    asked = true;
                    gives_way_by = self.asked().await;
                }
                () = sleep(grace_left), if gives_way_by.is_some() && !killed => {
                    self.job.signal(Signal::KILL);
                    killed = true;
                }
                _ = children.recv() => table::reap_orphans(&[self.job.group(), self.guardian.pid()]),
                () = sleep(self.margin.lease() / REPORTS) => {}
            }
        }
    }

    /// Tells the guardian until when the lock is known to be ours, and makes sure that there is one.
    fn report(&mut self) -> io::Result<()> {
        self.guardian.tend()?;
        self.margin.update(BootClock.now(), self.guard.valid_for());
        self.guardian.kill_at(self.margin.guardian_kills_at())
    }

    /// Until the group must be dead.
    fn time_left(&self) -> Duration {
        self.margin.runner_kills_at().since(BootClock.now())
    }

    /// The same, for a group that was given no time yet.
    fn grace_left(&self) -> Duration {
        self.time_left().min(self.margin.grace()).min(self.grace)
    }

    /// Others want the lock. If they are to have it the program is asked to end: says by when it must have.
    async fn asked(&self) -> Option<Moment> {
        Remark::Asked { key: self.guard.key().as_str() }.tell();
        flushed().await;
        (self.on_ask == OnAsk::GiveWay).then(|| {
            self.job.signal(Signal::TERM);
            // A stopped process sees the TERM only when it goes on.
            self.job.signal(Signal::CONT);
            BootClock.now() + self.grace
        })
    }

    fn ended(mut self, exit: Exit) -> End {
        // The shell that runs us in a script shares our group, not the program's: it must hear of a Ctrl-C too.
        let unseen = match exit {
            Exit::Signal(raw) if self.given && signals::own_group() != Some(getpid()) => {
                Signal::from_named_raw(raw)
            }
            _ => None,
        };
        let unseen = unseen.filter(|signal| [Signal::INT, Signal::QUIT].contains(signal));
        self.take_back();
        // Before the group's number can be another's.
        self.guardian.forget();
        self.job.reap();
        End::Program { exit, unseen }
    }

    /// TERM, and after `rest` KILL, for everybody in the group.
    async fn end_group(mut self, rest: Duration) {
        self.job.signal(Signal::TERM);
        // A stopped process sees the TERM only when it goes on; with no time left it must not go on.
        if !rest.is_zero() {
            self.job.signal(Signal::CONT);
        }
        let guardian = self.guardian.pid();
        if !self.job.wait_for_group(rest, guardian).await {
            self.job.signal(Signal::KILL);
            self.job.wait_for_group(DYING, guardian).await;
        }
        self.take_back();
        if let Some(terminal) = &self.terminal {
            terminal.restore_modes();
        }
        self.guardian.forget();
    }

    async fn pass_on(&mut self, signal: Signal) -> io::Result<()> {
        self.job.signal(signal);
        if signal == Signal::TSTP { self.pause(signal).await } else { Ok(()) }
    }

    /// The program was stopped.
    async fn stopped(&mut self, by: Signal) -> io::Result<()> {
        let wants_terminal = [Signal::TTIN, Signal::TTOU].contains(&by);
        match &self.terminal {
            Some(terminal) if wants_terminal && terminal.is_ours() => {
                self.give();
                self.job.signal(Signal::CONT);
                Ok(())
            }
            Some(_) if wants_terminal || self.given => self.pause(by).await,
            // Somebody stopped it by hand, and will continue it.
            _ => Ok(()),
        }
    }

    /// The job is stopped, so we stop too, and the shell has its prompt. Nobody renews the lease meanwhile: if
    /// it runs out the guardian kills the job, and we find the lock lost when we are continued.
    async fn pause(&mut self, by: Signal) -> io::Result<()> {
        let had_terminal = self.given;
        self.take_back();
        // The store's own thread may be writing to a file, and would keep it locked for all others.
        let patience = BootClock.now() + WRITING;
        while BootClock.now() < patience && holds_write_lock(getpid()) == Some(true) {
            sleep(Duration::from_millis(1)).await;
        }
        let mut continued = signals::listen(Signal::CONT)?;
        signals::suffer(if by == Signal::STOP { Signal::TSTP } else { by });
        // The kernel lets nobody stop whom nobody would continue: then this goes on at once.
        let was_stopped = timeout(Duration::from_millis(100), continued.recv()).await.is_ok();
        if !self.guard.is_valid() {
            return Ok(());
        }
        let ours = self.terminal.as_ref().is_some_and(Terminal::is_ours);
        let wants_terminal = [Signal::TTIN, Signal::TTOU].contains(&by);
        if ours && (had_terminal || wants_terminal) {
            self.give();
        } else if wants_terminal && !was_stopped {
            // It will never get the terminal: what the kernel does to stopped orphans.
            self.job.signal(Signal::HUP);
        }
        self.job.signal(Signal::CONT);
        Ok(())
    }

    fn give(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.give(self.job.group());
            self.given = true;
        }
    }

    fn take_back(&mut self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.given) {
            terminal.take_back();
            self.given = false;
        }
    }
}
