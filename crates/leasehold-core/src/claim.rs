//! The words that a client and a store exchange: claims, changes to them, and the answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use crate::answer::{Answer, Grant, Place, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::semaphore::Semaphore;
use crate::usage::Usage;

/// The limit of a lock: a writer (and a mutex) takes all of it, a reader one unit.
///
/// Below 2^53, so that scripting languages with only doubles count it exactly.
pub const WHOLE: u64 = 1 << 52;

/// The largest token that can be asked to be exceeded: what comes after it still fits a signed 64-bit number.
const MAX_TOKEN: u64 = 1 << 62;

/// The longest that a place in a queue lives without a sign of its owner.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The secret that makes a claim its owner's: 128 random bits. Who knows it can release the claim, so
/// it is never printed.
///
/// ```
/// use leasehold_core::ClaimId;
/// let id = ClaimId::random()?;
/// assert_eq!(ClaimId::from_bytes(*id.as_bytes()), id);
/// assert_eq!(format!("{id:?}"), "ClaimId(***)");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; 16]);

impl ClaimId {
    /// A new secret from the operating system's generator.
    ///
    /// # Errors
    /// `Unavailable` when the operating system has no randomness to give.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|e| {
            Error::new(ErrorKind::Unavailable, "the operating system gave no random bytes")
                .because(e.to_string())
        })?;
        Ok(Self(bytes))
    }

    /// 64 random bits, for what is unique but no secret.
    pub(crate) fn random_number() -> Result<u64> {
        let [a, b, c, d, e, f, g, h, ..] = Self::random()?.0;
        Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The id with these bytes: for stores that read it back.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, for stores that write it down.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// What a claim is called once nobody owns it: derived from its seat, so it cannot collide.
    pub fn ownerless(seat: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&seat.to_be_bytes());
        Self(bytes)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimId(***)")
    }
}

/// Where a client is told of promotions: one address per client, public.
///
/// ```
/// use leasehold_core::{Claim, Inbox, Key, Units};
/// let claim = Claim { inbox: Inbox(7), ..Claim::new(Key::new("k")?, 1, Units::Exactly(1))? };
/// assert_eq!(claim.inbox, Inbox(7));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inbox(pub u64);

/// How many units a claim asks for.
///
/// ```
/// use leasehold_core::Units;
/// assert_eq!((Units::Exactly(3).least(), Units::Exactly(3).most()), (3, 3));
/// assert_eq!((Units::UpTo(3).least(), Units::UpTo(3).most()), (1, 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Units {
    /// All of these or none.
    Exactly(u64),
    /// As many of these as fit when its turn comes, at least one.
    UpTo(u64),
}

impl Units {
    /// The most it will take.
    pub fn most(self) -> u64 {
        let (Self::Exactly(n) | Self::UpTo(n)) = self;
        n
    }

    /// The least it is content with.
    pub fn least(self) -> u64 {
        match self {
            Self::Exactly(n) => n,
            Self::UpTo(_) => 1,
        }
    }
}

/// What a claim that cannot hold at once does.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, IfBusy, Key, Memory, Store, Units};
/// let store = Memory::new();
/// let claim = || Claim::new(Key::new("k")?, 1, Units::Exactly(1));
/// store.claim(&claim()?).await?;
/// assert!(matches!(store.claim(&claim()?).await?, Answer::Waiting(_)));
/// let hasty = Claim { if_busy: IfBusy::Leave, ..claim()? };
/// assert_eq!(store.claim(&hasty).await?, Answer::Busy);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IfBusy {
    /// Takes a place in the queue.
    Queue,
    /// Leaves nothing behind.
    Leave,
}

/// Whether a claim respects those who came before it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, Key, Memory, Order, Store, Units};
/// let store = Memory::new();
/// let claim = |n| Claim::new(Key::new("k")?, 3, Units::Exactly(n));
/// store.claim(&claim(2)?).await?;
/// store.claim(&claim(2)?).await?; // waits: one unit is free
/// let pushy = Claim { order: Order::Barging, ..claim(1)? };
/// assert!(matches!(store.claim(&pushy).await?, Answer::Granted(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Behind everybody who waits.
    Fair,
    /// Past everybody who waits, when its units fit right now.
    Barging,
}

