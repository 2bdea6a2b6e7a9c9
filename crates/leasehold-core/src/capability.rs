//! What a store can do, what a primitive needs, and the one table that joins them.
//!
//! A store declares capabilities; it never refuses a primitive itself. Core refuses, in one place, before
//! anything is sent, and the README's matrix is drawn from the same table.

use std::time::Duration;

use crate::check::Check;
use crate::error::{Error, ErrorKind, Result};

/// Something that a store may or may not be able to do.
///
/// ```
/// use leasehold_core::{Capability, Memory, Store};
/// assert!(Memory::new().info().can(Capability::Queue));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Capability {
    /// Claims for one unit of many beside each other: readers. Without it every claim is for the whole.
    Readers,
    /// Claims for any part of the limit.
    Units,
    /// A queue of its own: `Waiting` answers, order, waiters in `inspect`.
    Queue,
    /// `Change::Units`.
    AmendUnits,
    /// `Change::Give`, and claims without a lease.
    Count,
    /// `Change::Value`, and values in `inspect`.
    Value,
    /// `Change::Owner`.
    Owner,
    /// `Change::Tail`.
    Tail,
    /// `Change::Limit`.
    Limit,
    /// `Claim::lock_delay`: not where the server itself removes what has ended.
    LockDelay,
    /// `Claim::token_above`.
    TokenAbove,
    /// Holders' units add up: N permits admit N. Not so in a quorum, where every member counts for itself.
    Sum,
    /// `Change::Ask`.
    Ask,
    /// `Claim::quorum`: it can be a member of a quorum.
    Member,
    /// `inspect` shows everybody's token and label; without it only those of one's own, and that others hold.
    Sight,
    /// `list`.
    List,
    /// `evict`.
    Evict,
}

impl Capability {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Readers,
        Self::Units,
        Self::Queue,
        Self::AmendUnits,
        Self::Count,
        Self::Value,
        Self::Owner,
        Self::Tail,
        Self::Limit,
        Self::LockDelay,
        Self::TokenAbove,
        Self::Sum,
        Self::Ask,
        Self::Member,
        Self::Sight,
        Self::List,
        Self::Evict,
    ];

    /// What a store without it does not have.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Readers => "shared holders",
            Self::Units => "permits",
            Self::Queue => "queue",
            Self::AmendUnits => "way to change what a claim holds",
            Self::Count => "counters",
            Self::Value => "published values",
            Self::Owner => "hand-over between processes",
            Self::Tail => "pause after a release",
            Self::Limit => "limits that can be changed",
            Self::LockDelay => "lock delay",
            Self::TokenAbove => "lower bound for tokens",
            Self::Sum => "permits that add up",
            Self::Ask => "messages to holders",
            Self::Member => "lease for each lock",
            Self::Sight => "view of other holders",
            Self::List => "list of locks",
            Self::Evict => "way to take a lock away",
        }
    }
}

/// Something that users ask for.
///
/// ```
/// use leasehold_core::{Capability, Feature};
/// assert_eq!(Feature::Job.needs(), [Capability::Tail]);
/// assert!(Feature::Mutex.needs().is_empty()); // every store has one
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Feature {
    /// [`Mutex`](crate::Mutex).
    Mutex,
    /// [`RwLock`](crate::RwLock).
    RwLock,
    /// Upgrade and downgrade of a read-write lock.
    Upgrade,
    /// [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// [`Semaphore::resize`](crate::Semaphore::resize).
    Resize,
    /// [`Latch`](crate::Latch).
    Latch,
    /// [`Election`](crate::Election).
    Election,
    /// [`Job`](crate::Job).
    Job,
    /// [`Guard::hand_over`](crate::Guard::hand_over).
    HandOver,
    /// [`Options::lock_delay`](crate::Options::lock_delay).
    LockDelay,
    /// [`Client::list`](crate::Client::list).
    List,
    /// [`Client::evict`](crate::Client::evict).
    Evict,
    /// [`Client::ask`](crate::Client::ask).
    Ask,
    /// Membership of a [`Quorum`](crate::Quorum).
    Member,
}

impl Feature {
    /// All of them, in the order of the README's matrix.
    pub const ALL: &'static [Self] = &[
        Self::Mutex,
        Self::RwLock,
        Self::Upgrade,
        Self::Semaphore,
        Self::Resize,
        Self::Latch,
        Self::Election,
        Self::Job,
        Self::HandOver,
        Self::LockDelay,
        Self::List,
        Self::Evict,
        Self::Ask,
        Self::Member,
    ];

    /// What the store must be able to do: the table.
    pub fn needs(self) -> &'static [Capability] {
        match self {
            Self::Mutex => &[],
            Self::RwLock => &[Capability::Readers],
            Self::Semaphore => &[Capability::Units, Capability::Sum],
            Self::Upgrade => &[Capability::Units, Capability::AmendUnits],
            Self::Resize => &[Capability::Units, Capability::Sum, Capability::Limit],
            Self::Latch => &[Capability::Units, Capability::Queue, Capability::Count, Capability::Evict],
            Self::Election => &[Capability::Value],
            Self::Job => &[Capability::Tail],
            Self::HandOver => &[Capability::Owner],
            Self::LockDelay => &[Capability::LockDelay],
            Self::List => &[Capability::List],
            Self::Evict => &[Capability::Evict],
            Self::Ask => &[Capability::Ask],
            Self::Member => &[Capability::Member],
        }
    }

    /// Its name in prose.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::RwLock => "read-write lock",
            Self::Upgrade => "upgrade and downgrade",
            Self::Semaphore => "semaphore",
            Self::Resize => "semaphore resize",
            Self::Latch => "latch",
            Self::Election => "election",
            Self::Job => "job",
            Self::HandOver => "hand-over",
            Self::LockDelay => "lock delay",
            Self::List => "list",
            Self::Evict => "forced release",
            Self::Ask => "asking for release",
            Self::Member => "member of a quorum",
        }
    }
}

