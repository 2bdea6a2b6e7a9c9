//! Locks on which others were seen a moment ago: the short way of [`swift`](crate::swift) would be in vain there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Key;
use tokio::time::Instant;

/// How long somebody who was seen is expected to be there.
const REMEMBERED: Duration = Duration::from_secs(1);

/// How many locks are remembered: a guess that is forgotten costs a round trip, no more.
const MOST: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Busy(Mutex<HashMap<Key, Instant>>);

impl Busy {
    pub(crate) fn note(&self, key: &Key) {
        let now = Instant::now();
        let mut seen = self.lock();
        if seen.len() >= MOST {
            seen.retain(|_, at| now - *at < REMEMBERED);
        }
        if seen.len() < MOST {
            seen.insert(key.clone(), now);
        }
    }

    /// Whether others were seen on it.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.lock().get(key).is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
