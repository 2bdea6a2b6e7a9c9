//! The claim model, the client runtime and the primitives of Leasehold.
//!
//! > A resource is an ordered queue of **claims**. A claim asks for some **units** of the resource's **limit** and
//! > lives on a **lease** that its owner renews. Walking from the front, claims that fit are **granted** and
//! > hold; at the first that does not fit the walk stops, and the rest wait their turn.
//!
//! Everything here is that sentence. **Programs** depend on the crate `leasehold`, which re-exports this one, opens
//! stores by URL and has the manual on its first page. **Stores** depend on this crate, and prove themselves with
//! `leasehold-conformance`.
//!
//! # For programs
//!
//! - [`Client`] hands out the primitives: [`Mutex`], [`RwLock`], [`Semaphore`], [`Latch`], [`Election`], [`Job`];
//!   [`Multi`] puts several together. They differ in the units they ask for, of which limit, and in what they leave.
//! - A [`Request`] is the one way to ask, [`Options`] the one set of options, and a [`Guard`] the one thing in a
//!   holder's hands: a fencing token, a deadline that needs no network, a signal of loss.
//! - [`Owner`] is for acquiring again what one holds, [`Ticket`] for handing it to another process, [`Gate`] and
//!   [`FenceColumn`] for the side that is written to. [`blocking`] is the same without async code.
//! - The keeper (private) is the runtime behind a client: it waits, renews, notices loss and cleans up, once for
//!   all primitives and all stores.
//!
//! # For stores
//!
//! - [`Store`] is the one trait that a store implements; its documentation is the law. [`Info`] says what a store
//!   can do, and core refuses what it cannot.
//! - [`rule`] is who holds and who is next, written once over [`rule::Ledger`]; [`Memory`] is the store that every
//!   example runs on, and [`record`] makes a store of anything that can compare and swap.
//! - [`layers`] are stores around stores: namespaces, tracing, metrics, faults for tests.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
//! use leasehold_core::{Client, Memory};
//! let client = Client::new(Memory::new()).await?; // any `Store`
//! let guard = client.mutex("orders/42").acquire().await?;
//! guard.release().await?;
//! # Ok(()) }
//! ```

mod answer;
mod attempt;
pub mod blocking;
mod book;
mod caller;
mod capability;
mod check;
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
pub mod local;
#[cfg(test)]
mod logs;
mod memory;
mod multi;
#[doc(hidden)]
pub mod mutant;
mod mutex;
mod options;
mod owner;
mod pause;
mod quorum;
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
pub mod url;
mod usage;
mod watch;
pub use book::{Book, Fence, OpenBook};
pub use capability::{Capability, Feature, Info, Leases, Renewal, TokenStrength};
pub use check::{Check, Severity, Warnings};
pub use claim::{
    Answer, Change, Claim, ClaimId, Extend, Grant, IfBusy, Inbox, Order, PATIENCE, Place, QuorumTerms,
    Released, Units, WHOLE,
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
pub use pause::back_off;
pub use quorum::{Quorum, QuorumBuilder};
pub use request::Request;
pub use rwlock::{ReadGuard, RwLock, UpgradableGuard, WriteGuard};
pub use semaphore::Semaphore;
pub use signal::LossSignal;
pub use store::{Finished, Fut, Holder, Page, Promotion, Snapshot, Store, Waiter, Wake, Wakes};
#[doc(hidden)]
pub use ticket::ReleaseTicket;
pub use ticket::Ticket;
pub use usage::{Mode, Usage};
pub use watch::Watch;
