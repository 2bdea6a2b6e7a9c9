//! Waiting for a number of things to happen: one claim that carries a count, and readers behind it.

use std::time::Duration;

use crate::attempt::{Attempt, ask};
use crate::capability::Feature;
use crate::claim::{Answer, Change, Claim, ClaimId, IfBusy, Units, WHOLE};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::key::Key;
use crate::mutant::Mutant;
use crate::options::Options;
use crate::request::{IfGone, Request};
use crate::store::{Holder, Snapshot};
use crate::usage::Usage;

/// How soon a latch is set again that others are still leaving.
const PAUSE: Duration = Duration::from_millis(5);

/// How often a waiter looks whether the latch has been set.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A count that goes down to zero, and those who wait for that.
///
/// A latch that was never set, or has reached zero, is open: waiting for it returns at once, unless it
/// [`must_exist`](Latch::must_exist). It belongs to no
/// process: without [`lives_for`](Latch::lives_for) it stays until it is counted down or deleted.
///
/// The store remembers every count-down (8 bytes) until the latch opens, so that a repeated request counts once, and
/// writes all of them with each one. A latch is meant for up to about 10,000 count-downs; for more, count down by several
/// at a time.
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
    if_unset: IfUnset,
}

/// What a waiter does that finds no latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfUnset {
    Pass,
    Wait,
}

impl Latch {
    /// The limit of a key that is used as a latch, in a [`Snapshot`](crate::Snapshot): not that of a lock, so that
    /// the two are not taken for each other.
    pub const LIMIT: u64 = WHOLE - 1;

    pub(crate) fn new(client: &Client, key: &str) -> Self {
        Self { client: client.clone(), key: key.to_owned(), lives_for: None, if_unset: IfUnset::Pass }
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

    /// Makes waiters wait until the latch has been set, and then until it is open. Without this, a latch that is not set
    /// counts as open, also if its name was mistyped.
    ///
    /// An open latch leaves no trace. So waiters must come before it opens, and a latch that opens within a quarter of a
    /// second after it was set can be missed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let ready = client.latch("workers ready");
    /// assert!(ready.wait_within(Duration::ZERO).await?); // not set, so it is open
    /// assert!(!ready.clone().must_exist().wait_within(Duration::ZERO).await?);
    /// # Ok(()) }
    /// ```
    pub fn must_exist(mut self) -> Self {
        self.if_unset = IfUnset::Wait;
        self
    }

    /// Sets the count, if the latch is open. `false` when it is set already.
    ///
    /// # Cancel safety
    /// A dropped `set` leaves no latch: the client takes back what the store may have set.
    ///
    /// # Errors
    /// `Invalid` for zero; `Unavailable` when those who waited for the last round have not left it within the
    /// client's call timeout; else when the store does not answer.
    ///
    /// After an error the latch was not set, or the client takes it back. If the store cannot be reached, the
    /// client keeps trying for as long as it lives. If the client is closed or its process ends before it has
    /// reached the store, a latch that was set stays set until it is counted down, deleted, or has [lived for
    /// its time](Self::lives_for).
    pub async fn set(&self, count: u64) -> Result<bool> {
        if count == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a latch of zero is open already: use 1 or more"));
        }
        let keeper = self.client.keeper();
        let end = self.one_call();
        let until = || if Mutant::SetHasNoEnd.lives() { self.one_call() } else { end };
        loop {
            // Another attempt, another id: a copy of an earlier one may still be on its way.
            let attempt = Attempt::new(keeper, self.claim(Some(count))?)?;
            let claim = &attempt.claim;
            let heard = ask(keeper, &claim.key, until(), || keeper.store.claim(claim)).await;
            match heard.answer {
                Ok(Answer::Granted(_)) => {
                    attempt.settled();
                    return Ok(true);
                }
                // Only a copy of this very request can have used the id: the latch was set, and has ended since.
                Ok(Answer::Gone) if heard.in_doubt => {
                    attempt.settled();
                    return Ok(true);
                }
                Ok(_) if !heard.in_doubt => attempt.settled(),
                Err(error) if !heard.in_doubt => {
                    attempt.settled();
                    return Err(error);
                }
                // Dropped, the attempt withdraws what is still on its way.
                Ok(_) => drop(attempt),
                Err(error) => return Err(error),
            }
            if self.latch(until()).await?.is_some() {
                return Ok(false);
            }
            if keeper.clock.now() >= until() {
                let message = format!(
                    "those who waited for the last round have not left it within {:?}: it was not set, try again",
                    keeper.call_timeout
                );
                return Err(Error::new(ErrorKind::Unavailable, message).on(&Key::new(&self.key)?));
            }
            // Those who waited for the last one are still leaving.
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Counts down by one and says what is left. An open latch stays open.
    ///
    /// Two round trips: one to see which latch is set, one to count it down. So a late copy of the request cannot
    /// count down a latch that was set later.
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
        let keeper = self.client.keeper();
        let (claim, op) = (self.claim(None)?, ClaimId::random_number()?);
        let until = self.one_call();
        loop {
            let Some(Holder { token, .. }) = self.latch(until).await? else { return Ok(0) };
            let change = Change::Give { n, op, token };
            let heard = ask(keeper, &claim.key, until, || keeper.store.amend(&claim, &change)).await;
            match heard.answer? {
                Answer::Left(left) => return Ok(left),
                // It was set when we looked, so it has ended while we counted, by our copy or by another's.
                _ if heard.in_doubt || keeper.clock.now() >= until => return Ok(0),
                // It has ended between the two, and another may be set by now.
                _ => {}
            }
        }
    }

    /// What is left of the count; zero when the latch is open.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn count(&self) -> Result<u64> {
        Ok(self.latch(self.one_call()).await?.and_then(|latch| latch.count).unwrap_or(0))
    }

