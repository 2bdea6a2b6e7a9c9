//! The client, blocking.

use super::guard::Guard;
use super::{Election, Job, Latch, Mutex, RwLock, Semaphore, runtime, wait};
use crate::capability::Info;
use crate::client::ClientBuilder;
use crate::error::Result;
use crate::options::Options;
use crate::store::{Snapshot, Store};
use crate::ticket::Ticket;

/// A client of a store: [`leasehold_core::Client`](crate::Client), blocking.
///
/// ```
/// use leasehold_core::{Memory, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let guard = client.mutex("orders/42").acquire()?;
/// assert_eq!(client.inspect("orders/42")?.unwrap().holders[0].token, guard.token());
/// guard.release()?;
/// client.close()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

impl Client {
    /// As [`Client::new`](crate::Client::new).
    ///
    /// # Errors
    /// As there.
    pub fn new(store: impl Store) -> Result<Self> {
        Self::connect(crate::Client::builder(), store)
    }

    /// As [`ClientBuilder::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(settings: ClientBuilder, store: impl Store) -> Result<Self> {
        let settings = settings.runtime(runtime()?.clone());
        wait(settings.connect(store)).map(Self)
    }

    /// As [`ClientBuilder::connect_lazy`]: the first operation connects, so the store need not be up yet.
    ///
    /// ```
    /// use leasehold_core::{Memory, blocking::Client};
    /// # fn main() -> Result<(), leasehold_core::Error> {
    /// let client = Client::connect_lazy(leasehold_core::Client::builder(), Memory::new())?;
    /// client.mutex("orders/42").acquire()?.release()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn connect_lazy(settings: ClientBuilder, store: impl Store) -> Result<Self> {
        settings.runtime(runtime()?.clone()).connect_lazy(store).map(Self)
    }

    /// The async client behind this one, on the blocking runtime.
    pub fn as_async(&self) -> &crate::Client {
        &self.0
    }

    /// As [`Client::mutex`](crate::Client::mutex).
    pub fn mutex(&self, key: impl AsRef<str>) -> Mutex {
        Mutex(self.0.mutex(key))
    }

    /// As [`Client::rwlock`](crate::Client::rwlock).
    pub fn rwlock(&self, key: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rwlock(key))
    }

    /// As [`Client::semaphore`](crate::Client::semaphore).
    pub fn semaphore(&self, key: impl AsRef<str>, limit: u64) -> Semaphore {
        Semaphore(self.0.semaphore(key, limit))
    }

    /// As [`Client::latch`](crate::Client::latch).
    pub fn latch(&self, key: impl AsRef<str>) -> Latch {
        Latch(self.0.latch(key))
    }

    /// As [`Client::election`](crate::Client::election).
    pub fn election(&self, key: impl AsRef<str>) -> Election {
        Election(self.0.election(key))
    }

    /// As [`Client::job`](crate::Client::job).
    pub fn job(&self, key: impl AsRef<str>) -> Job {
        Job(self.0.job(key))
    }

    /// As [`Client::inspect`](crate::Client::inspect).
    ///
    /// # Errors
    /// As there.
    pub fn inspect(&self, key: impl AsRef<str>) -> Result<Option<Snapshot>> {
        wait(self.0.inspect(key))
    }

    /// As [`Client::list`](crate::Client::list).
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, prefix: &str) -> Result<Vec<Snapshot>> {
        wait(self.0.list(prefix))
    }

    /// As [`Client::evict`](crate::Client::evict).
    ///
    /// # Errors
    /// As there.
    pub fn evict(&self, key: impl AsRef<str>, token: u64) -> Result<bool> {
        wait(self.0.evict(key, token))
    }

    /// As [`Client::ask`](crate::Client::ask).
    ///
    /// # Errors
    /// As there.
    pub fn ask(&self, key: impl AsRef<str>, token: u64) -> Result<bool> {
        wait(self.0.ask(key, token))
    }

    /// As [`Client::adopt`](crate::Client::adopt).
    ///
    /// # Errors
    /// As there.
    pub fn adopt(&self, ticket: &Ticket) -> Result<Option<Guard>> {
        Ok(wait(self.0.adopt(ticket))?.map(Guard::new))
    }

    /// As [`Client::adopt_with`](crate::Client::adopt_with).
    ///
    /// # Errors
    /// As there.
    pub fn adopt_with(&self, ticket: &Ticket, options: Options) -> Result<Option<Guard>> {
        Ok(wait(self.0.adopt_with(ticket, options))?.map(Guard::new))
    }

    /// As [`Client::info`](crate::Client::info).
    pub fn info(&self) -> &Info {
        self.0.info()
    }

    /// As [`Client::close`](crate::Client::close).
    ///
    /// # Errors
    /// As there.
    pub fn close(&self) -> Result<()> {
        wait(self.0.close())
    }
}
