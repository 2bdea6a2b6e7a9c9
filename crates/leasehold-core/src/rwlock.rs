//! Many readers or one writer: a read is one unit of very many, a write is all of them.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use crate::capability::Feature;
use crate::claim::{Released, Units, WHOLE};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::options::Options;
use crate::request::Request;
use crate::resize::Resize;

pub(crate) const READ: u64 = 1;
/// Two of these do not fit beside each other, but readers fit beside one.
pub(crate) const UPGRADABLE: u64 = WHOLE / 2 + 1;

/// A lock that many may share for reading and one may have for writing.
///
/// - **Fair** in the order of arrival: a waiting writer stops later readers, so nobody starves.
/// - **Upgradable**: one [`upgradable`](RwLock::upgradable) reader at a time may become the writer without
///   letting go. A waiting second one holds back the readers behind it, as any claim that does not fit does.
/// - **Not re-entrant.**
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let lock = client.rwlock("catalogue");
/// let (one, two) = (lock.read().acquire().await?, lock.upgradable().acquire().await?);
/// assert!(lock.write().try_acquire().await?.is_none());
/// one.release().await?;
/// let writer = two.upgrade().await?; // no other writer came in between
/// assert!(lock.read().try_acquire().await?.is_none());
/// let _reader = writer.downgrade().await?;
/// assert!(lock.read().try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "a read-write lock does nothing until it is acquired"]
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    key: String,
    options: Options,
}

impl RwLock {
    pub(crate) fn new(client: &Client, key: &str) -> Self {
        Self { client: client.clone(), key: key.to_owned(), options: client.defaults().clone() }
    }

    /// Uses these options instead of the client's defaults.
    pub fn with(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// To read, beside other readers.
    pub fn read(&self) -> Request<ReadGuard> {
        self.request(READ, Feature::RwLock)
    }

    /// To write, alone.
    pub fn write(&self) -> Request<WriteGuard> {
        self.request(WHOLE, Feature::RwLock)
    }

    /// To read beside other readers, and perhaps to write later.
    pub fn upgradable(&self) -> Request<UpgradableGuard> {
        self.request(UPGRADABLE, Feature::Upgrade)
    }

    fn request<G: From<Guard>>(&self, units: u64, feature: Feature) -> Request<G> {
        let request = Request::new(&self.client, &self.key, WHOLE, Units::Exactly(units), feature);
        request.with(self.options.clone())
    }
}

/// A shared hold, for reading.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let lock = client.rwlock("k");
/// let (one, two) = (lock.read().acquire().await?, lock.read().acquire().await?);
/// assert!(one.is_valid() && two.is_valid());
/// assert!(lock.write().try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct ReadGuard(Guard);

/// A shared hold that can become exclusive.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory};
/// # let client = Client::new(Memory::new()).await?;
/// let lock = client.rwlock("catalogue");
/// let guard = lock.upgradable().acquire().await?;
/// assert!(lock.read().try_acquire().await?.is_some()); // readers fit beside it
/// assert!(lock.upgradable().try_acquire().await?.is_none()); // a second one does not
/// let before = guard.token();
/// let writer = guard.upgrade().await?;
/// assert!(writer.token() > before); // it is a new grant: give this one to what you write to
/// # writer.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct UpgradableGuard(Guard);

/// An exclusive hold.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory};
/// # let client = Client::new(Memory::new()).await?;
/// let lock = client.rwlock("catalogue");
/// let writer = lock.write().acquire().await?;
/// let reader = writer.downgrade().await?; // no other writer came in between
/// assert!(lock.read().try_acquire().await?.is_some());
/// # reader.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct WriteGuard(Guard);

impl ReadGuard {
    /// Always an error, and says why.
    ///
    /// # Errors
    /// `Invalid`: two readers that both wanted to write would wait for each other for ever.
    pub fn upgrade(&self) -> Result<WriteGuard> {
        let message = "a plain reader cannot become the writer, two of them would wait for each other for \
                       ever: acquire `upgradable()` instead, or release this and acquire `write()`";
        Err(Error::new(ErrorKind::Invalid, message).on(self.key()))
    }

    /// As [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<Released> {
        self.0.release().await
    }
}

impl UpgradableGuard {
    /// Waits until the other readers are gone, ahead of everybody who waits, and becomes the writer.
    ///
    /// # Cancel safety
    /// The guard is consumed: a dropped upgrade gives the lock up. [`upgrade_within`](Self::upgrade_within)
    /// keeps it when the wait was too long.
    ///
    /// # Errors
    /// `Lost` when the lock is lost meanwhile.
    pub async fn upgrade(self) -> Result<WriteGuard> {
        self.0.resize(WHOLE, Resize::Forever).await?;
        Ok(WriteGuard(self.0))
    }

    /// Becomes the writer if no other reader is there; else gives the guard back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let lock = client.rwlock("catalogue");
    /// let (reader, upgradable) = (lock.read().acquire().await?, lock.upgradable().acquire().await?);
    /// let Err(upgradable) = upgradable.try_upgrade().await? else { panic!("there is a reader") };
    /// reader.release().await?;
    /// let Ok(writer) = upgradable.try_upgrade().await? else { panic!("there is none") };
    /// # writer.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Lost` when the lock is lost meanwhile.
    pub async fn try_upgrade(self) -> Result<Result<WriteGuard, Self>> {
        let grown = self.0.resize(WHOLE, Resize::Try).await?;
        Ok(if grown { Ok(WriteGuard(self.0)) } else { Err(self) })
    }

    /// Waits at most this long for the other readers to go; else gives the guard back.
    ///
    /// # Errors
    /// `Lost` when the lock is lost meanwhile.
    pub async fn upgrade_within(self, limit: Duration) -> Result<Result<WriteGuard, Self>> {
        let until = self.0.now() + limit;
        let grown = self.0.resize(WHOLE, Resize::Until(until)).await?;
        Ok(if grown { Ok(WriteGuard(self.0)) } else { Err(self) })
    }

    /// Becomes a plain reader.
    ///
    /// # Errors
    /// `Lost` when the lock is lost meanwhile.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.0.resize(READ, Resize::Forever).await?;
        Ok(ReadGuard(self.0))
    }

    /// As [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<Released> {
        self.0.release().await
    }
}

impl WriteGuard {
    /// Becomes a reader without letting another writer in between.
    ///
    /// # Errors
    /// `Lost` when the lock is lost meanwhile.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.0.resize(READ, Resize::Forever).await?;
        Ok(ReadGuard(self.0))
    }

    /// Becomes a reader that may write again later.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let lock = client.rwlock("catalogue");
    /// let writer = lock.write().acquire().await?;
    /// let upgradable = writer.downgrade_to_upgradable().await?;
    /// assert!(lock.read().try_acquire().await?.is_some());
    /// let writer = upgradable.upgrade().await?;
    /// # writer.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Lost` when the lock is lost meanwhile.
    pub async fn downgrade_to_upgradable(self) -> Result<UpgradableGuard> {
        self.0.resize(UPGRADABLE, Resize::Forever).await?;
        Ok(UpgradableGuard(self.0))
    }

    /// As [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<Released> {
        self.0.release().await
    }
}

macro_rules! is_a_guard {
    ($($name:ident),*) => {$(
        impl From<Guard> for $name {
            fn from(guard: Guard) -> Self {
                Self(guard)
            }
        }

        impl Borrow<Guard> for $name {
            fn borrow(&self) -> &Guard {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = Guard;
            fn deref(&self) -> &Guard {
                &self.0
            }
        }
    )*};
}

is_a_guard!(ReadGuard, UpgradableGuard, WriteGuard);
