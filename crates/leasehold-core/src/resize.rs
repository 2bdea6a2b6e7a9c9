//! Holding more or fewer units than before, in place.

use crate::capability::Feature;
use crate::claim::{Answer, Change, IfBusy, WHOLE};
use crate::clock::{Moment, sleep_until};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hold::{Loss, Stage};
use crate::mutant::Mutant;
use crate::usage::Usage;

/// How long a change of units may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    Try,
    Until(Moment),
    Forever,
}

impl Guard {
    /// Gives `n` of a semaphore's permits back and keeps the others. Clients that wait for permits can have them immediately.
    ///
    /// The token and the lease stay as they are, and [`units`](Guard::units) says how many permits are left.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let permits = client.semaphore("api calls", 3);
    /// let mut guard = permits.permits(3).acquire().await?;
    /// guard.release_permits(2).await?;
    /// assert_eq!((guard.units(), permits.available().await?), (1, 2));
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, or if the store does not answer, the permits may have been given back or not. The next
    /// renewal finds out how many are left.
    ///
    /// # Errors
    /// `Invalid` for zero, for more permits than the guard has, for all of them ([`release`](Guard::release) does that),
    /// for a lock, and while the owner has other guards of this hold. `Lost` if the permits were lost.
    pub async fn release_permits(&mut self, n: u64) -> Result<()> {
        let (held, limit) = (self.units(), self.hand().claim.limit);
        let problem = match n {
            _ if limit == WHOLE => format!("is {}, which has no permits: release the guard", Usage(limit)),
            0 => "zero permits given back: name at least 1".to_owned(),
            _ if n > held => format!("{n} permits given back, but the guard has {held}"),
            _ if n == held => format!("{n} permits given back are all that the guard has: call `release`"),
            _ => {
                self.hand()
                    .life
                    .0
                    .store
                    .info()
                    .require(Feature::PartialRelease)
                    .map_err(|e| e.on(self.key()))?;
                return self.resize(held - n, Resize::Try).await.map(drop);
            }
        };
        Err(Error::new(ErrorKind::Invalid, problem).on(self.key()))
    }

    /// Holds this many units instead. `false` when they were not to be had within the wait.
    pub(crate) async fn resize(&self, units: u64, wait: Resize) -> Result<bool> {
        self.hand().close()?;
        let changed = self.change_units(units, wait).await?;
        // Not after an error, nor when this is dropped half-way: then nobody knows the mode any more.
        self.hand().open();
        Ok(changed)
    }

    async fn change_units(&self, units: u64, wait: Resize) -> Result<bool> {
        let (hand, keeper) = (self.hand(), &self.hand().life.0);
        let before = hand.hold.units();
        let mut claim = hand.claim.clone();
        claim.if_busy = if wait == Resize::Try { IfBusy::Leave } else { IfBusy::Queue };
        let change = Change::Units { to: units, op: hand.next_change() };
        match keeper.amend(&claim, &change).await? {
            Answer::Granted(grant) => {
                let at = hand.hold.deadline().ok_or_else(|| self.lost_error(Loss::Expired))?;
                hand.hold.grant(grant.token, grant.units, at, keeper.clock.now());
                // Asked again about a try whose answer was lost, the store only says how it stands.
                return Ok(grant.units == units);
            }
            Answer::Waiting(_) if Mutant::UpgradeDoesNotWait.lives() => return Ok(true),
            Answer::Waiting(_) => {}
            Answer::Busy => return Ok(false),
            _ => {
                hand.hold.end(Loss::Gone);
                return Err(self.lost_error(Loss::Gone));
            }
        }
        // The keeper looks after the place; the promotion, or the next renewal, tells the new units.
        keeper.look(self.key());
        let grown = hand.hold.wait_for(|stage, held| match stage {
            Stage::Over(loss) => Some(Err(loss)),
            _ => (held == units).then_some(Ok(())),
        });
        let grown = match wait {
            Resize::Until(limit) => tokio::select! {
                grown = grown => Some(grown),
                () = sleep_until(&*keeper.clock, limit) => None,
            },
            _ => Some(grown.await),
        };
        match grown {
            Some(Ok(())) => Ok(true),
            Some(Err(loss)) => Err(self.lost_error(loss)),
            None => {
                // Take the wish back; if it came true meanwhile, this gives the extra units up again.
                Box::pin(self.change_units(before, Resize::Forever)).await?;
                Ok(false)
            }
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.hand().life.0.clock.now()
    }
}
