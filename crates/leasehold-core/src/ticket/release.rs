//! Releasing the claim of a process that has died: for runners of programs, such as the command's.
//!
//! A process that holds a lock while a program runs gives a [`ReleaseTicket`] to a second process. If the first one
//! dies, the second ends the program and then releases the claim, which would otherwise stay until its lease ends.
//! Nothing here acquires or renews anything.

use std::fmt;
use std::str::FromStr;

use super::{Ticket, parse, refused};
use crate::capability::Feature;
use crate::claim::{Claim, Released, Units};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::guard::Guard;

/// What another process of this machine needs to release a claim after its owner has died.
///
/// It is a secret: [`Debug`] hides it, [`Display`](fmt::Display) writes it out, and [`FromStr`] reads it back. It names
/// one claim, so after that claim has ended it releases nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{BootClock, Client, Clock, Memory, Released, ReleaseTicket};
/// let store = Memory::new();
/// let (owner, other) = (Client::new(store.clone()).await?, Client::new(store).await?);
/// let guard = owner.mutex("orders/42").acquire().await?;
/// let ticket: ReleaseTicket = guard.release_ticket().to_string().parse()?;
/// let limit = BootClock.now() + guard.valid_for();
/// assert_eq!(other.release_for_dead_owner(&ticket, limit).await?, Released::Held);
/// assert_eq!(other.release_for_dead_owner(&ticket, limit).await?, Released::Gone);
/// # Ok(()) }
/// ```
#[doc(hidden)]
#[derive(Clone, PartialEq, Eq)]
pub struct ReleaseTicket {
    claim: Ticket,
    token: u64,
    /// The store may receive a late copy of the claim's request, so the release must also refuse that copy.
    may_arrive_late: bool,
    /// Keeps the key closed until this time of the boot clock: a job that has not reached its `at_least`.
    keep_closed_until: Option<Moment>,
}

impl fmt::Debug for ReleaseTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseTicket").field("key", &self.claim.key).finish_non_exhaustive()
    }
}

impl fmt::Display for ReleaseTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = u8::from(self.may_arrive_late);
        let until = self.keep_closed_until.map_or(0, |at| at.since(Moment::from_nanos(0)).as_nanos());
        write!(f, "{}.{}.{late}.{until}", self.claim, self.token)
    }
}

impl FromStr for ReleaseTicket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let mut parts = text.rsplitn(4, '.');
            let until = parts.next()?.parse().ok()?;
            let may_arrive_late = parts.next()?.parse::<u8>().ok()? != 0;
            let token = parts.next()?.parse().ok()?;
            let claim = parse(parts.next()?)?;
            let keep_closed_until = (until > 0).then_some(Moment::from_nanos(until));
            Some(Self { claim, token, may_arrive_late, keep_closed_until })
        };
        read().ok_or_else(refused)
    }
}

impl Guard {
    /// What another process needs to release this claim if ours dies. The guard goes on as before.
    #[doc(hidden)]
    pub fn release_ticket(&self) -> ReleaseTicket {
        let hand = self.hand();
        let (id, limit, lease) = (hand.claim.id, hand.claim.limit, hand.claim.lease.unwrap_or_default());
        ReleaseTicket {
            claim: Ticket { key: self.key().clone(), id, limit, units: self.units(), lease },
            token: self.token(),
            may_arrive_late: hand.hold.is_in_doubt(),
            keep_closed_until: hand.keep_until.get().copied(),
        }
    }
}

