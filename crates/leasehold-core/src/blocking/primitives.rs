//! The other primitives, blocking.

use std::time::Duration;

use super::guard::{Guard, MultiGuard};
use super::request::Request;
use super::wait;
use crate::error::Result;
use crate::multi::Part;
use crate::options::Options;
use crate::{Leader, ReadGuard, Run, Term, UpgradableGuard, WriteGuard};

/// A read-write lock: [`leasehold_core::RwLock`](crate::RwLock), blocking.
///
/// ```
/// use leasehold_core::{Memory, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let lock = client.rwlock("catalogue");
/// let writer = lock.upgradable().acquire()?.upgrade()?;
/// assert!(lock.read().try_acquire()?.is_none());
/// writer.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(pub(super) crate::RwLock);

impl RwLock {
    /// As [`RwLock::with`](crate::RwLock::with).
    #[must_use]
    pub fn with(self, options: Options) -> Self {
        Self(self.0.with(options))
    }

    /// As [`RwLock::read`](crate::RwLock::read).
    pub fn read(&self) -> Request<ReadGuard> {
        Request(self.0.read())
    }

    /// As [`RwLock::write`](crate::RwLock::write).
    pub fn write(&self) -> Request<WriteGuard> {
        Request(self.0.write())
    }

    /// As [`RwLock::upgradable`](crate::RwLock::upgradable).
    pub fn upgradable(&self) -> Request<UpgradableGuard> {
        Request(self.0.upgradable())
    }
}

/// Permits: [`leasehold_core::Semaphore`](crate::Semaphore), blocking.
///
/// ```
/// use leasehold_core::{Memory, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let permits = client.semaphore("api calls", 3);
/// let two = permits.permits(2).acquire()?;
/// assert_eq!(permits.available()?, 1);
/// two.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(pub(super) crate::Semaphore);

impl Semaphore {
    /// As [`Semaphore::with`](crate::Semaphore::with).
    #[must_use]
    pub fn with(self, options: Options) -> Self {
        Self(self.0.with(options))
    }

    /// As [`Semaphore::permits`](crate::Semaphore::permits).
    pub fn permits(&self, n: u64) -> Request {
        Request(self.0.permits(n))
    }

    /// As [`Semaphore::up_to`](crate::Semaphore::up_to).
    pub fn up_to(&self, n: u64) -> Request {
        Request(self.0.up_to(n))
    }

    /// As [`Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Guard> {
        self.permits(1).acquire()
    }

    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        self.permits(1).try_acquire()
    }

    /// As [`Semaphore::acquire_within`](crate::Semaphore::acquire_within).
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.permits(1).acquire_within(limit)
    }

    /// As [`Semaphore::available`](crate::Semaphore::available).
    ///
    /// # Errors
    /// As there.
    pub fn available(&self) -> Result<u64> {
        wait(self.0.available())
    }

    /// As [`Semaphore::resize`](crate::Semaphore::resize).
    ///
    /// # Errors
    /// As there.
    pub fn resize(&self, permits: u64) -> Result<()> {
        wait(self.0.resize(permits))
    }
}

/// A count-down latch: [`leasehold_core::Latch`](crate::Latch), blocking.
///
/// ```
/// use leasehold_core::{Memory, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let ready = client.latch("workers ready");
/// ready.set(1)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| ready.count_down());
///     ready.wait()
/// })?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Latch(pub(super) crate::Latch);

impl Latch {
    /// As [`Latch::lives_for`](crate::Latch::lives_for).
    #[must_use]
    pub fn lives_for(self, time: Duration) -> Self {
        Self(self.0.lives_for(time))
    }

    /// As [`Latch::must_exist`](crate::Latch::must_exist).
    #[must_use]
    pub fn must_exist(self) -> Self {
        Self(self.0.must_exist())
    }

