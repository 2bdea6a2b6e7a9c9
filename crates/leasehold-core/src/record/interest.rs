//! Whether anybody still waits for the outcome of a call.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

tokio::task_local! {
    static LOST: Arc<AtomicBool>;
}

/// The caller's side: dropped, the interest is lost.
#[derive(Debug, Default)]
pub(super) struct Interest(Arc<AtomicBool>);

impl Interest {
    pub(super) fn shared(&self) -> Shared {
        Shared(self.0.clone())
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The side of the work.
#[derive(Debug)]
pub(super) struct Shared(Arc<AtomicBool>);

impl Shared {
    /// The same work, which can find out whether the interest in it is [lost](is_lost).
    pub(super) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        LOST.scope(self.0, work)
    }
}

/// Whether nobody waits for what is done here.
pub(super) fn is_lost() -> bool {
    LOST.try_with(|lost| lost.load(Ordering::Acquire)).unwrap_or(false)
}
