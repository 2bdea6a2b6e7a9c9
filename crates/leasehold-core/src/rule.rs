//! The one rule: who holds, who waits, who is next.
//!
//! A resource is an ordered queue of claims. Each asks for some units of the resource's limit. Walking
//! from the front, claims that fit are granted; at the first that does not fit the walk stops. Every
//! operation here changes one claim and then walks (`settle`).
//!
//! The rule is written against [`Ledger`], the few questions it asks of the storage, so that memory, SQLite
//! and every compare-and-swap store run this very code; stores that run it on their server carry a
//! translation and prove it on `vectors/*.json`. It knows no clock (the caller says what time it is) and
//! no network.
//!
//! Three properties are easy to miss:
//! - it never revokes: who holds keeps holding until release, expiry or eviction;
//! - promotion does not move a lease;
//! - an expired *holder* is over; an expired *waiter* keeps its place until it stands at the front.

mod amend;
#[doc(hidden)]
pub mod golden;
mod ledger;
mod request;
mod settle;
mod view;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod vectors;

pub use amend::amend;
pub(crate) use ledger::millis;
pub use ledger::{Head, Ledger, Row};
pub use request::{claim, evict, pass, release, renew};
pub use view::snapshot;

use std::time::Duration;

use crate::claim::Inbox;
use crate::store::Promotion;

/// For how long a store refuses copies of a request whose effect may end before the copy arrives: the request that set a
/// latch, counted from the end of that latch, and a resize. Whatever arrives later than this is taken for a new request,
/// so it must be at least twice the time that a client waits for one call.
pub const LATE: Duration = Duration::from_secs(60);

/// What an operation answers, and whom to tell.
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// let next = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// rule::claim(&mut ledger, &claim, 1_000)?;
/// rule::claim(&mut ledger, &next, 1_001)?;
/// let released = rule::release(&mut ledger, &claim.id, None, 1_002)?;
/// assert_eq!(released.promoted.len(), 1); // the next one is to be told
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<T> {
    /// The answer for the caller.
    pub answer: T,
    /// Claims that were granted by this operation, not counting the caller's own.
    pub promoted: Vec<Promotion>,
    /// Clients whose claim on this key was ended, or asked for, by somebody else.
    pub ended: Vec<Inbox>,
}

impl<T> Outcome<T> {
    fn quiet(answer: T) -> Self {
        Self { answer, promoted: Vec::new(), ended: Vec::new() }
    }
}
