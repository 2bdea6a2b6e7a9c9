//! Connections that wait for their next request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::http::Link;

/// The most that are kept.
const MOST: usize = 64;
/// How long one is kept that nobody uses: agents allow only so many from one machine. The last one is kept for good.
const IDLE: Duration = Duration::from_secs(5);

/// The connections of one store.
#[derive(Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// Those that were used last are last.
    kept: Vec<Kept>,
    /// A task closes those that nobody uses.
    is_swept: bool,
}

#[derive(Debug)]
struct Kept {
    host: usize,
    link: Link,
    since: Instant,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// The connection to this host that was used last.
    pub(crate) fn take(&self, host: usize) -> Option<Link> {
        let mut inner = lock(&self.0);
        let at = inner.kept.iter().rposition(|kept| kept.host == host)?;
        Some(inner.kept.remove(at).link)
    }

    /// Keeps it for the next request.
    pub(crate) fn keep(&self, host: usize, link: Link) {
        let mut inner = lock(&self.0);
        if inner.kept.len() >= MOST || link.is_closed() {
            return;
        }
        inner.kept.push(Kept { host, link, since: Instant::now() });
        if inner.kept.len() > 1
            && !inner.is_swept
            && let Ok(runtime) = Handle::try_current()
        {
            inner.is_swept = true;
            runtime.spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Closes what nobody uses until only one is left.
async fn sweep(pool: Weak<Mutex<Inner>>) {
    loop {
        tokio::time::sleep(IDLE / 5).await;
        let Some(inner) = pool.upgrade() else { return };
        let mut inner = lock(&inner);
        let unused = inner.kept.iter().take_while(|kept| kept.since.elapsed() >= IDLE).count();
        let unused = unused.min(inner.kept.len().saturating_sub(1));
        inner.kept.drain(..unused);
        if inner.kept.len() <= 1 {
            inner.is_swept = false;
            return;
        }
    }
}
