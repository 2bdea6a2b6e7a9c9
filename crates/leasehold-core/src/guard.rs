//! What a holder has in its hands.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::capability::Renewal;
use crate::claim::{Answer, Change, Claim, IfBusy, Released, Units};
use crate::clock::{Moment, sleep_until};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Loss, Stage};
use crate::keeper::{Leaving, Lifeline};
use crate::key::Key;

/// Proof that a claim holds, for as long as [`is_valid`](Guard::is_valid) says so.
///
/// It is renewed in the background until it is released or dropped. Dropping it releases in the
/// background too: surely only while the client's runtime lives, so end a program with
/// [`release`](Guard::release) or [`Client::close`](crate::Client::close).
///
/// No lock can stop a paused process from writing after its lease is over: give [`token`](Guard::token) to
/// whatever you write to, and let it refuse smaller ones.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Released};
/// let client = Client::new(Memory::new()).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// assert!(guard.is_valid() && guard.token() > 0);
/// let total = guard.run(async { 40 + 2 }).await?; // an error if the lock is lost meanwhile
/// assert_eq!((total, guard.release().await?), (42, Released::Held));
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    life: Arc<Lifeline>,
    claim: Claim,
    hold: Arc<Hold>,
    renewal: Renewal,
    released: bool,
}

impl Guard {
    pub(crate) fn new(life: Arc<Lifeline>, claim: Claim, hold: Arc<Hold>, renewal: Renewal) -> Self {
        Self { life, claim, hold, renewal, released: false }
    }

    /// The fencing token: larger than that of every earlier holder of this key.
    pub fn token(&self) -> u64 {
        self.hold.token()
    }

    /// What is held.
    pub fn key(&self) -> &Key {
        &self.claim.key
    }

    /// How many units are held: 1 of a mutex, the permits of a semaphore.
    pub fn units(&self) -> u64 {
        self.hold.units()
    }

    /// Whether the claim may still be relied on. Needs no network, and once false stays false.
    pub fn is_valid(&self) -> bool {
        self.hold.stage() == Stage::Held
    }

    /// For how long it may be relied on if no renewal succeeds any more.
    pub fn valid_for(&self) -> Duration {
        self.hold.valid_for()
    }

    /// Waits until the lock is lost and says why. Never returns while it is held.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> Loss {
        self.hold.lost().await
    }

    /// A handle on the loss that can be cloned and moved to other tasks.
    pub fn signal(&self) -> LossSignal {
        LossSignal(self.hold.clone())
    }

    /// Renews now, with this lease from now on. The way to keep a fixed lease, or to read the store's word
    /// that the claim is still there. Never shortens what is left.
    ///
    /// # Errors
    /// `Lost` when it is not held any more, `Invalid` for a lease that the store cannot keep.
    pub async fn renew(&self, lease: Duration) -> Result<()> {
        let keeper = &self.life.0;
        let lease = keeper.store.info().fit_lease(lease, self.renewal)?;
        keeper.renew_now(&self.claim.id, lease).await.map_err(|error| error.on(self.key()))
    }

    /// Gives the lock back and says what was found: [`Released::Gone`] means that it had been lost before.
    ///
    /// # Cancel safety
    /// A dropped release goes on in the background.
    ///
    /// # Errors
    /// When the store did not answer; the release then goes on in the background until the lease has ended.
    pub async fn release(mut self) -> Result<Released> {
        self.start_release().finish().await
    }

    /// Runs `work`, and stops it at its next await when the lock is lost.
    ///
    /// # Errors
    /// `Lost`, with the cause, when the lock was lost before `work` was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            loss = self.lost() => Err(self.lost_error(loss)),
            done = work => Ok(done),
        }
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Error::new(ErrorKind::Lost, format!("lost: {loss}")).on(self.key())
    }

    fn start_release(&mut self) -> Leaving {
        self.released = true;
        let leaving = Leaving::new(self.life.0.clone(), &self.claim);
        self.hold.end(Loss::Released);
        leaving
    }

    /// Holds this many units instead. `false` when they were not to be had within the wait.
    pub(crate) async fn resize(&mut self, units: u64, wait: Resize) -> Result<bool> {
        let keeper = self.life.0.clone();
        self.claim.if_busy = if wait == Resize::Try { IfBusy::Leave } else { IfBusy::Queue };
        match keeper.amend(&self.claim, &Change::Units(units)).await? {
            Answer::Granted(grant) => {
                let at = self.hold.deadline().ok_or_else(|| self.lost_error(Loss::Expired))?;
                self.hold.grant(grant.token, grant.units, at);
                self.claim.units = Units::Exactly(units);
                return Ok(true);
            }
            Answer::Waiting(_) => {}
            Answer::Busy => return Ok(false),
            _ => {
                self.hold.end(Loss::Gone);
                return Err(self.lost_error(Loss::Gone));
            }
        }
        // The keeper looks after the place; the promotion, or the next renewal, tells the new units.
        keeper.look(self.key());
        let grown = self.hold.wait_for(|stage, held| match stage {
            Stage::Over(loss) => Some(Err(loss)),
            _ => (held == units).then_some(Ok(())),
        });
        let grown = match wait {
            Resize::Until(limit) => tokio::select! {
                grown = grown => Some(grown),
                () = sleep_until(&*keeper.clock, limit) => None,
            },
            _ => Some(grown.await),
        };
        match grown {
            Some(Ok(())) => {
                self.claim.units = Units::Exactly(units);
                Ok(true)
            }
            Some(Err(loss)) => Err(self.lost_error(loss)),
            None => {
                // Take the wish back; if it came true meanwhile, this gives the extra units up again.
                let before = self.claim.units.most();
                Box::pin(self.resize(before, Resize::Forever)).await?;
                Ok(false)
            }
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.life.0.clock.now()
    }
}

/// How long a change of units may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    Try,
    Until(Moment),
    Forever,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            drop(self.start_release());
        }
    }
}

/// Tells, anywhere and any number of times, that a lock was lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Loss, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// let signal = guard.signal();
/// client.evict("orders/42", guard.token()).await?;
/// assert_eq!(signal.lost().await, Loss::Gone);
/// assert!(signal.is_lost() && !guard.is_valid());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LossSignal(Arc<Hold>);

impl LossSignal {
    /// Whether it is lost (or released) by now.
    pub fn is_lost(&self) -> bool {
        self.0.stage() != Stage::Held
    }

    /// Waits until it is lost (or released) and says why.
    pub async fn lost(&self) -> Loss {
        self.0.lost().await
    }
}
