//! The same locks for programs without async code: the same names, and no second implementation.
//!
//! Every call here runs the async one on a runtime of its own, which is started once per process and never
//! stopped, so that leases are renewed whatever the calling thread does. Calling it from async code is an
//! [`Invalid`](crate::ErrorKind::Invalid) error, not a panic: it would block the thread that async code runs on.
//!
//! ```
//! use leasehold_core::blocking::Client;
//! use leasehold_core::Memory;
//! # fn main() -> Result<(), leasehold_core::Error> {
//! let client = Client::new(Memory::new())?;
//! let guard = client.mutex("orders/42").acquire()?;
//! assert!(client.mutex("orders/42").try_acquire()?.is_none());
//! guard.release()?;
//! # Ok(()) }
//! ```

mod client;
mod guard;
mod primitives;
mod request;

pub use client::Client;
pub use guard::{Guard, MultiGuard};
pub use primitives::{Election, Job, Latch, Multi, RwLock, Semaphore};
pub use request::{Mutex, Request};

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, ErrorKind, Result};
use crate::owner::Owner;

/// The runtime that carries all blocking clients of the process.
fn runtime() -> Result<&'static Handle> {
    static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
    let started = RUNTIME.get_or_init(|| {
        let threads =
            Builder::new_multi_thread().worker_threads(1).thread_name("leasehold").enable_all().build();
        threads.map_err(|error| error.to_string())
    });
    match started {
        Ok(runtime) => Ok(runtime.handle()),
        Err(error) => {
            let message = "cannot start the thread that renews leases";
            Err(Error::new(ErrorKind::Unavailable, message).because(error.clone()))
        }
    }
}

/// Runs a call to its end.
fn wait<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    if Handle::try_current().is_ok() {
        let message = "a blocking call in async code would block its thread: use the async API there, or a thread \
                       of your own (`std::thread::spawn`)";
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    runtime()?.block_on(call)
}

/// The calling thread as an owner: what it holds it may acquire again.
///
/// ```
/// use leasehold_core::blocking::{Client, this_thread};
/// use leasehold_core::{Memory, Options};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let lock = client.mutex("orders/42").with(Options::new().owner(&this_thread()));
/// let (outer, inner) = (lock.acquire()?, lock.acquire()?);
/// assert_eq!(outer.token(), inner.token());
/// # Ok(()) }
/// ```
pub fn this_thread() -> Owner {
    thread_local!(static OWNER: Owner = Owner::new());
    OWNER.with(Clone::clone)
}
