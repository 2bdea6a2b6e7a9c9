//! The one way to ask: every primitive hands out requests, and every request is acquired the same way.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::capability::Feature;
use crate::claim::{Claim, IfBusy, Units};
use crate::client::Client;
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::keeper::Ended;
use crate::key::Key;
use crate::options::Options;
use crate::semaphore::Semaphore;

/// Something that can be acquired: a lock, a side of a read-write lock, some permits.
///
/// `G` is the guard that it gives.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory, ReadGuard, Request};
/// # let client = Client::new(Memory::new()).await?;
/// let side: Request<ReadGuard> = client.rwlock("catalogue").read();
/// let guard = side.acquire().await?;
/// assert!(side.try_acquire().await?.is_some()); // a request can be acquired again and again
/// # guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "a request does nothing until it is acquired"]
#[derive(Debug)]
pub struct Request<G = Guard> {
    client: Client,
    key: String,
    limit: u64,
    units: Units,
    feature: Feature,
    options: Options,
    /// The lease until the first renewal, if that is longer than those after it.
    first_lease: Option<Duration>,
    value: Arc<[u8]>,
    if_gone: IfGone,
    guard: PhantomData<fn() -> G>,
}

/// What a place in the queue that is gone means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IfGone {
    /// The store was away for too long: ask again, from the back.
    Again,
    /// What was waited for is gone, with this explanation.
    Fail(&'static str),
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
        let (value, if_gone) = (Arc::from([]), IfGone::Again);
        Self {
            client: client.clone(),
            key,
            limit,
            units,
            feature,
            options,
            first_lease: None,
            value,
            if_gone,
            guard: PhantomData,
        }
    }

    /// Publishes a value with the claim.
    pub(crate) fn value(mut self, value: &[u8]) -> Self {
        self.value = value.into();
        self
    }

    pub(crate) fn if_gone(mut self, what: IfGone) -> Self {
        self.if_gone = what;
        self
    }

    /// Starts with this lease; the renewals have the one of the options, and never shorten what is left of
    /// this one.
    pub(crate) fn first_lease(mut self, lease: Duration) -> Self {
        self.first_lease = Some(lease);
        self
    }

    /// The same request for a plain guard.
    pub(crate) fn plain(self) -> Request {
        let Self { client, key, limit, units, feature, options, first_lease, value, if_gone, .. } = self;
        let guard = PhantomData;
        Request { client, key, limit, units, feature, options, first_lease, value, if_gone, guard }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn key(&self) -> Result<Key> {
        Key::new(&self.key)
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
    /// As [`acquire`](Self::acquire); `Lost` when its lease was over before the store's answer came.
    pub async fn try_acquire(&self) -> Result<Option<G>> {
        self.attempt(Wait::Not).await
    }

    /// Waits for at most `limit`; `None` if somebody else had it for all of that time.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and `Unavailable` if the store is out of reach when the limit is over: then nobody
    /// knows whether the lock is busy.
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<G>> {
        self.attempt(Wait::For(limit)).await
    }

    /// What hardly ever happens is in boxes: an attempt is moved about as large as the largest of its futures.
    async fn attempt(&self, wait: Wait) -> Result<Option<G>> {
        let keeper = self.client.keeper();
        let clock = keeper.clock.clone();
        let limit = match wait {
            Wait::For(limit) => Some(clock.now() + limit),
            Wait::Not | Wait::Forever => None,
        };
        if !keeper.is_ready() {
            // Nothing is sent for a request that is refused anyway.
            self.claim(wait)?;
            Box::pin(keeper.ready(limit)).await.map_err(|error| self.named(error))?;
        }
        let (mut failed, mut requeued) = (0, 0);
        loop {
            let claim = self.claim(wait)?;
            if let Some(owner) = &self.options.owner
                && let Some(guard) = owner.join(&claim.key, self.limit, self.units, keeper.store_id())?
            {
                match Box::pin(self.publish_again(&guard, limit)).await {
                    // It was lost since, so there is nothing to join: campaign anew.
                    Err(error) if error.kind() == ErrorKind::Lost => continue,
                    published => published?,
                }
                return Ok(Some(guard.into()));
            }
            let mut pending = keeper.enter(claim, self.options.renewal, self.options.max_hold)?;
            let settled = pending.settle(limit).await;
            if let Err(error) = &settled
                && let Some(pause) = Self::worth_waiting(error, wait, limit, &*clock)
            {
                tracing::info!(key = self.key, %error, ?pause, "waiting until the store can grant again");
                drop(pending);
                Box::pin(tokio::time::sleep(pause)).await;
                continue;
            }
            match settled? {
                None => {
                    let (mut claim, hold) = pending.into_parts();
                    hold.note_requeued(requeued);
                    if self.first_lease.is_some() {
                        claim.lease = Some(self.options.lease);
                        keeper.renew_with(&claim.id, self.options.lease);
                    }
                    let guard = Guard::new(self.client.life().clone(), claim, hold);
                    if let Some(owner) = &self.options.owner {
                        owner.note(&guard);
                    }
                    return Ok(Some(guard.into()));
                }
                Some(Ended::TooLate) => return Box::pin(pending.run_out()).await.map(|()| None),
                Some(Ended::Busy) if matches!(wait, Wait::Not) => {
                    // Usually there is nothing to leave, but a copy of the claim may still be on its way.
                    Box::pin(pending.leave()).await;
                    return Ok(None);
                }
                // The place was lost, or the store has no queue: again, after a random pause.
                Some(ended) => {
                    let was_queued = pending.was_queued();
                    drop(pending);
                    let over = match (ended, self.if_gone, wait) {
                        (Ended::Gone, IfGone::Fail(why), _) => Some(why),
                        // One try is one try: the next could be as slow.
                        (Ended::Gone, _, Wait::Not) => {
                            Some("granted, and over before its answer came: ask again")
                        }
                        _ => None,
                    };
                    if let Some(why) = over {
                        return Err(Error::new(ErrorKind::Lost, why).on(&self.key()?));
                    }
                    if was_queued && ended == Ended::Gone {
                        requeued += 1;
                        tracing::warn!(
                            key = self.key,
                            times = requeued,
                            "lost its place in the queue: waiting anew, at the back"
                        );
                    }
                    let mut pause = self.options.retry_pause(failed);
                    failed += 1;
                    if let Some(limit) = limit {
                        let left = limit.since(clock.now());
                        if left.is_zero() {
                            return Ok(None);
                        }
                        // One last try at the limit.
                        pause = pause.min(left);
                    }
                    Box::pin(tokio::time::sleep(pause)).await;
                }
            }
        }
    }

    /// For how long to wait before the store can grant again, if it says so and the caller waits for that long.
    fn worth_waiting(
        error: &Error,
        wait: Wait,
        limit: Option<Moment>,
        clock: &dyn Clock,
    ) -> Option<Duration> {
        let pause = error.retry_after()?;
        let ends = limit.is_some_and(|limit| clock.now() + pause >= limit);
        (!matches!(wait, Wait::Not) && !ends).then_some(pause)
    }

    /// Publishes the value of a campaign whose owner leads already.
    async fn publish_again(&self, guard: &Guard, limit: Option<Moment>) -> Result<()> {
        if self.feature != Feature::Election {
            return Ok(());
        }
        let keeper = self.client.keeper();
        let one_call = keeper.clock.now() + keeper.call_timeout;
        guard.publish(&self.value, limit.map_or(one_call, |limit| limit.min(one_call))).await
    }

    fn named(&self, error: Error) -> Error {
        match self.key() {
            Ok(key) => error.on(&key),
            Err(_) => error,
        }
    }

    /// The claim of one attempt. Everything that can be wrong with it is found here, before it is sent.
    fn claim(&self, wait: Wait) -> Result<Claim> {
        let key = self.key()?;
        self.client.info().require(self.feature).map_err(|error| error.on(&key))?;
        if self.feature == Feature::Semaphore && self.limit > Semaphore::MAX_PERMITS {
            return Err(Error::new(ErrorKind::Invalid, Semaphore::too_many()).on(&key));
        }
        let mut claim = self.client.claim_for(&key, self.limit, self.units, &self.options)?;
        claim.if_busy = if matches!(wait, Wait::Not) { IfBusy::Leave } else { IfBusy::Queue };
        claim.value = self.value.clone();
        claim.lease = self.first_lease.or(claim.lease);
        if !claim.lock_delay.is_zero() {
            // It begins early wherever the lease may end early.
            claim.lock_delay += self.client.info().rounding;
        }
        Ok(claim)
    }
}
