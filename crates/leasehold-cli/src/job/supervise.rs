//! Program, lock, signals and terminal, watched together until one of them ends it.
//!
//! The lock ends with the program itself. What the program left running in its group is not waited for and not
//! killed; only the loss of the lock ends the whole group.

use std::io;
use std::time::Duration;

use leasehold::{BootClock, Clock, Guard, Loss, Moment, PATIENCE};
use rustix::process::{Signal, getpgrp, getpid};
use tokio::time::{sleep, timeout};

use super::guardian::Guardian;
use super::process::{Change, Job};
use super::signals::{self, Incoming};
use super::terminal::Terminal;
use crate::exit::Exit;
use crate::output::Remark;
use crate::settings::OnAsk;

// A guard is lost when 0.9 of its lease is over, and the store may grant to the next when all of it is. What
// happens in between, as shares of the lease after the loss: SIGTERM at once, then
/// the runner's SIGKILL at the latest, then
const RUNNER_KILLS: f64 = 0.07;
/// the guardian's, in case that the runner is stopped or hangs.
const GUARDIAN_KILLS: f64 = 0.08;
/// How often the guardian hears of renewals: often enough for one that came at the last moment.
const REPORTS: u32 = 20;

/// How long killed processes may take to go away before we stop waiting for them.
const DYING: Duration = Duration::from_secs(2);

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
    pub(crate) guardian: Guardian,
    pub(crate) incoming: &'a mut Incoming,
    pub(crate) terminal: Option<Terminal>,
    /// The job is in the foreground of the terminal.
    pub(crate) given: bool,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) on_ask: OnAsk,
}

impl Supervisor<'_> {
    /// Watches until the program has ended or the lock is lost.
    pub(crate) async fn watch(mut self) -> io::Result<End> {
        let since = BootClock.now();
        let lease = Lease { full: self.guard.valid_for() > PATIENCE, since, length: self.lease };
        let mut kill_at = since;
        let (mut asked, mut gives_way_by, mut killed) = (false, None::<Moment>, false);
        let ended = loop {
            if self.guard.is_valid() {
                kill_at = self.report(&lease);
            }
            let grace_left = gives_way_by.map_or(Duration::MAX, |by| by.since(BootClock.now()));
            tokio::select! {
                biased;
                change = self.job.change() => match change? {
                    Change::Ended(exit) => break Some(exit),
                    Change::Stopped(signal) => self.stopped(signal).await?,
                },
                _ = self.guard.lost() => break None,
                signal = self.incoming.next() => self.pass_on(signal).await?,
                () = self.guard.asked_to_release(), if !asked => {
                    asked = true;
                    gives_way_by = self.asked();
                }
                () = sleep(grace_left), if gives_way_by.is_some() && !killed => {
                    self.job.signal(Signal::KILL);
                    killed = true;
                }
                () = sleep(lease.now() / REPORTS) => {}
            }
        };
        match (ended, gives_way_by) {
            // We ended it before its time: what it has started may still be at work.
            (Some(exit), Some(by)) if self.guard.is_valid() => {
                let (guard, now) = (self.guard, BootClock.now());
                self.end_group(by.since(now).min(kill_at.since(now))).await;
                Ok(if guard.is_valid() { End::GaveWay(exit) } else { End::Lost(guard.lost().await) })
            }
            (Some(exit), None) if self.guard.is_valid() => Ok(self.ended(exit)),
            _ => {
                let loss = self.guard.lost().await;
                let rest = lease.now().mul_f64(RUNNER_KILLS).min(kill_at.since(BootClock.now()));
                let rest = rest.min(self.grace);
                self.end_group(rest).await;
                Ok(End::Lost(loss))
            }
        }
    }

    /// Tells the guardian until when the lock is known to be ours.
    fn report(&self, lease: &Lease) -> Moment {
        let lost_at = BootClock.now() + self.guard.valid_for();
        self.guardian.kill_at(lost_at + lease.now().mul_f64(GUARDIAN_KILLS));
        lost_at + lease.now().mul_f64(RUNNER_KILLS)
    }

    /// Others want the lock. If they are to have it the program is asked to end: says by when it must have.
    fn asked(&self) -> Option<Moment> {
        Remark::Asked { key: self.guard.key().as_str() }.tell();
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
            Exit::Signal(raw) if self.given && getpgrp() != getpid() => Signal::from_named_raw(raw),
            _ => None,
        };
        let unseen = unseen.filter(|signal| [Signal::INT, Signal::QUIT].contains(signal));
        self.take_back();
        self.guardian.dismiss();
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
        if !self.job.wait_for_group(rest).await {
            self.job.signal(Signal::KILL);
            self.job.wait_for_group(DYING).await;
        }
        self.take_back();
        if let Some(terminal) = &self.terminal {
            terminal.restore_modes();
        }
        self.guardian.dismiss();
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

/// How long a lease the store has given us. After a wait it starts as a waiter's, which may be shorter.
struct Lease {
    full: bool,
    since: Moment,
    length: Duration,
}

impl Lease {
    fn now(&self) -> Duration {
        let full = self.full || BootClock.now().since(self.since) > PATIENCE;
        if full { self.length } else { self.length.min(PATIENCE) }
    }
}
