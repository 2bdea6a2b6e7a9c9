//! What can be said about any acquisition, whatever the primitive.

use std::sync::Arc;
use std::time::Duration;

use crate::capability::Renewal;
use crate::owner::Owner;
use crate::pause::back_off;

/// How a claim is made and kept: one set of options for all primitives.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Options};
/// let client = Client::new(Memory::new()).await?;
/// let nightly = Options::new().lease(Duration::from_secs(10)).label("nightly report");
/// let guard = client.mutex("report").with(nightly).acquire().await?;
/// assert_eq!(client.inspect("report").await?.unwrap().holders[0].label, "nightly report");
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) lease: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) barging: bool,
    pub(crate) lock_delay: Duration,
    pub(crate) owner: Option<Owner>,
    /// The first pause and the longest.
    pub(crate) retry: (Duration, Duration),
}

impl Options {
    /// The defaults: a 30 s lease, renewed every third of it, first come first served.
    pub fn new() -> Self {
        Self {
            lease: Duration::from_secs(30),
            renewal: Renewal::Automatic,
            max_hold: None,
            label: None,
            barging: false,
            lock_delay: Duration::ZERO,
            owner: None,
            retry: (Duration::from_millis(5), Duration::from_millis(320)),
        }
    }

    /// How long the claim outlives its process, renewed while the guard lives. Default 30 s. Shorter frees
    /// the key sooner after a crash and gives up sooner in an outage; each third of it costs one renewal.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        (self.lease, self.renewal) = (lease, Renewal::Automatic);
        self
    }

    /// A lease of this length that is never renewed: the guard is lost when it ends.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Loss, Memory, Options};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").with(Options::new().fixed(Duration::from_millis(20))).acquire().await?;
    /// assert_eq!(guard.lost().await, Loss::Expired);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fixed(mut self, lease: Duration) -> Self {
        (self.lease, self.renewal) = (lease, Renewal::Never);
        self
    }

    /// The longest that the guard stays valid, however often it is renewed: a limit for work that hangs.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Loss, Memory, Options};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").with(Options::new().max_hold(Duration::from_millis(20))).acquire().await?;
    /// assert_eq!(guard.lost().await, Loss::HeldTooLong);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// Shown to people by `inspect` and `list`. Default: host and process id.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into().into());
        self
    }

    /// Goes past those who wait when the units are free right now. Tasks of one client that barge for the same lock pass
    /// it on among themselves, in one round trip each, up to 32 times before others get their turn. Faster under
    /// contention, unfair.
    #[must_use]
    pub fn barging(mut self) -> Self {
        self.barging = true;
        self
    }

    /// Acquires on behalf of this owner, which may acquire again what it holds.
    #[must_use]
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// How to wait where there is no queue to wait in, on a [`Quorum`](crate::Quorum): the pause before asking again
    /// is `first`, then twice as long each time up to `longest`, all of them give or take a random half so that
    /// rivals do not meet again. Default 5 ms and 320 ms.
    #[must_use]
    pub fn retry(mut self, first: Duration, longest: Duration) -> Self {
        self.retry = (first, longest);
        self
    }

    /// The pause after this many attempts in vain.
    pub(crate) fn retry_pause(&self, failed: u32) -> Duration {
        let (first, longest) = self.retry;
        // Never none at all: that would keep a server busy.
        back_off(failed, first, longest).max(Duration::from_micros(500))
    }

    /// Keeps the key blocked for this long after the claim *expired* (not after a release): time for the
    /// lost holder's last writes to land where nothing checks the token.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory, Options};
    /// # let client = Client::new(Memory::new()).await?;
    /// let delayed = Options::new().fixed(Duration::from_millis(20)).lock_delay(Duration::from_secs(60));
    /// let guard = client.mutex("orders/42").with(delayed).acquire().await?;
    /// guard.lost().await;
    /// assert!(client.mutex("orders/42").try_acquire().await?.is_none()); // for a minute
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_pause() {
        assert!(!Options::new().retry(Duration::ZERO, Duration::ZERO).retry_pause(0).is_zero());
    }
}
