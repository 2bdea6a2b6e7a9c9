//! What a holder has in its hands.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Released};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::hand::{Hand, Share};
use crate::hold::{Hold, Loss};
use crate::keeper::Lifeline;
use crate::key::Key;
use crate::signal::LossSignal;

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
pub struct Guard(Share);

impl Guard {
    pub(crate) fn new(life: Arc<Lifeline>, claim: Claim, hold: Arc<Hold>) -> Self {
        Self(Share::new(life, claim, hold))
    }

    /// Another guard of the same hold.
    pub(crate) fn join(share: Share) -> Self {
        Self(share)
    }

    pub(crate) fn hand(&self) -> &Arc<Hand> {
        self.0.hand()
    }

    /// Keeps the units from everybody until then, also after the release.
    pub(crate) fn keep_until(&self, at: Moment) {
        // Only the first counts; nobody sets it twice.
        let _ = self.0.keep_until.set(at);
        self.0.life.0.keep_until(&self.0.claim.id, at);
    }

    /// The fencing token: larger than that of every earlier holder of this key.
    pub fn token(&self) -> u64 {
        self.0.hold.token()
    }

    /// The fencing token as the signed number that SQL databases store. No token is larger than `i64::MAX`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// assert_eq!(u64::try_from(guard.token_i64()), Ok(guard.token()));
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn token_i64(&self) -> i64 {
        i64::try_from(self.token()).expect("a hold believes no grant whose token is above i64::MAX")
    }

    /// How often the wait for it lost its place in the queue and started again at the back, behind clients that came later.
    ///
    /// That happens if the store heard nothing from the waiter for too long: an outage, a paused process, or too much load.
    /// Each time is also a `tracing` warning.
    pub fn times_requeued(&self) -> u32 {
        self.0.hold.times_requeued()
    }

    /// What is held.
    pub fn key(&self) -> &Key {
        &self.0.claim.key
    }

    /// How many units are held: the permits of a semaphore; of a lock, all it has or a reader's share.
    pub fn units(&self) -> u64 {
        self.0.hold.units()
    }

    /// Whether the claim may still be relied on. Needs no network, and once false stays false.
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// For how long it may be relied on if no renewal succeeds any more.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// if guard.valid_for() > Duration::from_secs(5) {
    ///     // time for a step that takes five seconds and must not be cut
    /// }
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn valid_for(&self) -> Duration {
        self.0.hold.valid_for()
    }

    /// Waits until the lock is lost and says why. Never returns while it is held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// let work = async { 42 };
    /// tokio::select! {
    ///     done = work => assert_eq!(done, 42),
    ///     why = guard.lost() => println!("stopped: {why}"),
    /// }
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> Loss {
        self.0.hold.lost().await
    }

    /// A handle on the loss that can be cloned and moved to other tasks.
    pub fn signal(&self) -> LossSignal {
        LossSignal::new(self.0.hold.clone())
    }

    /// Waits until somebody asks for the lock ([`Client::ask`](crate::Client::ask)): finish what must be finished
    /// and release it. Never returns while nobody asks, and nothing happens if it is not heeded.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// use leasehold_core::{Client, Memory};
    /// let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// assert!(client.ask("orders/42", guard.token()).await?);
    /// guard.asked_to_release().await;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn asked_to_release(&self) {
        self.0.hold.asked().await;
    }

    /// Whether somebody has asked for the lock by now.
    pub fn is_asked_to_release(&self) -> bool {
        self.0.hold.is_asked()
    }

    /// Renews now, with this lease from now on, and returns for how long the guard is now
    /// [valid](Self::valid_for). The way to keep a fixed lease, or to ask the store whether the claim is
    /// still there. Never shortens what is left.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory, Options};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").with(Options::new().fixed(Duration::from_secs(1))).acquire().await?;
    /// let valid_for = guard.renew(Duration::from_secs(60)).await?;
    /// assert!(valid_for > Duration::from_secs(50));
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Lost` when it is not held any more; `Invalid` for a lease that the store cannot keep. `Unsupported`
    /// when the store gives less: where a session carries the claims
    /// ([`Leases::Shared`](crate::Leases::Shared)) no lease becomes longer than the one that the lock was
    /// acquired with, and nothing is renewed then. `Indeterminate` when it is not known whether the lease was
    /// extended in time.
    pub async fn renew(&self, lease: Duration) -> Result<Duration> {
        let keeper = &self.0.life.0;
        keeper.store.info().check_lease(lease)?;
        keeper.renew_now(&self.0.claim, lease).await.map_err(|error| error.on(self.key()))?;
        Ok(self.valid_for())
    }

    /// Gives the lock back and says what was found: [`Released::Gone`] means that it had been lost before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory, Released};
    /// # let client = Client::new(Memory::new()).await?;
    /// let (one, two) = (client.mutex("a").acquire().await?, client.mutex("b").acquire().await?);
    /// assert_eq!(one.release().await?, Released::Held);
    /// client.evict("b", two.token()).await?;
    /// assert_eq!(two.release().await?, Released::Gone);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// A dropped release goes on in the background.
    ///
    /// # Errors
    /// When the store did not answer; the release then goes on in the background until the lease has ended.
    pub async fn release(mut self) -> Result<Released> {
        match self.0.leave() {
            Some(leaving) => leaving.finish().await,
            // Its owner has other guards of this hold.
            None => Ok(if self.is_valid() { Released::Held } else { Released::Gone }),
        }
    }

    /// Runs `work`, and stops it at its next await when the lock is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, ErrorKind, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// assert_eq!(guard.run(async { 42 }).await?, 42);
    /// client.evict("orders/42", guard.token()).await?;
    /// let stopped = guard.run(std::future::pending::<()>()).await;
    /// assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Lost);
    /// # Ok(()) }
    /// ```
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

    /// Stops looking after the hold without giving it back.
    pub(crate) fn abandon(mut self) {
        if let Some(leaving) = self.0.leave() {
            leaving.abandon();
        }
    }

    pub(crate) fn lost_error(&self, loss: Loss) -> Error {
        Error::new(ErrorKind::Lost, format!("lost: {loss}")).on(self.key())
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    /// Compiles only if it is true: guards and clients may go to any thread and stay there.
    #[test]
    fn what_users_keep_can_go_anywhere() {
        fn anywhere<T: Send + Sync + 'static>() {}
        anywhere::<Client>();
        anywhere::<Guard>();
        anywhere::<ReadGuard>();
        anywhere::<UpgradableGuard>();
        anywhere::<WriteGuard>();
        anywhere::<Leader>();
        anywhere::<MultiGuard>();
        anywhere::<LossSignal>();
        anywhere::<Owner>();
        anywhere::<Error>();
        anywhere::<blocking::Guard>();
    }
}
