//! The claim model, the client runtime and the primitives of Leasehold.
mod book;
mod capability;
mod claim;
mod clock;
mod error;
mod key;
mod memory;
pub mod rule;
mod store;
pub use book::{Book, Fence, OpenBook};
pub use capability::{Capability, Feature, Info, Leases, Renewal, TokenStrength};
pub use claim::{
    Answer, Change, Claim, ClaimId, Grant, IfBusy, Inbox, Order, PATIENCE, Place, Released, Units, WHOLE,
};
pub use clock::{BootClock, Clock, Moment, TICK, TestClock, sleep_until};
pub use error::{Error, ErrorKind, Result};
pub use key::Key;
pub use memory::Memory;
pub use store::{Fut, Holder, Page, Promotion, Snapshot, Store, Waiter, Wake, Wakes};
