//! A connection to a store, and the way to everything that can be asked of it.

mod builder;

use std::fmt;
use std::sync::Arc;

pub use builder::ClientBuilder;

use crate::capability::{Feature, Info};
use crate::claim::{Answer, Change, Claim, Order, PATIENCE, Units, WHOLE};
use crate::election::Election;
use crate::error::Result;
use crate::job::Job;
use crate::keeper::{Keeper, Lifeline};
use crate::key::Key;
use crate::latch::Latch;
use crate::mutex::Mutex;
use crate::options::Options;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::store::{Snapshot, Store};
use crate::watch::Watch;

/// A client of a store. Cheap to clone; clones share one background task.
///
/// The task lives on the tokio runtime that called [`new`](Client::new) (or the one given to the
/// [builder](Client::builder)). When that runtime ends, guards are lost by their deadline, waits end with an error, and
/// further calls are refused.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// assert!(client.mutex("orders/42").try_acquire().await?.is_none());
/// guard.release().await?;
/// client.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    life: Arc<Lifeline>,
    name: Option<Arc<str>>,
    label: Arc<str>,
    defaults: Arc<Options>,
}

impl Client {
    /// Connects to the store with default settings.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn new(store: impl Store) -> Result<Self> {
        Self::builder().connect(store).await
    }

    /// Settings other than the defaults.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// An exclusive lock.
    pub fn mutex(&self, key: impl AsRef<str>) -> Mutex {
        Mutex::new(self, key.as_ref())
    }

    /// A lock that many may share for reading and one may have for writing.
    pub fn rwlock(&self, key: impl AsRef<str>) -> RwLock {
        RwLock::new(self, key.as_ref())
    }

    /// `limit` permits, each with a lease of its own. Everybody must name the same limit.
    pub fn semaphore(&self, key: impl AsRef<str>, limit: u64) -> Semaphore {
        Semaphore::new(self, key.as_ref(), limit)
    }

    /// A count that goes down to zero, and a way to wait for that.
    pub fn latch(&self, key: impl AsRef<str>) -> Latch {
        Latch::new(self, key.as_ref())
    }

    /// An election of one leader.
    pub fn election(&self, key: impl AsRef<str>) -> Election {
        Election::new(self, key.as_ref())
    }

    /// A piece of work that one process does at a time.
    pub fn job(&self, key: impl AsRef<str>) -> Job {
        Job::new(self, key.as_ref())
    }

    /// Who holds a key and who waits for it; `None` when nobody does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// assert!(client.inspect("orders/42").await?.is_none());
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// let now = client.inspect("orders/42").await?.expect("somebody holds it");
    /// assert_eq!((now.holders[0].token, now.waiters.len()), (guard.token(), 0));
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the key is not a name or the store does not answer.
    pub async fn inspect(&self, key: impl AsRef<str>) -> Result<Option<Snapshot>> {
        let key = Key::new(key)?;
        let keeper = self.keeper();
        keeper.check_runtime()?;
        keeper.call(keeper.store.inspect(&key)).await.map_err(|error| error.on(&key))
    }

    /// All resources in use whose key starts with `prefix`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let one = client.mutex("orders/1").acquire().await?;
    /// let two = client.mutex("users/1").acquire().await?;
    /// let orders = client.list("orders/").await?;
    /// assert_eq!(orders.iter().map(|lock| lock.key.as_str()).collect::<Vec<_>>(), ["orders/1"]);
    /// # drop((one, two));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` where the store cannot enumerate, or when it does not answer.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Snapshot>> {
        self.info().require(Feature::List)?;
        let keeper = self.keeper();
        keeper.check_runtime()?;
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = keeper.call(keeper.store.list(prefix, cursor.as_deref())).await?;
            all.extend(page.resources);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Takes a lock away from whoever holds it with `token`: its guard is lost, and the next holder's token
    /// is larger. `false` when nobody holds with that token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Loss, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// assert!(client.evict("orders/42", guard.token()).await?);
    /// assert_eq!(guard.lost().await, Loss::Gone);
    /// let next = client.mutex("orders/42").acquire().await?;
    /// assert!(next.token() > guard.token());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the key is not a name or the store does not answer.
    pub async fn evict(&self, key: impl AsRef<str>, token: u64) -> Result<bool> {
        self.info().require(Feature::Evict)?;
        let key = Key::new(key)?;
        let keeper = self.keeper();
        keeper.check_runtime()?;
        keeper.call(keeper.store.evict(&key, token)).await.map_err(|error| error.on(&key))
    }

    /// Asks whoever holds `key` with `token` to give it back: its
    /// [`Guard::asked_to_release`](crate::Guard::asked_to_release) returns, and the holder decides. `false` when
    /// nobody holds with that token.
    ///
    /// # Errors
    /// `Unsupported` where the store cannot; when the key is not a name or the store does not answer.
    pub async fn ask(&self, key: impl AsRef<str>, token: u64) -> Result<bool> {
        self.info().require(Feature::Ask)?;
        let key = Key::new(key)?;
        self.keeper().check_runtime()?;
        let claim = Claim::new(key, WHOLE, Units::Exactly(WHOLE))?;
        Ok(self.keeper().amend(&claim, &Change::Ask(token)).await? == Answer::Done)
    }

    /// Follows a key: its state now, then every change.
    ///
    /// # Errors
    /// `Invalid` when the key is not a name.
    pub fn watch(&self, key: impl AsRef<str>) -> Result<Watch> {
        Ok(Watch::new(self.clone(), Key::new(key)?))
    }

    /// What the store is and what it can do. Before a [lazy](ClientBuilder::connect_lazy) client has connected, this is what
    /// the store declares: without [checks](Info::checks), and with promises that its settings may turn out to weaken.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Feature, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// assert_eq!(client.info().name, "memory");
    /// assert!(client.info().supports(Feature::Semaphore));
    /// # Ok(()) }
    /// ```
    pub fn info(&self) -> &Info {
        self.keeper().store.info()
    }

    /// The store itself, for what the primitives do not offer.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.keeper().store
    }

    /// Releases everything that this client and its clones hold, ends their waits with an error, and stops
    /// the background task. Guards that are still around are lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Loss, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// client.close().await?;
    /// assert_eq!(guard.lost().await, Loss::Closed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// None today; what could not be released ends with its lease.
    pub async fn close(&self) -> Result<()> {
        self.keeper().close().await;
        Ok(())
    }

    /// The name that this store goes by in the order of a [`Multi`](crate::Multi).
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.info().name)
    }

    /// A claim of this client with everything checked that can be checked before it is sent.
    pub(crate) fn claim_for(&self, key: &Key, limit: u64, units: Units, options: &Options) -> Result<Claim> {
        let lease = options.lease;
        self.info().check_lease(lease).map_err(|error| error.on(key))?;
        if !options.lock_delay.is_zero() {
            self.info().require(Feature::LockDelay).map_err(|error| error.on(key))?;
        }
        let mut claim = Claim::new(key.clone(), limit, units)?;
        claim.lease = Some(lease);
        claim.patience = lease.min(PATIENCE);
        claim.order = if options.barging { Order::Barging } else { Order::Fair };
        claim.lock_delay = options.lock_delay;
        claim.label = options.label.clone().unwrap_or_else(|| self.label.clone());
        claim.inbox = self.keeper().inbox;
        claim.check()?;
        Ok(claim)
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.life.0
    }

    pub(crate) fn life(&self) -> &Arc<Lifeline> {
        &self.life
    }

    pub(crate) fn defaults(&self) -> &Options {
        &self.defaults
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.info().name).field("label", &self.label).finish()
    }
}
