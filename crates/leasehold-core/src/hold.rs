//! One claim's standing as this process may believe it: shared by the guard, its signals and the keeper.
//!
//! All transitions happen under one lock together with a look at the clock, so that a guard that was once
//! seen to be lost can never be seen valid again.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::caller::Caller;
use crate::clock::{Clock, Moment, sleep_until};
use crate::mutant::Mutant;

/// Why a guard protects nothing any more.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Loss, Memory, Options};
/// # let client = Client::new(Memory::new()).await?;
/// let guard = client.mutex("orders/42").with(Options::new().fixed(Duration::from_millis(20))).acquire().await?;
/// let why = guard.lost().await;
/// assert_eq!((why, why.to_string().as_str()), (Loss::Expired, "its lease was not renewed in time"));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// It was not renewed by its deadline: the store was out of reach, the process was stopped, or its
    /// lease was a fixed one.
    Expired,
    /// The store ended it: evicted, deleted, or forgotten.
    Gone,
    /// It was held for as long as `max_hold`, or the `at_most` of a job, allows.
    HeldTooLong,
    /// The client was closed.
    Closed,
    /// It was given back; only signals that outlive their guard see this.
    Released,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease was not renewed in time",
            Self::Gone => "the store ended it",
            Self::HeldTooLong => "it was held for longer than max_hold",
            Self::Closed => "the client was closed",
            Self::Released => "it was released",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Asked for or in the queue.
    Pending,
    /// Granted.
    Held,
    /// Over, for good.
    Over(Loss),
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    token: u64,
    units: u64,
    valid_until: Moment,
    /// When we learned of the token and the units: answers to older requests know less.
    learned: Moment,
    /// Set at the grant when there is a `max_hold`.
    cap: Option<Moment>,
    /// Whether somebody asked for it back.
    asked: bool,
}

#[derive(Debug)]
pub(crate) struct Hold {
    clock: Arc<dyn Clock>,
    max_hold: Option<Duration>,
    inner: Mutex<Inner>,
    changed: Notify,
    /// A copy of its claim was sent and not answered.
    in_doubt: AtomicBool,
    /// How often its wait lost its place in the queue.
    requeued: AtomicU32,
    /// Who acquires it.
    pub(crate) caller: Caller,
}

impl Hold {
    pub(crate) fn new(clock: Arc<dyn Clock>, max_hold: Option<Duration>) -> Self {
        let (valid_until, learned) = (Moment::from_nanos(0), Moment::from_nanos(0));
        let inner = Inner {
            stage: Stage::Pending,
            token: 0,
            units: 0,
            valid_until,
            learned,
            cap: None,
            asked: false,
        };
        let (changed, in_doubt) = (Notify::new(), AtomicBool::new(true));
        Self {
            clock,
            max_hold,
            inner: Mutex::new(inner),
            changed,
            in_doubt,
            requeued: AtomicU32::new(0),
            caller: Caller::current(),
        }
    }

    /// Every copy of its claim that was sent has been answered: none can arrive after its withdrawal.
    pub(crate) fn no_doubt(&self) {
        self.in_doubt.store(false, Ordering::Release);
    }