impl Client {
    /// Releases a claim whose owner has died, as its owner would have done. Repeats what fails until `until`. A claim that
    /// is not there any more is [`Released::Gone`].
    ///
    /// The owner must be dead: it would not notice.
    ///
    /// # Errors
    /// When the store did not answer until then.
    #[doc(hidden)]
    pub async fn release_for_dead_owner(&self, ticket: &ReleaseTicket, until: Moment) -> Result<Released> {
        let Ticket { key, id, limit, units, lease } = &ticket.claim;
        let mut claim = Claim::new(key.clone(), *limit, Units::Exactly(*units))?;
        (claim.id, claim.lease, claim.inbox) = (*id, Some(*lease), self.keeper().inbox);
        let keeper = self.keeper();
        let (late, closed_until) = (ticket.may_arrive_late, ticket.keep_closed_until);
        let released = keeper.release_for_dead_owner(claim, late, closed_until, until).await?;
        let is_open = closed_until.is_none_or(|at| at <= keeper.clock.now());
        if released == Released::Gone && is_open && self.info().supports(Feature::Evict) {
            // Members of a quorum know the claim by ids that only its owner knew. Its token was never given to another
            // claim of the key.
            let evict = || keeper.store.evict(key, ticket.token);
            return Ok(match keeper.retry_until(key, until, evict).await? {
                true => Released::Held,
                false => Released::Gone,
            });
        }
        Ok(released)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{BootClock, Clock, Memory, Quorum};

    async fn ticket_of(client: &Client, at_least: Duration) -> (Guard, ReleaseTicket, Moment) {
        let guard = client.job("k").at_least(at_least).start().await.unwrap().unwrap();
        let ticket = guard.release_ticket().to_string().parse().unwrap();
        assert_eq!(ticket, guard.release_ticket());
        (guard, ticket, BootClock.now() + Duration::from_secs(5))
    }

    #[tokio::test]
    async fn tail_of_a_job_stays_when_its_owner_has_died() {
        let store = Memory::new();
        let (owner, other) = (Client::new(store.clone()).await.unwrap(), Client::new(store).await.unwrap());
        let (guard, ticket, until) = ticket_of(&owner, Duration::from_secs(60)).await;
        assert_eq!(other.release_for_dead_owner(&ticket, until).await.unwrap(), Released::Held);
        assert!(other.mutex("k").try_acquire().await.unwrap().is_none(), "the tail keeps the key closed");
        // A second attempt must not take the tail away, whose token is that of the job.
        assert_eq!(other.release_for_dead_owner(&ticket, until).await.unwrap(), Released::Gone);
        assert!(other.mutex("k").try_acquire().await.unwrap().is_none(), "the tail keeps the key closed");
        guard.abandon();
    }

    #[tokio::test]
    async fn later_claim_of_the_key_is_left_alone() {
        let store = Memory::new();
        let (owner, other) = (Client::new(store.clone()).await.unwrap(), Client::new(store).await.unwrap());
        let (guard, ticket, until) = ticket_of(&owner, Duration::ZERO).await;
        guard.release().await.unwrap();
        let next = owner.mutex("k").acquire().await.unwrap();
        assert_eq!(other.release_for_dead_owner(&ticket, until).await.unwrap(), Released::Gone);
        assert!(next.is_valid() && other.mutex("k").try_acquire().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn claim_on_a_quorum_is_released_by_a_client_that_does_not_know_its_members_ids() {
        let members = [Memory::new(), Memory::new(), Memory::new()];
        let quorum = || {
            let members = members.clone();
            Quorum::builder().members(members).without_quarantine().build().unwrap()
        };
        let (owner, other) = (Client::new(quorum()).await.unwrap(), Client::new(quorum()).await.unwrap());
        let guard = owner.mutex("k").acquire().await.unwrap();
        let until = BootClock.now() + Duration::from_secs(5);
        let released = other.release_for_dead_owner(&guard.release_ticket(), until).await.unwrap();
        assert_eq!(released, Released::Held);
        assert!(other.mutex("k").try_acquire().await.unwrap().is_some());
        guard.abandon();
    }

    #[test]
    fn ticket_shows_no_secret() {
        let text = format!("leasehold-ticket-1.7.7.30000.{}.6b.12.0.0", "ab".repeat(16));
        let ticket: ReleaseTicket = text.parse().unwrap();
        assert_eq!(ticket.to_string(), text);
        assert_eq!(format!("{ticket:?}"), "ReleaseTicket { key: \"k\", .. }");
        for wrong in ["", "1.2.3.4", &text[1..], &text[..text.len() - 2], &format!("{text}.1")] {
            assert!(wrong.parse::<ReleaseTicket>().is_err(), "{wrong}");
        }
    }
}
