//! Other crates, with their default pauses between attempts.

use std::sync::Arc;
use std::time::Duration;

use async_redis_lock::Locker;
use leasehold_bench::round::Inside;
use leasehold_bench::subject::{Outcome, Subject};
use rslock::LockManager;

/// The crate `rslock` on one server.
#[derive(Clone)]
pub(crate) struct Rslock(Arc<LockManager>);

impl Rslock {
    pub(crate) fn connect(url: &str) -> Outcome<Self> {
        Ok(Self(Arc::new(LockManager::new(vec![url]))))
    }
}

impl Subject for Rslock {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let guard = self.0.acquire(name, Duration::from_secs(30)).await?;
        inside.await;
        guard.release().await;
        Ok(())
    }
}

/// The crate `async-redis-lock`.
#[derive(Clone)]
pub(crate) struct AsyncRedisLock(Locker);

impl AsyncRedisLock {
    pub(crate) async fn connect(url: &str) -> Outcome<Self> {
        Ok(Self(Locker::from_redis_url(url).await?))
    }
}

impl Subject for AsyncRedisLock {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let options = async_redis_lock::Options::new().timeout(None);
        let lock = self.0.acquire_with_options(&options, name).await?;
        inside.await;
        lock.release().await?;
        Ok(())
    }
}
