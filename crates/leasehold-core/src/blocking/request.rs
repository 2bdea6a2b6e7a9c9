//! Requests, blocking.

use std::time::Duration;

use super::guard::Guard;
use super::wait;
use crate::error::Result;
use crate::multi::Part;
use crate::options::Options;

/// Something that can be acquired: [`leasehold_core::Request`](crate::Request), blocking.
#[must_use = "a request does nothing until it is acquired"]
#[derive(Debug)]
pub struct Request<G = crate::Guard>(pub(super) crate::Request<G>);

impl<G: From<crate::Guard>> Request<G> {
    /// As [`Request::with`](crate::Request::with).
    pub fn with(self, options: Options) -> Self {
        Self(self.0.with(options))
    }

    /// As [`Request::acquire`](crate::Request::acquire).
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Guard<G>> {
        wait(self.0.acquire()).map(Guard::new)
    }

    /// As [`Request::try_acquire`](crate::Request::try_acquire).
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Guard<G>>> {
        Ok(wait(self.0.try_acquire())?.map(Guard::new))
    }

    /// As [`Request::acquire_within`](crate::Request::acquire_within).
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, limit: Duration) -> Result<Option<Guard<G>>> {
        Ok(wait(self.0.acquire_within(limit))?.map(Guard::new))
    }
}

impl<G> Part for Request<G>
where
    crate::Request<G>: Part,
{
    fn into_request(self) -> crate::Request {
        self.0.into_request()
    }
}

/// An exclusive lock: [`leasehold_core::Mutex`](crate::Mutex), blocking.
///
/// ```
/// # use std::time::Duration;
/// use leasehold_core::{Memory, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let lock = client.mutex("orders/42");
/// let guard = lock.acquire()?;
/// assert!(lock.acquire_within(Duration::from_millis(10))?.is_none());
/// guard.release()?;
/// # Ok(()) }
/// ```
#[must_use = "a mutex does nothing until it is acquired"]
#[derive(Debug)]
pub struct Mutex(pub(super) crate::Mutex);

impl Mutex {
    /// As [`Mutex::with`](crate::Mutex::with).
    pub fn with(self, options: Options) -> Self {
        Self(self.0.with(options))
    }

    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Guard> {
        wait(self.0.acquire()).map(Guard::new)
    }

    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(wait(self.0.try_acquire())?.map(Guard::new))
    }

    /// As [`Mutex::acquire_within`](crate::Mutex::acquire_within).
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, limit: Duration) -> Result<Option<Guard>> {
        Ok(wait(self.0.acquire_within(limit))?.map(Guard::new))
    }
}

impl Part for Mutex {
    fn into_request(self) -> crate::Request {
        self.0.into_request()
    }
}
