//! One holder at a time: all units of a lock.

use std::time::Duration;

use crate::capability::Feature;
use crate::claim::{Units, WHOLE};
use crate::client::Client;
use crate::error::Result;
use crate::guard::Guard;
use crate::options::Options;
use crate::request::Request;

/// An exclusive lock on a key.
///
/// - **Fair**: first come, first served; [`Options::barging`] is the way past the queue.
/// - **The writer's side** of the [`RwLock`](crate::RwLock) with the same key: the two exclude each other as expected.
/// - **Not re-entrant**: who acquires it twice waits for itself.
/// - **On loss** the guard's [`lost`](Guard::lost) fires before anybody else can be granted the key (within
///   what the store promises; see `docs/safety.md`).
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let lock = client.mutex("orders/42");
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
/// assert!(lock.acquire_within(Duration::from_millis(10)).await?.is_none());
/// guard.release().await?;
/// assert!(lock.try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "a mutex does nothing until it is acquired"]
#[derive(Debug)]
pub struct Mutex(pub(crate) Request);

impl Mutex {
    pub(crate) fn new(client: &Client, key: &str) -> Self {
        Self(Request::new(client, key, WHOLE, Units::Exactly(WHOLE), Feature::Mutex))
    }

    /// Uses these options instead of the client's defaults.
    pub fn with(self, options: Options) -> Self {
        Self(self.0.with(options))
    }

    /// As [`Request::acquire`].
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn acquire(&self) -> Result<Guard> {
        self.0.acquire().await
    }

    /// As [`Request::try_acquire`].
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.0.try_acquire().await
    }

    /// As [`Request::acquire_within`].
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.0.acquire_within(limit).await
    }
}
