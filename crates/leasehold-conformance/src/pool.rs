//! Servers that trials use one after the other: to start one for each would take most of the time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Servers that nobody uses at the moment. Clones share them.
///
/// ```
/// use leasehold_conformance::Pool;
/// let pool = Pool::default();
/// let server = pool.lend(|| "a server that took a while to start".to_owned());
/// server.with(|server| assert!(server.starts_with("a server")));
/// drop(server);
/// pool.lend(|| panic!("there is one already"));
/// ```
#[derive(Debug)]
pub struct Pool<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Pool<T> {
    /// A server for one trial: one that another trial has given back, or else a new one.
    pub fn lend(&self, start: impl FnOnce() -> T) -> Lent<T> {
        let idle = locked(&self.0).pop();
        Lent { server: Mutex::new(Some(idle.unwrap_or_else(start))), pool: self.clone() }
    }
}

/// A server that one trial has for itself. Dropped, it is given back.
#[derive(Debug)]
pub struct Lent<T> {
    server: Mutex<Option<T>>,
    pool: Pool<T>,
}

impl<T> Lent<T> {
    /// Does something with it.
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        body(locked(&self.server).as_mut().expect("only `drop` takes it"))
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        locked(&self.pool.0).extend(locked(&self.server).take());
    }
}

/// A trial that panicked leaves a server that the next one sets up anew.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
