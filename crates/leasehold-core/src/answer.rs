//! What a store answers about a claim.

use std::time::Duration;

/// How a claim stands.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, Key, Memory, Store, Units};
/// let store = Memory::new();
/// let claim = Claim::new(Key::new("k")?, 1, Units::Exactly(1))?;
/// assert!(matches!(store.claim(&claim).await?, Answer::Granted(_)));
/// store.release(&claim, None).await?;
/// assert_eq!(store.renew(&[claim]).await?, [Answer::Gone]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds everything it wants.
    Granted(Grant),
    /// It has a place in the queue (and, when it waits to grow, what it held before).
    Waiting(Place),
    /// It did not fit, and nothing was left behind.
    Busy,
    /// There is no such claim: released, expired, evicted, withdrawn, or never there.
    Gone,
    /// What is left of a count after `Give`.
    Left(u64),
    /// A change that is not about a claim was made.
    Done,
}

impl Answer {
    /// What the request extended the lease of a claim that holds to.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self {
            Self::Granted(grant) => grant.lease,
            _ => None,
        }
    }

    /// The rule's answer about a claim [on a session](crate::Claim::on_session), with what the request extended that to.
    ///
    /// ```
    /// use leasehold_core::{Answer, Grant};
    /// use std::time::Duration;
    /// let grant = Grant { seat: 1, token: 1, units: 1, lease: Some(Duration::MAX), asked: false };
    /// // It joined a session that was there.
    /// assert_eq!(Answer::Granted(grant.clone()).on_session(None), Answer::Granted(Grant { lease: None, ..grant }));
    /// ```
    #[must_use]
    pub fn on_session(mut self, extended: Option<Duration>) -> Self {
        match &mut self {
            Self::Granted(grant) => grant.lease = extended,
            Self::Waiting(place) => place.lease = extended,
            _ => {}
        }
        self
    }
}

/// A claim that holds.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, Key, Memory, Store, Units};
/// let claim = Claim::new(Key::new("k")?, 3, Units::UpTo(3))?;
/// let Answer::Granted(grant) = Memory::new().claim(&claim).await? else { panic!("it is free") };
/// assert!(grant.units == 3 && grant.lease == claim.lease && !grant.asked);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its place, never reused.
    pub seat: u64,
    /// The number of the write that made it hold: larger than that of any earlier grant of the key, and at most `i64::MAX`.
    pub token: u64,
    /// The units it holds.
    pub units: u64,
    /// What this request extended the claim's lease to, from now; `None` when it extended nothing (a
    /// grant on a session that others share).
    pub lease: Option<Duration>,
    /// Whether somebody asked for it ([`Change::Ask`](crate::Change::Ask)).
    pub asked: bool,
}

/// A claim that waits.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, Key, Memory, Store, Units};
/// let store = Memory::new();
/// let claim = || Claim::new(Key::new("k")?, 1, Units::Exactly(1));
/// store.claim(&claim()?).await?;
/// let Answer::Waiting(place) = store.claim(&claim()?).await? else { panic!("it is taken") };
/// assert_eq!((place.ahead, place.held), (0, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its place, never reused.
    pub seat: u64,
    /// How many claims are before it; counted to [`Place::COUNTED`] and no further.
    pub ahead: u64,
    /// When to ask again if nothing is heard.
    pub look_in: Duration,
    /// The units that it holds meanwhile: not zero when it waits to grow.
    pub held: u64,
    /// As in [`Grant::lease`].
    pub lease: Option<Duration>,
}

impl Place {
    /// The largest `ahead` that is counted: looking at a long queue must stay cheap.
    pub const COUNTED: u64 = 64;
}

/// What a release found.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Released};
/// let client = Client::new(Memory::new()).await?;
/// let guard = client.mutex("k").acquire().await?;
/// client.evict("k", guard.token()).await?;
/// assert_eq!(guard.release().await?, Released::Gone); // somebody took it away
/// assert_eq!(client.mutex("k").acquire().await?.release().await?, Released::Held);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The claim held, and does no more.
    Held,
    /// The claim waited, and has left the queue.
    Waiting,
    /// There was no such claim any more.
    Gone,
}
