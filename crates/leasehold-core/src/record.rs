//! Stores that can only compare and swap: the smaller trait, and the adaptor that makes a [`Store`] of it.
//!
//! memcached, Consul's key-value part or a file cannot run the rule, but they can replace a value if it has
//! not changed. So a key's whole book is one record: [`RecordStore`] loads it, applies the rule, writes it
//! back, and starts again when somebody was faster.
//!
//! Claims in a record live on leases of their own or, where the store has [`Sessions`], on their client's session:
//! then a row names its session instead of an end, and it is over when the session is.
//!
//! [`Store`]: crate::Store

mod carried;
mod clerk;
mod errand;
pub mod format;
#[cfg(test)]
mod fuzzed;
mod interest;
mod message;
mod recent;
mod renewing;
mod riding;
mod roll;
mod session;
mod store;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
mod waiting;

use std::fmt::Debug;
use std::time::Duration;

pub use format::key_of;
pub use message::Message;
pub use recent::{Known, Recent};
pub use session::{Joined, News, Session, Sessions};
pub use store::RecordStore;

use crate::capability::Info;
use crate::claim::Inbox;
use crate::clock::Moment;
use crate::key::Key;
use crate::store::{Fut, Wakes};

/// A store of versioned records.
///
/// # Laws
/// 1. [`load`](Records::load) and [`swap`](Records::swap) are linearizable per key; `Stale` leaves no trace.
/// 2. While a record is kept, its version changes with every swap and never comes back.
/// 3. A record is kept at least as long as its last swap said ([`Keep`]).
/// 4. A swap whose reply was lost is `Indeterminate`, never `Stale`: the adaptor's caller asks again.
/// 5. `now` never goes back by more than [`Info::rounding`], whoever loads.
///
/// ```
/// use leasehold_core::record::RecordStore;
/// use leasehold_core::record::testing::MapRecords;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::Client;
/// # let records = MapRecords::with(std::sync::Arc::new(leasehold_core::BootClock), Default::default());
/// let client = Client::new(RecordStore::new(records)).await?;
/// client.mutex("k").acquire().await?.release().await?;
/// # Ok(()) }
/// ```
pub trait Records: Debug + Send + Sync + 'static {
    /// What this store is and what it can do.
    fn info(&self) -> &Info;

    /// Connects, and from now on turns nudges of this `inbox` into [`look`](crate::Wake::look)s.
    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()>;

    /// The record of a key, and the time.
    fn load<'a>(&'a self, key: &'a Key) -> Fut<'a, Loaded>;

    /// What the record of a key probably is, where that is known or likely without asking: it saves a load, and a
    /// wrong guess costs a swap that is `Stale`. Nothing is answered from a guess alone. Not where a version could come
    /// back after its record was dropped. [`Recent`] remembers what is worth guessing.
    fn guess(&self, key: &Key) -> Option<Loaded>;

    /// Replaces a record, if it still has the version that was seen.
    fn swap<'a>(&'a self, swap: &'a Swap<'a>) -> Fut<'a, Swapped>;

    /// The keys with a record that start with `prefix`, a page at a time.
    fn keys<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Keys>;

    /// Tells another client to look at a key, if that is possible at all: a hint that may be lost.
    fn nudge<'a>(&'a self, inbox: Inbox, key: &'a Key) -> Fut<'a, ()>;

    /// How often the adaptor looks whether those who wait hold by now; `None` where [`nudge`](Records::nudge) or the news
    /// of a [`Swap`] reach everybody. Then the [`Wakes`] of [`open`](Records::open) are taken for hints where to look.
    fn looks_every(&self) -> Option<Duration>;

    /// The sessions that carry claims; `None` where every claim has a lease of its own
    /// ([`Leases::PerClaim`](crate::Leases::PerClaim)).
    fn sessions(&self) -> Option<&dyn Sessions>;
}

/// The version of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The version of a record that does not exist.
    pub const ABSENT: Self = Self(0);
}

/// What a load found.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The record, if there is one.
    pub bytes: Option<Vec<u8>>,
    /// Its version; [`Version::ABSENT`] if there is none.
    pub version: Version,
    /// The time in milliseconds, on the clock that all clients of the store agree on.
    pub now: u64,
    /// Since when the store has forgotten nothing, on the same clock.
    pub born: u64,
    /// Numbers drawn from now on are at least this: a number that rises by itself even when a record is
    /// forgotten, such as the time in microseconds or the store's own index.
    pub floor: u64,
    /// No claim can ask for a number above this: [`BOUND_MICROS`] ahead of the clock that numbers follow, or
    /// `u64::MAX` where numbers come from the store itself.
    pub ceiling: u64,
    /// Numbers in the record that are below [`SMALL`] count from here. See [`Swapped::Done`].
    pub origin: u64,
}

/// Numbers below this, in a record, are relative: to [`Loaded::origin`].
pub const SMALL: u64 = 1 << 16;

/// How far ahead of the clock a claim can move numbers that follow the clock, in microseconds. Numbers start
/// again from the clock if all records are forgotten, so a larger lead would let them fall for longer.
pub const BOUND_MICROS: u64 = 60_000_000;

/// How long after its load a swap may be sent: half of the time that a record outlives what is in it.
pub const LATEST_SWAP: Duration = Duration::from_secs(30);

/// A record that is to be replaced.
#[derive(Debug)]
pub struct Swap<'a> {
    /// Whose record it is.
    pub key: &'a Key,
    /// The version that was seen.
    pub seen: Version,
    /// When that was, at the latest. A store that forgets records must not write one later than
    /// [`LATEST_SWAP`] after it: another holder's record may have come and gone since.
    pub seen_at: Moment,
    /// Since when the store had forgotten nothing ([`Loaded::born`]). One that has forgotten something since is
    /// `Stale` where no record was seen: there may have been one.
    pub born: u64,
    /// The new record.
    pub next: &'a [u8],
    /// How long it must be kept.
    pub keep: Keep,
    /// Only if this session lives.
    pub on: Option<&'a Session>,
    /// The one session that carries all that is in the record, so that it may go with it.
    pub sole: Option<&'a Session>,
    /// Whom to tell, if that can be done in the same step. The others are told by [`Records::nudge`].
    pub news: &'a [News],
    /// News of before that nobody needs any more: of whom, and which seat.
    pub settled: &'a [(Session, u64)],
    /// The last number drawn for this key: whoever forgets the record remembers that.
    pub last: u64,
    /// Whether any of it would matter after all processes have ended, as after a power cut.
    pub lasting: bool,
}

/// What became of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It was made.
    Done {
        /// Where the numbers below [`SMALL`] that it wrote count from. A store whose numbers come from the write
        /// itself says so here, and a record that is created with a floor of 0 needs no other.
        origin: u64,
    },
    /// Somebody was faster, and nothing was written.
    Stale,
    /// The session it was made for is over, and nothing was written.
    Over,
}

/// How long a record must be kept if nobody swaps it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// For ever.
    Forever,
    /// This long; then nothing in it matters.
    For(Duration),
    /// Nobody claims the key: only the last number and the version matter. Where versions and floors never
    /// go back the record may go at once, elsewhere after this.
    Spent(Duration),
}

/// A page of [`Records::keys`].
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The keys, in the store's order.
    pub keys: Vec<Key>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<String>,
}