    /// As [`Latch::set`](crate::Latch::set).
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, count: u64) -> Result<bool> {
        wait(self.0.set(count))
    }

    /// As [`Latch::count_down`](crate::Latch::count_down).
    ///
    /// # Errors
    /// As there.
    pub fn count_down(&self) -> Result<u64> {
        wait(self.0.count_down())
    }

    /// As [`Latch::count_down_by`](crate::Latch::count_down_by).
    ///
    /// # Errors
    /// As there.
    pub fn count_down_by(&self, n: u64) -> Result<u64> {
        wait(self.0.count_down_by(n))
    }

    /// As [`Latch::count`](crate::Latch::count).
    ///
    /// # Errors
    /// As there.
    pub fn count(&self) -> Result<u64> {
        wait(self.0.count())
    }

    /// As [`Latch::wait`](crate::Latch::wait).
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self) -> Result<()> {
        wait(self.0.wait())
    }

    /// As [`Latch::wait_within`](crate::Latch::wait_within).
    ///
    /// # Errors
    /// As there.
    pub fn wait_within(&self, limit: Duration) -> Result<bool> {
        wait(self.0.wait_within(limit))
    }

    /// As [`Latch::delete`](crate::Latch::delete).
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self) -> Result<bool> {
        wait(self.0.delete())
    }
}

/// An election: [`leasehold_core::Election`](crate::Election), blocking.
///
/// ```
/// use leasehold_core::{Memory, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let election = client.election("scheduler");
/// let leader = election.campaign("10.0.0.7:8080")?;
/// assert_eq!(election.leader()?.unwrap().token, leader.token());
/// leader.resign()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election(pub(super) crate::Election);

impl Election {
    /// As [`Election::with`](crate::Election::with).
    #[must_use]
    pub fn with(self, options: Options) -> Self {
        Self(self.0.with(options))
    }

    /// As [`Election::candidate`](crate::Election::candidate).
    pub fn candidate(&self, value: impl AsRef<[u8]>) -> Request<Leader> {
        Request(self.0.candidate(value))
    }

    /// As [`Election::campaign`](crate::Election::campaign).
    ///
    /// # Errors
    /// As there.
    pub fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Guard<Leader>> {
        self.candidate(value).acquire()
    }

    /// As [`Election::leader`](crate::Election::leader).
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self) -> Result<Option<Term>> {
        wait(self.0.leader())
    }
}

/// A job: [`leasehold_core::Job`](crate::Job), blocking.
///
/// ```
/// use leasehold_core::{Memory, Run, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let report = client.job("nightly report");
/// assert_eq!(report.run(|_token| 42)?, Run::Ran(42));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Job(pub(super) crate::Job);

impl Job {
    /// As [`Job::lease`](crate::Job::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// As [`Job::at_most`](crate::Job::at_most).
    #[must_use]
    pub fn at_most(self, limit: Duration) -> Self {
        Self(self.0.at_most(limit))
    }

    /// As [`Job::at_least`](crate::Job::at_least).
    #[must_use]
    pub fn at_least(self, pause: Duration) -> Self {
        Self(self.0.at_least(pause))
    }

    /// As [`Job::label`](crate::Job::label).
    #[must_use]
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.label(label))
    }

    /// As [`Job::run`](crate::Job::run), but nothing can stop `work` half-way: when it took longer than `at_most` that
    /// is reported after it is done.
    ///
    /// # Errors
    /// As there.
    pub fn run<T>(&self, work: impl FnOnce(u64) -> T) -> Result<Run<T>> {
        let Some(guard) = wait(self.0.start())? else {
            return wait(self.0.skipped());
        };
        let done = work(guard.token());
        if !guard.is_valid() {
            return Err(guard.lost_error(crate::Loss::Expired));
        }
        wait(async {
            crate::job::give_back(guard).await;
            Ok(())
        })?;
        Ok(Run::Ran(done))
    }
}

/// Several locks at once: [`leasehold_core::Multi`](crate::Multi), blocking.
///
/// ```
/// use leasehold_core::{Memory, blocking::Multi, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let both = Multi::new().and(client.mutex("account/7")).and(client.mutex("account/3"));
/// let guards = both.acquire()?;
/// assert!(client.mutex("account/3").try_acquire()?.is_none());
/// guards.release()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Multi(crate::Multi);

impl Multi {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Multi::and`](crate::Multi::and).
    #[must_use]
    pub fn and(self, part: impl Part) -> Self {
        Self(self.0.and(part))
    }

    /// As [`Multi::acquire`](crate::Multi::acquire).
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<MultiGuard> {
        wait(self.0.acquire()).map(MultiGuard)
    }

    /// As [`Multi::try_acquire`](crate::Multi::try_acquire).
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        Ok(wait(self.0.try_acquire())?.map(MultiGuard))
    }

    /// As [`Multi::acquire_within`](crate::Multi::acquire_within).
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, limit: Duration) -> Result<Option<MultiGuard>> {
        Ok(wait(self.0.acquire_within(limit))?.map(MultiGuard))
    }
}
