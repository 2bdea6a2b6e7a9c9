//! Several locks at once, or none: acquired in one order everywhere, so that nobody waits in a circle.

use std::time::Duration;

use futures_util::future::select_all;

use crate::claim::Released;
use crate::election::Leader;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hold::Loss;
use crate::key::Key;
use crate::mutant::Mutant;
use crate::mutex::Mutex;
use crate::request::Request;
use crate::rwlock::{ReadGuard, UpgradableGuard, WriteGuard};

/// Something that can be part of a [`Multi`]: a mutex, a side of a read-write lock, permits.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Multi};
/// let client = Client::new(Memory::new()).await?;
/// // A lock, a side of a read-write lock and some permits are parts.
/// let both = Multi::new().and(client.mutex("a")).and(client.semaphore("b", 5).permits(2));
/// both.acquire().await?.release().await?;
/// # Ok(()) }
/// ```
pub trait Part {
    /// What to acquire.
    fn into_request(self) -> Request;
}

impl Part for Mutex {
    fn into_request(self) -> Request {
        self.0
    }
}

macro_rules! is_a_part {
    ($($guard:ty),*) => {$(
        impl Part for Request<$guard> {
            fn into_request(self) -> Request {
                self.plain()
            }
        }
    )*};
}

is_a_part!(Guard, ReadGuard, UpgradableGuard, WriteGuard, Leader);

/// Several locks, on one store or on several, acquired all or nothing.
///
/// They are acquired one after the other in the order of (store, key), whatever order they were named in: everybody
/// who names the same stores by the same [names](crate::ClientBuilder::name) goes the same way, so nobody waits in
/// a circle. The name of a client that `leasehold::connect` made is its URL without user and password, so use the same
/// URL for a store in every process. One wait limit covers all of them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Multi};
/// let client = Client::new(Memory::new()).await?;
/// let both = Multi::new().and(client.mutex("account/7")).and(client.mutex("account/3"));
/// let guards = both.acquire().await?;
/// assert!(client.mutex("account/3").try_acquire().await?.is_none());
/// guards.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "a multi-lock does nothing until it is acquired"]
#[derive(Debug, Default)]
pub struct Multi {
    parts: Vec<Request>,
}

impl Multi {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// This one too.
    pub fn and(mut self, part: impl Part) -> Self {
        self.parts.push(part.into_request());
        self
    }

    /// Waits until all are granted.
    ///
    /// # Cancel safety
    /// A dropped acquire gives back what it had and leaves every queue.
    ///
    /// # Errors
    /// `Invalid` when there is none, or one is named twice; else as [`Request::acquire`].
    pub async fn acquire(&self) -> Result<MultiGuard> {
        let mut guards = Guards::default();
        for part in self.in_order()? {
            guards.0.push(part.acquire().await?);
        }
        guards.all_valid().map(MultiGuard)
    }

    /// Acquires all of them if that is possible at once.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        let mut guards = Guards::default();
        for part in self.in_order()? {
            let Some(guard) = part.try_acquire().await? else {
                if Mutant::MultiSkipsABusyPart.lives() {
                    continue;
                }
                guards.release().await?;
                return Ok(None);
            };
            guards.0.push(guard);
        }
        guards.all_valid().map(MultiGuard).map(Some)
    }

    /// Waits at most this long, for all of them together.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<Option<MultiGuard>> {
        let mut guards = Guards::default();
        let parts = self.in_order()?;
        let Some(clock) = parts.first().map(|part| part.client().keeper().clock.clone()) else {
            return Ok(None);
        };
        let until = clock.now() + limit;
        for part in parts {
            let Some(guard) = part.acquire_within(until.since(clock.now())).await? else {
                guards.release().await?;
                return Ok(None);
            };
            guards.0.push(guard);
        }
        guards.all_valid().map(MultiGuard).map(Some)
    }

    /// The parts in the one order.
    fn in_order(&self) -> Result<Vec<&Request>> {
        let mut parts: Vec<(&str, Key, &Request)> = Vec::new();
        for part in &self.parts {
            parts.push((part.client().name(), part.key()?, part));
        }
        if !Mutant::MultiInCallersOrder.lives() {
            parts.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        }
        if parts.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a multi-lock of nothing: add parts with `and`"));
        }
        if let Some(twice) = parts.windows(2).find(|pair| (pair[0].0, &pair[0].1) == (pair[1].0, &pair[1].1))
        {
            let mut message = "named twice in one multi-lock: it would wait for itself".to_owned();
            let [one, two] = [0, 1].map(|n| twice[n].2.client().keeper().store_id());
            if one != two {
                message += &format!(
                    "; two clients of different stores are both called \"{}\": connect them by URL, or name them \
                     (`ClientBuilder::name`)",
                    twice[0].0
                );
            }
            return Err(Error::new(ErrorKind::Invalid, message).on(&twice[0].1));
        }
        Ok(parts.into_iter().map(|(_, _, part)| part).collect())
    }
}

/// Guards that are given back in reverse, also when they are dropped.
#[derive(Debug, Default)]
struct Guards(Vec<Guard>);

impl Guards {
    /// While the later ones were waited for, an earlier one may have been lost.
    fn all_valid(self) -> Result<Self> {
        match self.0.iter().find(|guard| !guard.is_valid()) {
            None => Ok(self),
            Some(lost) => Err(lost.lost_error(Loss::Expired)),
        }
    }

    async fn release(mut self) -> Result<Released> {
        let mut found = Ok(Released::Held);
        while let Some(guard) = self.0.pop() {
            match guard.release().await {
                Ok(Released::Held) => {}
                // One that fails must not keep the others: the first word of trouble is passed on at the end.
                other if found.as_ref().is_ok_and(|found| *found == Released::Held) => found = other,
                _ => {}
            }
        }
        found
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// All locks of a [`Multi`], held together.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory, Multi};
/// # let client = Client::new(Memory::new()).await?;
/// let both = Multi::new().and(client.mutex("account/7")).and(client.rwlock("account/3").read());
/// let guards = both.acquire().await?;
/// let keys: Vec<_> = guards.guards().iter().map(|guard| guard.key().as_str()).collect();
/// assert_eq!((keys, guards.is_valid()), (vec!["account/3", "account/7"], true));
/// guards.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the locks are released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard(Guards);

impl MultiGuard {
    /// The guards, in the order in which they were acquired: each has its own key and token.
    pub fn guards(&self) -> &[Guard] {
        &self.0.0
    }

    /// Whether all of them may still be relied on.
    pub fn is_valid(&self) -> bool {
        self.guards().iter().all(Guard::is_valid)
    }

    /// For how long all of them may be relied on if no renewal succeeds any more.
    pub fn valid_for(&self) -> Duration {
        self.guards().iter().map(Guard::valid_for).min().unwrap_or_default()
    }

    /// Waits until the first of them is lost; says which and why.
    pub async fn lost(&self) -> (&Key, Loss) {
        let all =
            self.guards().iter().map(|guard| Box::pin(async move { (guard.key(), guard.lost().await) }));
        select_all(all).await.0
    }

    /// Gives all of them back, the last one first, also when one fails. Says [`Released::Gone`] when any had
    /// been lost.
    ///
    /// # Errors
    /// The first failure; the others were released all the same.
    pub async fn release(self) -> Result<Released> {
        self.0.release().await
    }
}