/// How strong a store's tokens are.
///
/// ```
/// use leasehold_core::{Memory, Store, TokenStrength};
/// assert_eq!(Memory::new().info().tokens, TokenStrength::Process);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenStrength {
    /// Rising for ever, across crashes and failovers.
    Durable,
    /// Rising while the store keeps its memory; after it lost some, as far as its clock can be trusted.
    ClockBound,
    /// Rising as long as the process lives.
    Process,
}

/// What carries a claim's life.
///
/// ```
/// use leasehold_core::{Leases, Memory, Store};
/// assert_eq!(Memory::new().info().leases, Leases::PerClaim);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leases {
    /// Every claim has a lease of its own.
    PerClaim,
    /// One session per client and lease length carries many claims. They end with it, so such a store has no
    /// hand-over: a ticket would not outlive its giver.
    Shared,
}

/// Whether the runtime renews a lease.
///
/// ```
/// use leasehold_core::Renewal;
/// assert_eq!(Renewal::default(), Renewal::Automatic);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// Every third of it, for as long as the guard lives.
    #[default]
    Automatic,
    /// Never: it ends when it ends.
    Never,
}

/// What a store is and what it promises.
///
/// ```
/// use leasehold_core::{Feature, Memory, Store, TokenStrength};
/// let memory = Memory::new();
/// let info = memory.info();
/// assert!(info.supports(Feature::Semaphore) && info.ordered);
/// assert_eq!(info.tokens, TokenStrength::Process);
/// ```
#[derive(Clone, Debug)]
pub struct Info {
    /// The store's one name: URL scheme, feature, crate suffix.
    pub name: &'static str,
    /// What it can do.
    pub capabilities: &'static [Capability],
    /// How strong its tokens are.
    pub tokens: TokenStrength,
    /// What carries a claim's life.
    pub leases: Leases,
    /// Whether grants follow the queue.
    pub ordered: bool,
    /// Whether it tells waiters by itself that they were promoted.
    pub pushes: bool,
    /// The shortest lease it can keep.
    pub min_lease: Duration,
    /// The longest lease it can keep.
    pub max_lease: Duration,
    /// By how much a lease may end early at the store; taken off every guard's deadline.
    pub rounding: Duration,
    /// By how much a lease may end late at the store.
    pub expiry_slack: Duration,
    /// How many claims one renewal call may carry.
    pub batch: usize,
    /// The settings that the store looked at when it connected; empty before that, and where there are none.
    /// A quorum lists those of its members, each with the member's name in front.
    pub checks: Vec<Check>,
}

impl Info {
    /// Whether the store can do this.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    /// Whether the store has everything that the feature needs.
    pub fn supports(&self, feature: Feature) -> bool {
        feature.needs().iter().all(|need| self.can(*need))
    }

    /// Refuses a feature that the store cannot carry.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Feature, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// assert!(client.info().require(Feature::Latch).is_ok());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Unsupported`, naming what is missing.
    pub fn require(&self, feature: Feature) -> Result<()> {
        match feature.needs().iter().find(|need| !self.can(**need)) {
            None => Ok(()),
            Some(missing) => {
                let message = format!(
                    "no {} here: this store has no {}: choose another store or mode",
                    feature.name(),
                    missing.words()
                );
                Err(Error::new(ErrorKind::Unsupported, message).at(self.name))
            }
        }
    }

    /// Checks a lease against the store's bounds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::{Memory, Store};
    /// let info = Memory::new().info().clone();
    /// let error = info.check_lease(Duration::from_micros(1)).unwrap_err();
    /// assert!(error.to_string().contains("this store keeps 10ms to"), "{error}");
    /// ```
    ///
    /// # Errors
    /// `Invalid`, naming the bounds.
    pub fn check_lease(&self, lease: Duration) -> Result<()> {
        if lease < self.min_lease || lease > self.max_lease {
            let message = format!(
                "a lease of {lease:?} is out of range: this store keeps {:?} to {:?}",
                self.min_lease, self.max_lease
            );
            return Err(Error::new(ErrorKind::Invalid, message).at(self.name));
        }
        Ok(())
    }
}
