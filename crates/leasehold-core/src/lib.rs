//! The claim model, the client runtime and the primitives of Leasehold.
mod book;
mod capability;
mod claim;
mod client;
mod clock;
mod error;
mod guard;
mod hold;
mod keeper;
mod key;
mod memory;
mod mutex;
mod options;
mod request;
pub mod rule;
mod rwlock;
mod semaphore;
mod store;
mod watch;
pub use book::{Book, Fence, OpenBook};
pub use capability::{Capability, Feature, Info, Leases, Renewal, TokenStrength};
pub use claim::{
    Answer, Change, Claim, ClaimId, Grant, IfBusy, Inbox, Order, PATIENCE, Place, Released, Units, WHOLE,
};
pub use client::{Client, ClientBuilder};
pub use clock::{BootClock, Clock, Moment, TICK, TestClock, sleep_until};
pub use error::{Error, ErrorKind, Result};
pub use guard::{Guard, LossSignal};
pub use hold::Loss;
pub use key::Key;
pub use memory::Memory;
pub use mutex::Mutex;
pub use options::Options;
pub use request::Request;
pub use rwlock::{ReadGuard, RwLock, UpgradableGuard, WriteGuard};
pub use semaphore::Semaphore;
pub use store::{Fut, Holder, Page, Promotion, Snapshot, Store, Waiter, Wake, Wakes};
pub use watch::Watch;
