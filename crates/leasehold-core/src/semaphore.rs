//! A number of permits, each on a lease of its own.

use std::time::Duration;

use crate::attempt::{Attempt, ask};
use crate::capability::Feature;
use crate::claim::{Change, Claim, Units, WHOLE};
use crate::client::Client;
use crate::error::Result;
use crate::guard::Guard;
use crate::key::Key;
use crate::options::Options;
use crate::request::Request;

/// `limit` permits on a key.
///
/// - **Fair**, also to those who ask for many: small requests do not overtake a large one.
/// - **Expiring**: every acquisition has its own lease; [`Guard::valid_for`] reads it, [`Guard::renew`] extends
///   it. Permits of a process that dies come back by themselves.
/// - **Cannot be inflated**: a permit is given back by its own guard, once. Permits that were acquired together can be given
///   back one by one: [`Guard::release_permits`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let permits = client.semaphore("api calls", 3);
/// let two = permits.permits(2).acquire().await?;
/// assert!(permits.permits(2).try_acquire().await?.is_none()); // all or nothing
/// let rest = permits.up_to(5).acquire().await?; // or what there is
/// assert_eq!((two.units(), rest.units(), permits.available().await?), (2, 1, 0));
/// # Ok(()) }
/// ```
#[must_use = "a semaphore does nothing until it is acquired"]
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    key: String,
    limit: u64,
    options: Options,
}

impl Semaphore {
    /// The most permits that a semaphore can have: larger limits mark locks and latches.
    pub const MAX_PERMITS: u64 = WHOLE - 2;

    /// Why a semaphore with more permits is refused.
    pub(crate) fn too_many() -> String {
        format!("too many permits: a semaphore has at most {}", Self::MAX_PERMITS)
    }

    pub(crate) fn new(client: &Client, key: &str, limit: u64) -> Self {
        let options = client.defaults().clone();
        Self { client: client.clone(), key: key.to_owned(), limit, options }
    }

    /// Uses these options instead of the client's defaults.
    pub fn with(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// `n` permits, all or none.
    pub fn permits(&self, n: u64) -> Request {
        self.request(Units::Exactly(n))
    }

    /// As many as there are when its turn comes, up to `n`, at least one. [`Guard::units`] says how many.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let permits = client.semaphore("api calls", 3);
    /// let one = permits.acquire().await?;
    /// let rest = permits.up_to(10).acquire().await?;
    /// assert_eq!(rest.units(), 2);
    /// # drop((one, rest));
    /// # Ok(()) }
    /// ```
    pub fn up_to(&self, n: u64) -> Request {
        // More than the limit can never come: asking for it means "all there are".
        self.request(Units::UpTo(n.min(self.limit)))
    }

    fn request(&self, units: Units) -> Request {
        let request = Request::new(&self.client, &self.key, self.limit, units, Feature::Semaphore);
        request.with(self.options.clone())
    }

    /// One permit, as [`Request::acquire`].
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn acquire(&self) -> Result<Guard> {
        self.permits(1).acquire().await
    }

    /// One permit, as [`Request::try_acquire`].
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.permits(1).try_acquire().await
    }

    /// One permit, as [`Request::acquire_within`].
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.permits(1).acquire_within(limit).await
    }

    /// How many permits nobody holds.
    ///
    /// # Errors
    /// When the key is not a name or the store does not answer.
    pub async fn available(&self) -> Result<u64> {
        let now = self.client.inspect(&self.key).await?;
        Ok(now.map_or(self.limit, |now| now.available()))
    }

    /// Gives the semaphore another number of permits than the one everybody names, until it is set back to
    /// that. Nobody who holds loses anything: a smaller number holds back new grants until enough came back. Requests for
    /// more permits than the new number are refused; those that wait already go on waiting, and block nobody.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let permits = client.semaphore("api calls", 3);
    /// permits.resize(10).await?;
    /// assert_eq!(client.semaphore("api calls", 3).available().await?, 10);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// A dropped resize was made or not. It does not happen later, so it cannot undo one that was made since.
    ///
    /// # Errors
    /// `Conflict` when it is in use with another declared limit, `Invalid` for zero.
    pub async fn resize(&self, permits: u64) -> Result<()> {
        let key = Key::new(&self.key)?;
        self.client.info().require(Feature::Resize).map_err(|e| e.on(&key))?;
        let keeper = self.client.keeper();
        // The new limit passes the same check as a declared one.
        Claim::new(key.clone(), permits, Units::Exactly(1))?.check()?;
        let claim = Claim { lease: None, ..Claim::new(key, self.limit, Units::Exactly(1))? };
        claim.check()?;
        let attempt = Attempt::new(keeper, claim)?;
        let (claim, change) = (&attempt.claim, Change::Limit(permits));
        let until = keeper.clock.now() + keeper.call_timeout;
        let heard = ask(keeper, &claim.key, until, || keeper.store.amend(claim, &change)).await;
        if heard.answer.is_ok() || !heard.in_doubt {
            attempt.settled();
        }
        heard.answer.map(drop)
    }
}
