//! Settings of a client, and making it with them.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::clock::{BootClock, Clock};
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::Keeper;
use crate::options::Options;
use crate::rule::LATE;
use crate::store::Store;

/// Settings of a [`Client`].
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Options};
/// let short = Options::new().lease(Duration::from_secs(5));
/// let client = Client::builder().call_timeout(Duration::from_secs(1)).defaults(short).connect(Memory::new()).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// assert!(guard.valid_for() < Duration::from_secs(5));
/// # guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until it connects"]
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    clock: Arc<dyn Clock>,
    name: Option<Arc<str>>,
    runtime: Option<tokio::runtime::Handle>,
    call_timeout: Duration,
    connect_timeout: Option<Duration>,
    defaults: Options,
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            clock: Arc::new(BootClock),
            name: None,
            runtime: None,
            call_timeout: Duration::from_secs(5),
            connect_timeout: None,
            defaults: Options::new(),
        }
    }

    /// The clock that deadlines are read from. For tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What to call this store where several are used together: the same everywhere, different for each store.
    /// `leasehold::connect` uses the URL, without its user and password.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Some(name.as_ref().into());
        self
    }

    /// The runtime that carries the background task. Default: the one that calls `connect`.
    pub fn runtime(mut self, runtime: tokio::runtime::Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// How long one call to the store may take. Default 5 s, at most 30 s. A longer one finds out later that
    /// a store is gone, a shorter one gives up on a slow store.
    ///
    /// The limit is half of [`rule::LATE`](crate::rule::LATE): for that long a store recognises late copies
    /// of a request that set a latch or resized a semaphore. A client repeats a request within one call
    /// timeout, and the last repeat takes another one.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// How long [`connect`](Self::connect) goes on trying while the store's servers answer, but none can serve: during a
    /// failover, or while a server starts. Default: as long as one [call](Self::call_timeout) may take. Zero tries once.
    ///
    /// A server that refuses the connection or does not answer is reported after the first attempt.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// The options of everything that is acquired without options of its own.
    pub fn defaults(mut self, options: Options) -> Self {
        self.defaults = options;
        self
    }

    /// Connects to the store and checks its settings. Waits out a failover for as long as
    /// [`connect_timeout`](Self::connect_timeout) allows.
    ///
    /// # Errors
    /// When the store cannot be reached or refuses us; `Invalid` outside of a tokio runtime, or if the call
    /// timeout is out of range.
    pub async fn connect(self, store: impl Store) -> Result<Client> {
        let limit = self.connect_timeout.unwrap_or(self.call_timeout);
        let client = self.connect_lazy(store)?;
        client.keeper().connect(limit).await?;
        Ok(client)
    }

    /// A client that connects when it is first used: the store need not be up yet.
    ///
    /// The first operation connects and checks the store's settings before it asks for anything. If that fails, the
    /// operation fails with the error that [`connect`](Self::connect) would have returned, and the next operation tries again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// use leasehold_core::{Client, Memory, layers::Faults};
    /// let store = Faults::new(Memory::new());
    /// store.cut(); // the store is down
    /// let settings = Client::builder().call_timeout(std::time::Duration::from_millis(20));
    /// let client = settings.connect_lazy(store.clone())?;
    /// assert!(client.mutex("orders/42").acquire().await.is_err());
    /// store.heal();
    /// client.mutex("orders/42").acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid` outside of a tokio runtime, or if the call timeout is out of range.
    pub fn connect_lazy(self, store: impl Store) -> Result<Client> {
        check_call_timeout(self.call_timeout)?;
        let here = || tokio::runtime::Handle::try_current().map_err(outside_runtime);
        let runtime = self.runtime.map_or_else(here, Ok)?;
        let life = Keeper::start(Arc::new(store), self.clock, self.call_timeout, runtime)?;
        let (label, defaults) = (default_label().into(), Arc::new(self.defaults));
        Ok(Client { life, name: self.name, label, defaults })
    }
}

fn check_call_timeout(limit: Duration) -> Result<()> {
    let longest = LATE / 2;
    if !limit.is_zero() && limit <= longest {
        return Ok(());
    }
    let message = format!("the call timeout is {limit:?}: use more than zero and at most {longest:?}");
    Err(Error::new(ErrorKind::Invalid, message))
}

fn outside_runtime(error: tokio::runtime::TryCurrentError) -> Error {
    let message = "connect needs a tokio runtime: call it from async code or give the builder a runtime";
    Error::new(ErrorKind::Invalid, message).because(error)
}

/// Host and process: enough to find the holder.
fn default_label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[tokio::test]
    async fn call_timeout_is_at_most_half_of_what_stores_remember() {
        let with = async |limit| Client::builder().call_timeout(limit).connect(Memory::new()).await;
        assert!(with(Duration::from_secs(30)).await.is_ok());
        for limit in [Duration::ZERO, Duration::from_millis(30_001), Duration::MAX] {
            let error = with(limit).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{limit:?}: {error}");
            assert!(error.to_string().contains("call timeout"), "{error}");
        }
    }
}
