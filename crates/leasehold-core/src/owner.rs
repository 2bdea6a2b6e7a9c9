//! Re-entrancy: an owner may acquire again what it holds. It belongs to a handle, never to a thread.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::claim::{Units, WHOLE};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hand::Hand;
use crate::key::Key;

/// Somebody who may acquire the same lock again without waiting for itself.
///
/// Give it to [`Options::owner`](crate::Options::owner). While it validly holds a key, acquiring that key again with the
/// same owner, kind and units gives another guard of the same hold, at once and with the same token; the lock is
/// given back with the last of them. Anything else is a new claim.
///
/// Without an owner, a task that acquires a mutex that it holds waits for itself; after a second a warning says so
/// (`tracing`).
///
/// A reader that asks to write, or a writer that asks to read, gets an error: it would wait for itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Options, Owner};
/// let client = Client::new(Memory::new()).await?;
/// let me = Owner::new();
/// let lock = client.mutex("orders/42").with(Options::new().owner(&me));
/// let (outer, inner) = (lock.acquire().await?, lock.acquire().await?);
/// assert_eq!((outer.token(), me.hold_count("orders/42")), (inner.token(), 2));
/// inner.release().await?;
/// assert!(me.is_held("orders/42"));
/// outer.release().await?;
/// assert!(!me.is_held("orders/42"));
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Owner(Arc<Mutex<HashMap<Key, Vec<Weak<Hand>>>>>);

impl Owner {
    /// A new owner, different from all others.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many guards this owner has of the key.
    pub fn hold_count(&self, key: impl AsRef<str>) -> usize {
        self.hands(key.as_ref()).iter().map(|hand| hand.guards()).sum()
    }

    /// Whether this owner holds the key, as far as can be known without asking the store.
    pub fn is_held(&self, key: impl AsRef<str>) -> bool {
        self.hold_count(key) > 0
    }

    /// The holds of a key, some of which may be over.
    fn hands(&self, key: &str) -> Vec<Arc<Hand>> {
        let Ok(key) = Key::new(key) else { return Vec::new() };
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(&key).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Another guard of a hold of the same kind, if there is one.
    pub(crate) fn join(&self, key: &Key, limit: u64, units: Units, store: usize) -> Result<Option<Guard>> {
        for hand in self.hands(key.as_str()) {
            if hand.store() != store || hand.claim.limit != limit {
                continue;
            }
            if let Some(share) = hand.join(units.most()) {
                return Ok(Some(Guard::join(share)));
            }
            if limit == WHOLE && hand.guards() > 0 {
                let message = "this owner holds the lock in another mode, or is changing it, and would wait for \
                               itself: upgrade or downgrade the guard it has, or release it first";
                return Err(Error::new(ErrorKind::Invalid, message).on(key));
            }
        }
        Ok(None)
    }

    /// Remembers a new hold.
    pub(crate) fn note(&self, guard: &Guard) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, hands| {
            hands.retain(|hand| hand.strong_count() > 0);
            !hands.is_empty()
        });
        table.entry(guard.key().clone()).or_default().push(Arc::downgrade(guard.hand()));
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}
