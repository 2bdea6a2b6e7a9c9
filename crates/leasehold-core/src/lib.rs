//! The claim model, the client runtime and the primitives of Leasehold.
//!
//! > A resource is an ordered queue of **claims**. A claim asks for some **units** of the resource's **limit** and
//! > lives on a **lease** that its owner renews. Walking from the front, claims that fit are **granted** and
//! > hold; at the first that does not fit the walk stops, and the rest wait their turn.
//!
//! Everything here is that sentence. From the user inwards:
//!
//! - [`Client`] hands out [`Mutex`], [`RwLock`] and [`Semaphore`]: different numbers of units of different limits.
//!   Acquiring one gives a [`Guard`], with a fencing token and a signal of loss.
//! - The keeper (private) is the runtime behind a client: it waits, renews, notices loss and cleans up, once for
//!   all primitives and all stores.
//! - [`Store`] is the one trait that a store implements. [`rule`] is who holds and who is next, written once;
//!   [`Memory`] is the store that every example runs on, and [`record`] makes a store of anything that can
//!   compare and swap.
//!
//! Programs depend on the crate `leasehold`, which re-exports this one and opens stores by URL. Stores depend
//! on this crate, and prove themselves with `leasehold-conformance`.

pub mod blocking;
mod book;
mod capability;
mod claim;
mod client;
mod clock;
mod election;
mod error;
mod fence;
mod guard;
mod hand;
mod hold;
mod job;
mod keeper;
mod key;
mod latch;
pub mod layers;
mod memory;
mod multi;
mod mutex;
mod options;
mod owner;
pub mod record;
mod request;
mod resize;
pub mod rule;
mod rwlock;
mod semaphore;
#[doc(hidden)]
pub mod sessions;
mod signal;
mod store;
mod ticket;
mod watch;
pub use book::{Book, Fence, OpenBook};
pub use capability::{Capability, Feature, Info, Leases, Renewal, TokenStrength};
pub use claim::{
    Answer, Change, Claim, ClaimId, Grant, IfBusy, Inbox, Order, PATIENCE, Place, QuorumTerms, Released,
    Units, WHOLE,
};
pub use client::{Client, ClientBuilder};
pub use clock::{BootClock, Clock, Moment, TICK, TestClock, sleep_until};
pub use election::{Election, Leader, Observe, Term};
pub use error::{Error, ErrorKind, Result};
pub use fence::{FenceColumn, Gate};
pub use guard::Guard;
pub use hold::Loss;
pub use job::{Job, Run};
pub use key::Key;
pub use latch::Latch;
pub use memory::Memory;
pub use multi::{Multi, MultiGuard, Part};
pub use mutex::Mutex;
pub use options::Options;
pub use owner::Owner;
pub use request::Request;
pub use rwlock::{ReadGuard, RwLock, UpgradableGuard, WriteGuard};
pub use semaphore::Semaphore;
pub use signal::LossSignal;
pub use store::{Fut, Holder, Page, Promotion, Snapshot, Store, Waiter, Wake, Wakes};
pub use ticket::Ticket;
pub use watch::Watch;
