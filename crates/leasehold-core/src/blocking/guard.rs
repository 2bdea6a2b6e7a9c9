//! Guards, blocking: what needs no waiting is the async guard's own.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use super::wait;
use crate::claim::Released;
use crate::error::Result;
use crate::hold::Loss;
use crate::rwlock::{ReadGuard, UpgradableGuard, WriteGuard};
use crate::ticket::Ticket;
use crate::{Key, Leader};

/// What a holder has in its hands: [`leasehold_core::Guard`](crate::Guard) and its kin, blocking.
///
/// `token`, `is_valid`, `valid_for`, `key` and `signal` are the async guard's.
///
/// ```
/// # use std::time::Duration;
/// use leasehold_core::{Memory, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let guard = client.mutex("orders/42").acquire()?;
/// assert!(guard.is_valid() && guard.token() > 0); // as an async one
/// assert!(guard.lost_within(Duration::from_millis(10))?.is_none()); // held all the time
/// guard.release()?;
/// let writer = client.rwlock("catalogue").write().acquire()?;
/// let valid_for = writer.renew(Duration::from_secs(60))?; // guards of every kind have the same methods
/// assert!(valid_for > Duration::from_secs(50));
/// writer.release()?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Guard<G = crate::Guard>(G);

impl<G> Guard<G> {
    pub(super) fn new(guard: G) -> Self {
        Self(guard)
    }
}

impl<G> Deref for Guard<G> {
    type Target = G;
    fn deref(&self) -> &G {
        &self.0
    }
}

/// For guards of every kind: without these, the async methods of the same name would be found instead.
impl<G: Borrow<crate::Guard>> Guard<G> {
    /// As [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Errors
    /// Only inside async code.
    pub fn lost(&self) -> Result<Loss> {
        wait(async { Ok(self.0.borrow().lost().await) })
    }

    /// As [`Guard::lost`](crate::Guard::lost), for at most this long.
    ///
    /// # Errors
    /// Only inside async code.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<Loss>> {
        wait(async { Ok(tokio::time::timeout(limit, self.0.borrow().lost()).await.ok()) })
    }

    /// As [`Guard::asked_to_release`](crate::Guard::asked_to_release), for at most this long: whether somebody
    /// has asked.
    ///
    /// # Errors
    /// Only inside async code.
    pub fn asked_to_release_within(&self, limit: Duration) -> Result<bool> {
        wait(async { Ok(tokio::time::timeout(limit, self.0.borrow().asked_to_release()).await.is_ok()) })
    }

    /// As [`Guard::renew`](crate::Guard::renew).
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self, lease: Duration) -> Result<Duration> {
        wait(self.0.borrow().renew(lease))
    }
}

impl Guard {
    /// As [`Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }

    /// As [`Guard::release_permits`](crate::Guard::release_permits).
    ///
    /// # Errors
    /// As there.
    pub fn release_permits(&mut self, n: u64) -> Result<()> {
        wait(self.0.release_permits(n))
    }

    /// As [`Guard::hand_over`](crate::Guard::hand_over).
    ///
    /// # Errors
    /// As there.
    pub fn hand_over(self) -> Result<Ticket> {
        wait(self.0.hand_over())
    }
}

impl Guard<ReadGuard> {
    /// As [`Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }
}

impl Guard<UpgradableGuard> {
    /// As [`UpgradableGuard::upgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade(self) -> Result<Guard<WriteGuard>> {
        wait(self.0.upgrade()).map(Guard)
    }

    /// As [`UpgradableGuard::try_upgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn try_upgrade(self) -> Result<Result<Guard<WriteGuard>, Self>> {
        Ok(wait(self.0.try_upgrade())?.map(Guard).map_err(Guard))
    }

    /// As [`UpgradableGuard::upgrade_within`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade_within(self, limit: Duration) -> Result<Result<Guard<WriteGuard>, Self>> {
        Ok(wait(self.0.upgrade_within(limit))?.map(Guard).map_err(Guard))
    }

    /// As [`UpgradableGuard::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<Guard<ReadGuard>> {
        wait(self.0.downgrade()).map(Guard)
    }

    /// As [`Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }
}

impl Guard<WriteGuard> {
    /// As [`WriteGuard::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<Guard<ReadGuard>> {
        wait(self.0.downgrade()).map(Guard)
    }

    /// As [`WriteGuard::downgrade_to_upgradable`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade_to_upgradable(self) -> Result<Guard<UpgradableGuard>> {
        wait(self.0.downgrade_to_upgradable()).map(Guard)
    }

    /// As [`Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }
}

impl Guard<Leader> {
    /// As [`Leader::proclaim`].
    ///
    /// # Errors
    /// As there.
    pub fn proclaim(&self, value: impl AsRef<[u8]> + Send) -> Result<()> {
        wait(self.0.proclaim(value))
    }

    /// As [`Leader::resign`].
    ///
    /// # Errors
    /// As there.
    pub fn resign(self) -> Result<Released> {
        wait(self.0.resign())
    }
}

/// All locks of a multi-lock: [`leasehold_core::MultiGuard`](crate::MultiGuard), blocking.
///
/// ```
/// use leasehold_core::{Memory, blocking::Multi, blocking::Client};
/// # fn main() -> Result<(), leasehold_core::Error> {
/// let client = Client::new(Memory::new())?;
/// let both = Multi::new().and(client.mutex("account/7")).and(client.mutex("account/3"));
/// let guards = both.acquire()?;
/// assert_eq!(guards.guards().len(), 2);
/// guards.release()?;
/// # Ok(()) }
/// ```
#[must_use = "the locks are released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard(pub(super) crate::MultiGuard);

impl MultiGuard {
    /// As [`MultiGuard::lost`](crate::MultiGuard::lost).
    ///
    /// # Errors
    /// Only inside async code.
    pub fn lost(&self) -> Result<(&Key, Loss)> {
        wait(async { Ok(self.0.lost().await) })
    }

    /// As [`MultiGuard::release`](crate::MultiGuard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }
}

impl Deref for MultiGuard {
    type Target = crate::MultiGuard;
    fn deref(&self) -> &crate::MultiGuard {
        &self.0
    }
}
