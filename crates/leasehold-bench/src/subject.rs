//! The ways to lock that compete.

mod bare_sqlite;
mod ours;
mod tokio_mutex;

use std::future::Future;

pub use bare_sqlite::{BareSqlite, QueuedSqlite};
pub use ours::Ours;
pub use tokio_mutex::TokioMutexes;

use crate::round::Inside;

/// Whatever goes wrong ends the run: a benchmark has nothing to recover.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A way to lock. Clones share their state; every task gets one.
pub trait Subject: Clone + Send + Sync + 'static {
    /// Acquires the lock of this name, does what is to be done inside, and releases it.
    fn pair(&self, name: &str, inside: impl Inside) -> impl Future<Output = Outcome<()>> + Send;
}