    /// Whether a copy of its claim may still be on the way.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Acquire)
    }

    /// Notes how often its wait lost its place in the queue.
    pub(crate) fn note_requeued(&self, times: u32) {
        self.requeued.store(times, Ordering::Relaxed);
    }

    pub(crate) fn times_requeued(&self) -> u32 {
        self.requeued.load(Ordering::Relaxed)
    }

    /// The state, after time has had its say.
    fn settle(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.stage == Stage::Held {
            let now = self.clock.now();
            let over = match inner.cap {
                Some(cap) if now >= cap => Some(Loss::HeldTooLong),
                _ if now >= inner.valid_until => Some(Loss::Expired),
                _ => None,
            };
            if let Some(loss) = over {
                inner.stage = Stage::Over(loss);
                self.changed.notify_waiters();
            }
        }
        inner
    }

    pub(crate) fn stage(&self) -> Stage {
        self.settle().stage
    }

    pub(crate) fn token(&self) -> u64 {
        self.settle().token
    }

    pub(crate) fn units(&self) -> u64 {
        self.settle().units
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let inner = self.settle();
        match inner.stage {
            Stage::Held => deadline(&inner).since(self.clock.now()),
            _ => Duration::ZERO,
        }
    }

    /// When it must be looked at next: its deadline.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let inner = self.settle();
        (inner.stage == Stage::Held).then(|| deadline(&inner))
    }

    /// It holds, or holds more or less than before. `false` when it is over already.
    ///
    /// `asked` is when the request was sent that says so: one from before the last change only prolongs.
    pub(crate) fn grant(&self, token: u64, units: u64, valid_until: Moment, asked: Moment) -> bool {
        if i64::try_from(token).is_err() {
            // No store draws such a number, and SQL databases could not store it.
            tracing::error!(
                "the store granted a token above i64::MAX: its record of the last token is damaged"
            );
            self.end(Loss::Gone);
            return false;
        }
        let mut inner = self.settle();
        if matches!(inner.stage, Stage::Over(_)) && !Mutant::LossIsNotFinal.lives() {
            return false;
        }
        let is_old = asked < inner.learned || token < inner.token;
        if inner.stage == Stage::Held && is_old && !Mutant::LateReplyUndoesUpgrade.lives() {
            drop(inner);
            return self.extend(valid_until);
        }
        if inner.stage == Stage::Pending {
            let max_hold = self.max_hold.filter(|_| !Mutant::MaxHoldIgnored.lives());
            inner.cap = max_hold.map(|limit| self.clock.now() + limit);
        }
        inner.stage = Stage::Held;
        if (inner.token, inner.units) != (token, units) {
            (inner.token, inner.units, inner.learned) = (token, units, self.clock.now());
        }
        inner.valid_until = inner.valid_until.max(valid_until);
        drop(inner);
        self.changed.notify_waiters();
        self.stage() == Stage::Held
    }

    /// Its lease was extended. `false` when it is over already.
    pub(crate) fn extend(&self, valid_until: Moment) -> bool {
        let mut inner = self.settle();
        if inner.stage == Stage::Held {
            inner.valid_until = inner.valid_until.max(valid_until);
            self.changed.notify_waiters();
        }
        !matches!(inner.stage, Stage::Over(_))
    }

    /// Ends it; the first reason stays. `true` when this call ended a hold.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        let mut inner = self.settle();
        let was_held = inner.stage == Stage::Held;
        if !matches!(inner.stage, Stage::Over(_)) {
            inner.stage = Stage::Over(loss);
            drop(inner);
            self.changed.notify_waiters();
        }
        was_held
    }

    /// Waits until `test` is content with the stage and the units held. Runs on the caller's runtime and
    /// watches the deadline itself, so it also ends when the keeper is gone.
    pub(crate) async fn wait_for<T>(&self, mut test: impl FnMut(Stage, u64) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // Registered before the look, so that a change in between is not missed.
            changed.as_mut().enable();
            let (found, deadline) = {
                let inner = self.settle();
                let held = inner.stage == Stage::Held;
                (test(inner.stage, inner.units), held.then(|| deadline(&inner)))
            };
            match (found, deadline) {
                (Some(found), _) => return found,
                (None, None) => changed.await,
                (None, Some(deadline)) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(&*self.clock, deadline) => {}
                },
            }
        }
    }

    /// Somebody asks for it back.
    pub(crate) fn ask(&self) {
        let mut inner = self.settle();
        if !inner.asked {
            inner.asked = true;
            drop(inner);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.settle().asked
    }

    pub(crate) async fn asked(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.is_asked() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) async fn lost(&self) -> Loss {
        self.wait_for(|stage, _| match stage {
            Stage::Over(loss) => Some(loss),
            _ => None,
        })
        .await
    }
}

fn deadline(inner: &Inner) -> Moment {
    inner.cap.map_or(inner.valid_until, |cap| cap.min(inner.valid_until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn token_that_fits_no_signed_number_is_not_believed() {
        let at = |nanos| Moment::from_nanos(nanos);
        let hold = || Hold::new(Arc::new(TestClock::new()), None);
        assert!(hold().grant(i64::MAX.unsigned_abs(), 1, at(u64::MAX), at(0)));
        let damaged = hold();
        assert!(!damaged.grant(i64::MAX.unsigned_abs() + 1, 1, at(u64::MAX), at(0)));
        assert_eq!(damaged.stage(), Stage::Over(Loss::Gone));
    }
}