    /// When a call that begins now has used up its time.
    fn one_call(&self) -> Moment {
        let keeper = self.client.keeper();
        keeper.clock.now() + keeper.call_timeout
    }

    /// The key as the store shows it now. Repeats its request until `until`.
    async fn snapshot(&self, until: Moment) -> Result<Option<Snapshot>> {
        let (key, keeper) = (Key::new(&self.key)?, self.client.keeper());
        keeper.check_runtime()?;
        keeper.retry_until(&key, until, || keeper.store.inspect(&key)).await
    }

    /// The claim that is the latch, if it is set.
    async fn latch(&self, until: Moment) -> Result<Option<Holder>> {
        let now = self.snapshot(until).await?;
        Ok(now.and_then(|now| now.holders.into_iter().find(|holder| holder.count.is_some())))
    }

    /// Waits until the latch is open. Passing an open latch leaves no trace at the store.
    ///
    /// # Errors
    /// `Lost` when the latch is deleted meanwhile.
    pub async fn wait(&self) -> Result<()> {
        if self.if_unset == IfUnset::Wait {
            self.wait_until_set(None).await?;
        } else if self.is_open().await? {
            return Ok(());
        }
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
        let started = tokio::time::Instant::now();
        if self.if_unset == IfUnset::Wait {
            if !self.wait_until_set(Some(limit)).await? {
                return Ok(false);
            }
        } else if let Ok(is_open) = tokio::time::timeout(limit, self.is_open()).await
            && is_open?
        {
            return Ok(true);
        }
        match self.passage().acquire_within(limit.saturating_sub(started.elapsed())).await? {
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
        match self.latch(self.one_call()).await? {
            Some(latch) => self.client.evict(&self.key, latch.token).await,
            None => Ok(false),
        }
    }

    /// Waits until the latch is set. `false` if it is not within `limit`.
    async fn wait_until_set(&self, limit: Option<Duration>) -> Result<bool> {
        let (key, clock) = (self.require()?, &self.client.keeper().clock);
        let until = limit.map(|limit| clock.now() + limit);
        loop {
            match self.snapshot(self.one_call()).await? {
                Some(now) if now.limit != Self::LIMIT => return Err(Usage(now.limit).conflict().on(&key)),
                Some(now) if now.holders.iter().any(|holder| holder.count.is_some()) => return Ok(true),
                _ => {}
            }
            let left = until.map_or(Duration::MAX, |until| until.since(clock.now()));
            if left.is_zero() {
                return Ok(false);
            }
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    /// Whether it can be passed without a claim. Who passes would otherwise keep others from setting it.
    async fn is_open(&self) -> Result<bool> {
        self.require()?;
        if Mutant::SetHasNoEnd.lives() {
            return Ok(false);
        }
        let now = self.snapshot(self.one_call()).await?;
        // On a key of another kind the claim is refused, with the reason.
        Ok(now.is_none_or(|now| {
            now.limit == Self::LIMIT && now.holders.iter().all(|holder| holder.count.is_none())
        }))
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

    fn require(&self) -> Result<Key> {
        let key = Key::new(&self.key)?;
        self.client.info().require(Feature::Latch).map_err(|error| error.on(&key))?;
        Ok(key)
    }

    /// The latch as a claim: all units, and no process that renews it.
    fn claim(&self, count: Option<u64>) -> Result<Claim> {
        let claim = Claim::new(self.require()?, Self::LIMIT, Units::Exactly(Self::LIMIT))?;
        let (if_busy, label) = (IfBusy::Leave, "latch".into());
        Ok(Claim { if_busy, label, count, lease: self.lives_for, ..claim })
    }
}
