//! The one way to ask: every primitive hands out requests, and every request is acquired the same way.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use crate::capability::Feature;
use crate::claim::{Claim, IfBusy, Order, PATIENCE, Units};
use crate::client::Client;
use crate::error::Result;
use crate::guard::Guard;
use crate::keeper::Ended;
use crate::key::Key;
use crate::options::Options;

/// Something that can be acquired: a lock, a side of a read-write lock, some permits.
///
/// `G` is the guard that it gives.
#[must_use = "a request does nothing until it is acquired"]
#[derive(Debug)]
pub struct Request<G = Guard> {
    client: Client,
    key: String,
    limit: u64,
    units: Units,
    feature: Feature,
    options: Options,
    guard: PhantomData<fn() -> G>,
}

/// How long to wait.
#[derive(Clone, Copy)]
enum Wait {
    Not,
    For(Duration),
    Forever,
}

impl<G: From<Guard>> Request<G> {
    pub(crate) fn new(client: &Client, key: &str, limit: u64, units: Units, feature: Feature) -> Self {
        let options = client.defaults().clone();
        let key = key.to_owned();
        Self { client: client.clone(), key, limit, units, feature, options, guard: PhantomData }
    }

    /// Uses these options instead of the client's defaults.
    pub fn with(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Waits until it is granted.
    ///
    /// # Cancel safety
    /// A dropped acquire leaves the queue, or gives back what it was granted meanwhile.
    ///
    /// # Errors
    /// `Invalid`, `Unsupported` and `Conflict` before anything is waited for; `Unavailable` or
    /// `Indeterminate` when the store cannot be reached. Once in the queue, outages are waited out.
    pub async fn acquire(&self) -> Result<G> {
        loop {
            if let Some(guard) = self.attempt(Wait::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Acquires it if that is possible at once; `None` when somebody else has it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<G>> {
        self.attempt(Wait::Not).await
    }

    /// Waits for at most `limit`; `None` when that was not enough.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<G>> {
        self.attempt(Wait::For(limit)).await
    }

    async fn attempt(&self, wait: Wait) -> Result<Option<G>> {
        let keeper = self.client.keeper();
        let clock = keeper.clock.clone();
        let limit = match wait {
            Wait::For(limit) => Some(clock.now() + limit),
            Wait::Not | Wait::Forever => None,
        };
        let mut failed = 0;
        loop {
            let claim = self.claim(wait)?;
            let mut pending = keeper.enter(claim, self.options.renewal, self.options.max_hold)?;
            match pending.settle(limit).await? {
                None => {
                    let (claim, hold) = pending.into_parts();
                    let guard = Guard::new(self.client.life().clone(), claim, hold, self.options.renewal);
                    return Ok(Some(guard.into()));
                }
                Some(Ended::TooLate) => {
                    pending.leave().await;
                    return Ok(None);
                }
                Some(Ended::Busy) if matches!(wait, Wait::Not) => return Ok(None),
                // The place was lost, or the store has no queue: again, after a random pause.
                Some(Ended::Busy | Ended::Gone) => {
                    drop(pending);
                    let pause = Duration::from_millis(5 << failed.min(6)).mul_f64(0.5 + fastrand::f64());
                    failed += 1;
                    if limit.is_some_and(|limit| clock.now() + pause >= limit) {
                        return Ok(None);
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// The claim of one attempt. Everything that can be wrong with it is found here, before it is sent.
    fn claim(&self, wait: Wait) -> Result<Claim> {
        let key = Key::new(&self.key)?;
        let info = self.client.info();
        info.require(self.feature).map_err(|e| e.on(&key))?;
        let lease = info.fit_lease(self.options.lease, self.options.renewal).map_err(|e| e.on(&key))?;
        let mut claim = Claim::new(key, self.limit, self.units)?;
        claim.lease = Some(lease);
        claim.patience = lease.min(PATIENCE);
        claim.if_busy = if matches!(wait, Wait::Not) { IfBusy::Leave } else { IfBusy::Queue };
        claim.order = if self.options.barging { Order::Barging } else { Order::Fair };
        claim.lock_delay = self.options.lock_delay;
        claim.label = self.options.label.clone().unwrap_or_else(|| self.client.label().clone());
        claim.inbox = self.client.keeper().inbox;
        claim.check()?;
        Ok(claim)
    }
}
