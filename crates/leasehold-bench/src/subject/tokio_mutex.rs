//! The peer of the memory store: named `tokio::sync::Mutex`es.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::Mutex;

use super::{Outcome, Subject};
use crate::round::Inside;

/// A map from names to locks, looked up for every pair because that is what a named lock is.
///
/// It has no leases, no tokens, no deadline, no view of the queue, and it never forgets a name.
#[derive(Clone, Debug, Default)]
pub struct TokioMutexes(Arc<std::sync::Mutex<HashMap<String, Arc<Mutex<()>>>>>);

impl TokioMutexes {
    fn named(&self, name: &str) -> Arc<Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(name) {
            return lock.clone();
        }
        locks.entry(name.to_owned()).or_default().clone()
    }
}

impl Subject for TokioMutexes {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let lock = self.named(name);
        let guard = lock.lock().await;
        inside.await;
        drop(guard);
        Ok(())
    }
}
