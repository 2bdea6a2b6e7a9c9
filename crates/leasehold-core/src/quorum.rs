//! Several independent stores as one: a claim holds while a majority of them granted it.
//!
//! This is Redlock, on any stores that can be [members](crate::Capability::Member). What it adds to the textbook:
//! - **Tokens.** The quorum proposes a number, each member grants with that or a larger one, and a hold is a majority that
//!   granted with the same number. No member grants a number twice, and two majorities share a member: so the number
//!   belongs to one claim, and the next claim gets a larger one.
//! - **Clocks apart.** Proposals follow the wall clock and the numbers of faster clocks, up to `max_lease`
//!   ahead. A lead that no clock has any more fades.
//! - **Fresh ids.** Members know a claim by another id in every attempt. A release that arrives late finds nothing.
//! - **Members that forgot.** A member whose memory is younger than `max_lease` does not count: it may have
//!   granted what it does not remember. While a majority holds, a member that lost the claim is asked again.
//! - **No queue.** Three clients, each first in the queue of another member, would wait for ever. So a quorum asks
//!   everywhere at once, keeps nothing when it fails, and comes back after a random pause: it is not fair.
//! - **No permits.** Every member counts for itself, and five members that each admit two can let three in:
//!   there are no semaphores on a quorum.
//!
//! Every call goes to every member on a task of its own and ends there, also when the caller has seen enough:
//! a slow member delays nobody, and nothing is forgotten on it.

mod about;
mod asked;
mod builder;
mod calls;
mod claiming;
mod ledger;
mod members;
mod numbers;
mod releasing;
mod renewing;
mod view;
mod votes;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use about::About;
pub use builder::QuorumBuilder;
use ledger::Standings;
use members::{Member, Replies};

use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::key::Key;
use crate::mutant::Mutant;
use crate::store::{Fut, Page, Snapshot, Store, Wakes};

/// A majority of independent stores, as one [`Store`]. Clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Quorum};
/// let members = [Memory::new(), Memory::new(), Memory::new()];
/// let quorum = Quorum::builder().members(members).without_quarantine().build()?;
/// let client = Client::new(quorum).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// assert!(guard.token() > 0);
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Quorum(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    members: Vec<Arc<Member>>,
    about: About,
    /// The longest lease, how long keys remember, and how old a member must be.
    max_lease: Duration,
    min_age: Duration,
    /// How long a member may take.
    member_timeout: Duration,
    standings: Standings,
}

impl Quorum {
    /// A quorum to be put together.
    pub fn builder() -> QuorumBuilder {
        QuorumBuilder::new()
    }
}

impl Inner {
    /// How many members make a decision.
    fn majority(&self) -> usize {
        self.members.len() / 2 + usize::from(!Mutant::HalfIsAMajority.lives())
    }

    /// Asks all members at once.
    fn ask<T: Send + 'static>(&self, call: impl Fn(usize, Arc<dyn Store>) -> Fut<'static, T>) -> Replies<T> {
        let replies = Replies::new();
        for (n, member) in self.members.iter().enumerate() {
            replies.run(n, member.clone().call(self.member_timeout, call(n, member.store.clone())));
        }
        replies
    }
}

impl Store for Quorum {
    fn info(&self) -> &Info {
        self.0.about.info(&self.0.members)
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(self.0.open(inbox, wakes))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(self.0.claim(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(self.0.renew(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(self.0.amend(claim, change))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(self.0.release(claim, refuse_for))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(self.0.inspect(key))
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(self.0.list(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(self.0.evict(key, token))
    }
}
