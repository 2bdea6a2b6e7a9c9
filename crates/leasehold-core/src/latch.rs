//! Waiting for a number of things to happen: one claim that carries a count, and readers behind it.

use std::time::Duration;

use crate::capability::Feature;
use crate::claim::{Answer, Change, Claim, ClaimId, IfBusy, Units, WHOLE};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::key::Key;
use crate::mutant::Mutant;
use crate::options::Options;
use crate::request::{IfGone, Request};

/// The latch itself is nobody's: everybody who counts down knows its id.
const ID: ClaimId = ClaimId::from_bytes(*b"leasehold/latch\0");

/// A count that goes down to zero, and those who wait for that.
///
/// A latch that was never set, or has reached zero, is open: waiting for it returns at once. It belongs to no
/// process: without [`lives_for`](Latch::lives_for) it stays until it is counted down or deleted.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let ready = client.latch("workers ready");
/// assert!(ready.set(2).await?);
/// assert!(!ready.set(5).await?); // set already
/// assert_eq!(ready.count_down().await?, 1);
/// assert_eq!(ready.count_down().await?, 0);
/// ready.wait().await?;
/// # Ok(()) }
/// ```
#[must_use = "a latch does nothing until it is set, counted down or waited for"]
#[derive(Clone, Debug)]
pub struct Latch {
    client: Client,
    key: String,
    lives_for: Option<Duration>,
}

impl Latch {
    /// The limit of a key that is used as a latch, in a [`Snapshot`](crate::Snapshot): not that of a lock, so that
    /// the two are not taken for each other.
    pub const LIMIT: u64 = WHOLE - 1;

    pub(crate) fn new(client: &Client, key: &str) -> Self {
        Self { client: client.clone(), key: key.to_owned(), lives_for: None }
    }

    /// Opens by itself after this time, counted from `set`: for latches whose users may all die.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let latch = client.latch("workers ready").lives_for(Duration::from_millis(20));
    /// latch.set(3).await?;
    /// latch.wait().await?; // nobody counts down, but it does not wait for ever
    /// # Ok(()) }
    /// ```
    pub fn lives_for(mut self, time: Duration) -> Self {
        self.lives_for = Some(time);
        self
    }

    /// Sets the count, if the latch is open. `false` when it is set already.
    ///
    /// # Errors
    /// `Invalid` for zero; else when the store does not answer.
    pub async fn set(&self, count: u64) -> Result<bool> {
        if count == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a latch of zero is open already: use 1 or more"));
        }
        let mut claim = self.claim()?;
        // How we know our own setting from somebody else's: the id is everybody's.
        claim.value = ClaimId::random()?.as_bytes()[..].into();
        claim.count = Some(count);
        claim.lease = self.lives_for;
        let keeper = self.client.keeper();
        loop {
            if let Answer::Granted(_) = keeper.retry(&claim.key, || keeper.store.claim(&claim)).await? {
                return Ok(true);
            }
            if self.count().await? > 0 {
                return Ok(false);
            }
            // Those who waited for the last one are still leaving.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Counts down by one and says what is left. An open latch stays open.
    ///
    /// # Errors
    /// When the store does not answer. A repeat after an unknown outcome counts again: this call already asks
    /// again by itself, and counts once.
    pub async fn count_down(&self) -> Result<u64> {
        self.count_down_by(1).await
    }

    /// Counts down by `n`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let latch = client.latch("files left");
    /// latch.set(10).await?;
    /// assert_eq!(latch.count_down_by(7).await?, 3);
    /// assert_eq!(latch.count_down_by(7).await?, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`count_down`](Self::count_down).
    pub async fn count_down_by(&self, n: u64) -> Result<u64> {
        let op = ClaimId::random_number()?;
        match self.client.keeper().amend(&self.claim()?, &Change::Give { n, op }).await? {
            Answer::Left(left) => Ok(left),
            _ => Ok(0),
        }
    }

    /// What is left of the count; zero when the latch is open.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn count(&self) -> Result<u64> {
        let now = self.client.inspect(&self.key).await?;
        Ok(now.and_then(|now| now.holders.iter().find_map(|holder| holder.count)).unwrap_or(0))
    }

    /// Waits until the latch is open.
    ///
    /// # Errors
    /// `Lost` when the latch is deleted meanwhile.
    pub async fn wait(&self) -> Result<()> {
        let passed = self.passage().acquire().await?;
        passed.release().await.map(drop)
    }

    /// Waits for at most this long. `false` when the latch is still closed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let latch = client.latch("workers ready");
    /// latch.set(1).await?;
    /// assert!(!latch.wait_within(Duration::from_millis(10)).await?);
    /// latch.count_down().await?;
    /// assert!(latch.wait_within(Duration::from_millis(10)).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn wait_within(&self, limit: Duration) -> Result<bool> {
        match self.passage().acquire_within(limit).await? {
            Some(passed) => passed.release().await.map(|_| true),
            None => Ok(false),
        }
    }

    /// Deletes the latch; those who wait for it get an error. `false` when there was none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let latch = client.latch("workers ready");
    /// latch.set(2).await?;
    /// assert!(latch.delete().await?);
    /// assert_eq!(latch.count().await?, 0);
    /// assert!(!latch.delete().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete(&self) -> Result<bool> {
        let now = self.client.inspect(&self.key).await?;
        let latch = now.and_then(|now| now.holders.into_iter().find(|holder| holder.count.is_some()));
        match latch {
            Some(latch) => self.client.evict(&self.key, latch.token).await,
            None => Ok(false),
        }
    }

    /// What a waiter asks for: a share, which it gives back at once.
    fn passage(&self) -> Request<Guard> {
        let request = Request::new(&self.client, &self.key, Self::LIMIT, Units::Exactly(1), Feature::Latch);
        let if_gone = match Mutant::LatchPassesWhenGone.lives() {
            true => IfGone::Again,
            false => IfGone::Fail("the latch was deleted, or its store was away for too long"),
        };
        request.with(Options::new()).if_gone(if_gone)
    }

    fn claim(&self) -> Result<Claim> {
        let key = Key::new(&self.key)?;
        self.client.info().require(Feature::Latch).map_err(|error| error.on(&key))?;
        let mut claim = Claim::new(key, Self::LIMIT, Units::Exactly(Self::LIMIT))?;
        claim.id = ID;
        claim.if_busy = IfBusy::Leave;
        claim.label = "latch".into();
        Ok(claim)
    }
}
