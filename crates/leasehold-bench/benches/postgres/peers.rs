//! Another crate: sqlx's advisory locks.

use leasehold_bench::round::Inside;
use leasehold_bench::subject::{Outcome, Subject};
use sqlx::PgPool;
use sqlx::postgres::{PgAdvisoryLock, PgPoolOptions};

/// A pool with a connection for every task: whoever holds or waits needs one.
#[derive(Clone)]
pub(crate) struct Sqlx(PgPool);

impl Sqlx {
    pub(crate) async fn connect(url: &str, tasks: usize) -> Outcome<Self> {
        // Without a question before every use, which would double its round trips.
        let options = PgPoolOptions::new().max_connections(u32::try_from(tasks)?).test_before_acquire(false);
        Ok(Self(options.connect(url).await?))
    }
}

impl Subject for Sqlx {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let lock = PgAdvisoryLock::new(name);
        let guard = lock.acquire(self.0.acquire().await?).await?;
        inside.await;
        guard.release_now().await?;
        Ok(())
    }
}