/// A request for some units of a resource, and the lease it will live on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, IfBusy, Key, Memory, Released, Store, Units};
/// let store = Memory::new();
/// let first = Claim::new(Key::new("orders/42")?, 1, Units::Exactly(1))?;
/// assert!(matches!(store.claim(&first).await?, Answer::Granted(_)));
/// let second = Claim { if_busy: IfBusy::Leave, ..Claim::new(first.key.clone(), 1, Units::Exactly(1))? };
/// assert_eq!(store.claim(&second).await?, Answer::Busy);
/// assert_eq!(store.release(&first, None).await?, Released::Held);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The resource.
    pub key: Key,
    /// The secret that identifies the claim. A repeated id is a repeated request.
    pub id: ClaimId,
    /// How many units the resource has; every claim on the key must say the same.
    pub limit: u64,
    /// How many of them this claim wants.
    pub units: Units,
    /// What to do when they are not to be had.
    pub if_busy: IfBusy,
    /// Whether to respect the queue.
    pub order: Order,
    /// How long the claim lives without renewal once it holds; `None` for state that no process owns.
    pub lease: Option<Duration>,
    /// How long its place lives without renewal while it waits.
    pub patience: Duration,
    /// How long its units stay blocked after it *expired* (not after a release).
    pub lock_delay: Duration,
    /// Refuse to grant with a token at or below this one.
    pub token_above: u64,
    /// Who is told when it is promoted.
    pub inbox: Inbox,
    /// Shown to people; means nothing to the store.
    pub label: Arc<str>,
    /// A value published with the claim: an election's candidate.
    pub value: Arc<[u8]>,
    /// The count of a latch, `None` for everything else.
    pub count: Option<u64>,
    /// What a quorum asks of its members, `None` for everybody else.
    pub quorum: Option<QuorumTerms>,
    /// Where a session carries claims: how many renewals of sessions its client had sent when it was made; in a
    /// renewal, which of them that is. See [`Store::renew`](crate::Store::renew).
    pub round: u64,
    /// In a renewal, whether it extends the lease or only asks how the claim stands.
    pub extend: Extend,
}

/// What a renewal does to the lease of a claim.
///
/// A client polls a claim on a fixed lease to learn whether it still holds. That must not move the end of the lease.
/// Where a session carries the claim, the session is renewed all the same.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, Extend, Key, Memory, Store, Units};
/// let store = Memory::new();
/// let claim = Claim::new(Key::new("k")?, 1, Units::Exactly(1))?;
/// store.claim(&claim).await?;
/// let poll = Claim { extend: Extend::Nothing, ..claim };
/// let Answer::Granted(grant) = store.renew(&[poll]).await?.remove(0) else { panic!("it holds") };
/// assert_eq!(grant.lease, None); // nothing was extended
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extend {
    /// Starts the lease again.
    Lease,
    /// Leaves the lease as it is.
    Nothing,
}

/// What a [`Quorum`](crate::Quorum) asks of a member beyond a plain claim.
///
/// The members must agree on a token, so the quorum proposes it: with these terms a claim is granted
/// with `token_above + 1` or, where the key has seen a larger one, with the number above that. The store's
/// own sequence has no part in it: claims on other keys would get in the way.
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Answer, Claim, Key, Memory, QuorumTerms, Store, Units};
/// let mut claim = Claim::new(Key::new("k")?, 1, Units::Exactly(1))?;
/// claim.token_above = 41;
/// claim.quorum = Some(QuorumTerms { keep: Duration::from_secs(60), min_age: Duration::ZERO, again: false });
/// let Answer::Granted(grant) = Memory::new().claim(&claim).await? else { panic!("it is free") };
/// assert_eq!(grant.token, 42);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuorumTerms {
    /// How long the key remembers its last token beyond the end of the lease.
    pub keep: Duration,
    /// Refuse while the store's memory is younger than this: it may have forgotten a claim.
    pub min_age: Duration,
    /// The claim holds on a majority already and this member lost it: grant with `token_above + 1` also when the
    /// key has seen that number, for it was this claim's.
    pub again: bool,
}

