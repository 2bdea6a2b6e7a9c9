//! Guards, blocking: what needs no waiting is the async guard's own.

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

impl<G: Deref<Target = crate::Guard>> Guard<G> {
    /// As [`Guard::lost`](crate::Guard::lost), for at most this long.
    ///
    /// # Errors
    /// Only inside async code.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<Loss>> {
        wait(async { Ok(tokio::time::timeout(limit, self.0.lost()).await.ok()) })
    }
}

impl Guard {
    /// As [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Errors
    /// Only inside async code.
    pub fn lost(&self) -> Result<Loss> {
        wait(async { Ok(self.0.lost().await) })
    }

    /// As [`Guard::renew`](crate::Guard::renew).
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self, lease: Duration) -> Result<()> {
        wait(self.0.renew(lease))
    }

    /// As [`Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
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
