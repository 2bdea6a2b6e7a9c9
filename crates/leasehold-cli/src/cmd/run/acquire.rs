//! Getting the lock that the options ask for.

use leasehold::{Client, Guard, Part, Result};

use crate::settings::{Mode, Run, Wait};

/// Waits for the lock as long as the settings say; `None` when that was not enough.
///
/// An exclusive run is a mutex, so it excludes the library's mutexes and both sides of its read-write locks.
pub(super) async fn acquire(client: &Client, settings: &Run) -> Result<Option<Guard>> {
    let key = settings.key.as_str();
    let lock = match settings.mode {
        Mode::Exclusive => client.mutex(key).into_request(),
        Mode::Shared => client.rwlock(key).read().into_request(),
        Mode::Permits { wanted, of } => client.semaphore(key, of).permits(wanted),
    };
    let lock = lock.with(settings.options());
    match settings.wait {
        Wait::Forever => lock.acquire().await.map(Some),
        Wait::AtMost(limit) => lock.acquire_within(limit).await,
        Wait::Not => lock.try_acquire().await,
    }
}