impl Claim {
    /// A plain claim: waits its turn, 30 s lease, no label.
    ///
    /// # Errors
    /// When the operating system has no randomness for its id.
    pub fn new(key: Key, limit: u64, units: Units) -> Result<Self> {
        Ok(Self {
            key,
            id: ClaimId::random()?,
            limit,
            units,
            if_busy: IfBusy::Queue,
            order: Order::Fair,
            lease: Some(Duration::from_secs(30)),
            patience: PATIENCE,
            lock_delay: Duration::ZERO,
            token_above: 0,
            inbox: Inbox(0),
            label: Arc::from(""),
            value: Arc::from([]),
            count: None,
            quorum: None,
            round: 0,
            extend: Extend::Lease,
        })
    }

    /// The claim as the rule is to see it where a session carries it: without an end of its own.
    ///
    /// ```
    /// use leasehold_core::{Claim, Key, Units};
    /// let claim = Claim::new(Key::new("k")?, 1, Units::Exactly(1))?.on_session();
    /// assert_eq!(claim.lease, None);
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    #[must_use]
    pub fn on_session(&self) -> Self {
        Self { lease: None, patience: Duration::MAX, ..self.clone() }
    }

    /// Checks what no store should ever see.
    ///
    /// # Errors
    /// `Invalid`, naming the number that is out of range.
    pub fn check(&self) -> Result<()> {
        let (most, limit) = (self.units.most(), self.limit);
        let problem = if limit == 0 {
            "a semaphore with zero permits: it has at least 1".to_owned()
        } else if limit > WHOLE {
            Semaphore::too_many()
        } else if most == 0 {
            "zero permits asked for: ask for at least 1".to_owned()
        } else if most > limit {
            format!("{most} permits asked for of {}: they can never fit", Usage(limit))
        } else if self.token_above > MAX_TOKEN {
            format!("a token above {} asked for: there is none", self.token_above)
        } else if self.lease.is_some_and(|lease| lease < Duration::from_millis(1)) {
            "the lease is zero: use at least a millisecond".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, problem).on(&self.key))
    }
}

/// A change to a claim that exists, for [`Store::amend`](crate::Store::amend).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Change, Claim, Key, Memory, Store, Units};
/// let claim = Claim::new(Key::new("permits")?, 3, Units::Exactly(3))?;
/// let store = Memory::new();
/// store.claim(&claim).await?;
/// store.amend(&claim, &Change::Units { to: 1, op: 1 }).await?; // gives two of three back
/// assert_eq!(store.inspect(&claim.key).await?.unwrap().available(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Hold this many units instead: fewer at once, more when they fit (before all who wait). The number
    /// held already takes a wish for more back.
    Units {
        /// How many.
        to: u64,
        /// Which change of this claim it is: the numbers rise, and a late copy of an older change changes nothing.
        op: u64,
    },
    /// Take `n` off the count of whichever claim holds with this token, once per `op`; at zero that claim ends. Anybody
    /// may. The claim that comes with the request only names the key.
    Give {
        /// How many.
        n: u64,
        /// The same for every repeat of the same request.
        op: u64,
        /// Which latch: a late copy of the request finds nothing once that latch has ended, whatever was set since.
        token: u64,
    },
    /// Publish another value.
    Value {
        /// Which.
        to: Arc<[u8]>,
        /// As in [`Change::Units`], counted together with those.
        op: u64,
    },
    /// Hand the claim to another; it gets a new token.
    Owner {
        /// Whose id, inbox, label and lease it has from now on.
        to: Box<Claim>,
        /// For how long the old id is refused: a copy of its claim may still be on the way.
        refuse_for: Duration,
    },
    /// Give the claim up, but keep its units from everybody for this long.
    Tail(Duration),
    /// Give the *resource* this limit in place of the declared one, until it is set back. The id of the claim that comes
    /// with it stands for the request: for [`rule::LATE`](crate::rule::LATE) a copy of it changes nothing.
    Limit(u64),
    /// Ask whoever holds with this token to give it back. Anybody may; the holder decides.
    Ask(u64),
}
