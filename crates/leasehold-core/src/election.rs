//! One leader that everybody can see: a mutex whose claim carries a value.

use std::borrow::Borrow;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;

use crate::capability::Feature;
use crate::claim::{Answer, Change, Released, Units, WHOLE};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Result;
use crate::guard::Guard;
use crate::hold::Loss;
use crate::options::Options;
use crate::request::Request;
use crate::store::Snapshot;
use crate::watch::Watch;

/// An election: many campaign, one leads, everybody may look.
///
/// The leader steps down by itself before its lease ends: [`lost`](Guard::lost) fires first, then others are elected.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let election = client.election("scheduler");
/// let leader = election.campaign("10.0.0.7:8080").await?;
/// assert_eq!(election.leader().await?.unwrap().value[..], *b"10.0.0.7:8080");
/// leader.proclaim("10.0.0.7:9090").await?;
/// assert_eq!(election.leader().await?.unwrap().value[..], *b"10.0.0.7:9090");
/// leader.resign().await?;
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[must_use = "an election does nothing until somebody campaigns or looks"]
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    key: String,
    options: Options,
}

impl Election {
    pub(crate) fn new(client: &Client, key: &str) -> Self {
        Self { client: client.clone(), key: key.to_owned(), options: client.defaults().clone() }
    }

    /// Uses these options instead of the client's defaults.
    pub fn with(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// What to acquire to lead, publishing `value`: `acquire`, `try_acquire` and `acquire_within` as everywhere.
    ///
    /// If the same [`Owner`](crate::Owner) leads already, this publishes `value` in the term that it has.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let election = client.election("scheduler");
    /// let leader = election.candidate("10.0.0.7:8080").try_acquire().await?.expect("nobody leads");
    /// assert!(election.candidate("10.0.0.8:8080").try_acquire().await?.is_none());
    /// leader.resign().await?;
    /// # Ok(()) }
    /// ```
    pub fn candidate(&self, value: impl AsRef<[u8]>) -> Request<Leader> {
        let request = Request::new(&self.client, &self.key, WHOLE, Units::Exactly(WHOLE), Feature::Election);
        request.with(self.options.clone()).value(value.as_ref())
    }

    /// Waits until elected.
    ///
    /// # Cancel safety
    /// A dropped campaign leaves the election.
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn campaign(&self, value: impl AsRef<[u8]> + Send) -> Result<Leader> {
        let candidate = self.candidate(value);
        candidate.acquire().await
    }

    /// Waits at most this long to be elected.
    ///
    /// # Errors
    /// As [`Request::acquire`].
    pub async fn campaign_within(
        &self,
        value: impl AsRef<[u8]> + Send,
        limit: Duration,
    ) -> Result<Option<Leader>> {
        let candidate = self.candidate(value);
        candidate.acquire_within(limit).await
    }

    /// Who leads now.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn leader(&self) -> Result<Option<Term>> {
        Ok(self.client.inspect(&self.key).await?.and_then(term))
    }

    /// Follows the leadership: who leads now (or nobody), then every change. Terms come in order.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let election = client.election("scheduler");
    /// let mut terms = election.observe()?;
    /// assert!(terms.next().await?.is_none()); // nobody leads yet
    /// let leader = election.campaign("10.0.0.7:8080").await?;
    /// let term = terms.next().await?.expect("somebody leads now");
    /// assert_eq!((&term.value[..], term.token), (&b"10.0.0.7:8080"[..], leader.token()));
    /// # leader.resign().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid` when the key is not a name.
    pub fn observe(&self) -> Result<Observe> {
        Ok(Observe { watch: self.client.watch(&self.key)?, seen: None })
    }
}

/// A leader as everybody sees it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let election = client.election("boss");
/// let leader = election.campaign(b"host 1").await?;
/// let term = election.leader().await?.expect("somebody leads");
/// assert_eq!((&*term.value, term.token), (&b"host 1"[..], leader.token()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// What it published.
    pub value: Arc<[u8]>,
    /// The fencing token of its leadership: larger in every later term.
    pub token: u64,
    /// Its label.
    pub label: String,
}

fn term(now: Snapshot) -> Option<Term> {
    let leader = now.holders.into_iter().next()?;
    Some(Term { value: leader.value, token: leader.token, label: leader.label })
}

/// A leadership: a [`Guard`] that can publish.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory};
/// # let client = Client::new(Memory::new()).await?;
/// let leader = client.election("scheduler").campaign("10.0.0.7:8080").await?;
/// assert!(leader.is_valid() && leader.token() > 0); // as any guard
/// leader.proclaim("10.0.0.7:9090").await?;
/// leader.resign().await?;
/// # Ok(()) }
/// ```
#[must_use = "a leader that is dropped resigns"]
#[derive(Debug)]
pub struct Leader(Guard);

impl Leader {
    /// Publishes another value.
    ///
    /// # Errors
    /// `Lost` when this is not the leader any more.
    pub async fn proclaim(&self, value: impl AsRef<[u8]> + Send) -> Result<()> {
        let keeper = &self.0.hand().life.0;
        self.0.publish(value.as_ref(), keeper.clock.now() + keeper.call_timeout).await
    }

    /// Gives the leadership up.
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn resign(self) -> Result<Released> {
        self.0.release().await
    }
}

impl Guard {
    /// Publishes another value with the claim, and repeats the request until `until`.
    pub(crate) async fn publish(&self, value: &[u8], until: Moment) -> Result<()> {
        let (hand, keeper) = (self.hand(), &self.hand().life.0);
        let change = Change::Value { to: value.into(), op: hand.next_change() };
        let answer =
            keeper.retry_until(self.key(), until, || keeper.store.amend(&hand.claim, &change)).await?;
        if answer == Answer::Gone {
            hand.hold.end(Loss::Gone);
            return Err(self.lost_error(Loss::Gone));
        }
        Ok(())
    }
}

impl From<Guard> for Leader {
    fn from(guard: Guard) -> Self {
        Self(guard)
    }
}

impl Borrow<Guard> for Leader {
    fn borrow(&self) -> &Guard {
        &self.0
    }
}

impl Deref for Leader {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// The changes of a leadership: see [`Election::observe`].
#[derive(Debug)]
pub struct Observe {
    watch: Watch,
    seen: Option<Option<Term>>,
}

impl Observe {
    /// The leader now, then after each change; `None` while nobody leads.
    ///
    /// # Errors
    /// When the store does not answer; observing can go on.
    pub async fn next(&mut self) -> Result<Option<Term>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await.unwrap_or(Ok(None))
    }
}

impl Stream for Observe {
    type Item = Result<Option<Term>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let next = match Pin::new(&mut self.watch).poll_next(cx) {
                Poll::Ready(Some(Ok(now))) => now.and_then(term),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            };
            // Candidates come and go behind the leader: that is nobody's news here.
            if self.seen.as_ref() != Some(&next) {
                self.seen = Some(next.clone());
                return Poll::Ready(Some(Ok(next)));
            }
        }
    }
}
