//! What the rule needs to know about one key, and what it writes back.

use std::sync::Arc;

use crate::claim::{Claim, ClaimId, Inbox, Units};
use crate::error::Result;
use crate::key::Key;

/// The storage of one key's claims, inside one atomic step.
///
/// All times are milliseconds on the store's clock. Implementations only fetch and write: they decide
/// nothing. Reads see the writes made before them in the same step.
///
/// ```
/// use leasehold_core::rule::{self, Ledger};
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// rule::claim(&mut ledger, &Claim::new(key.clone(), 1, Units::Exactly(1))?, 1_000)?;
/// assert_eq!(ledger.head()?.map(|head| head.held), Some(1));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub trait Ledger {
    /// The key that this is about.
    fn key(&self) -> &Key;

    /// The resource's own row, if it has one.
    fn head(&mut self) -> Result<Option<Head>>;
    /// Writes the resource's row; `None` removes it.
    fn put_head(&mut self, head: Option<&Head>) -> Result<()>;

    /// The claim with this id.
    fn row(&mut self, id: &ClaimId) -> Result<Option<Row>>;
    /// The claim that holds with this token.
    fn holder(&mut self, token: u64) -> Result<Option<Row>>;
    /// Writes a claim in place of the one with the same id, if there is one.
    fn put(&mut self, row: &Row) -> Result<()>;
    /// Removes a claim.
    fn remove(&mut self, row: &Row) -> Result<()>;

    /// The front of the queue: the first by ([`Row::held`] is zero, [`Row::seat`]) of the claims that [wait](Row::waits)
    /// and [are not passed over](Row::is_passed_over) under the limit in force.
    fn front(&mut self, effective: u64, now: u64) -> Result<Option<Row>>;
    /// How many claims wait before this one, counted to `at_most`.
    fn ahead(&mut self, row: &Row, at_most: u64) -> Result<u64>;
    /// Up to `at_most` claims that hold and whose units come free by `now` ([`Row::frees_at`]).
    fn ended(&mut self, now: u64, at_most: usize) -> Result<Vec<Row>>;
    /// The earliest [`Row::frees_at`] among the claims that hold.
    fn next_end(&mut self) -> Result<Option<u64>>;
    /// All claims on the key.
    fn rows(&mut self) -> Result<Vec<Row>>;

    /// Refuses an id until then.
    fn refuse(&mut self, id: &ClaimId, until: u64) -> Result<()>;
    /// Whether the id is refused at `now`.
    fn is_refused(&mut self, id: &ClaimId, now: u64) -> Result<bool>;

    /// The store's next number, never given out before and above `above`: seats and tokens.
    fn number(&mut self, above: u64) -> Result<u64>;
    /// Since when the store has forgotten nothing.
    fn born(&mut self) -> Result<u64>;
}

/// A resource: what is true of all its claims together.
///
/// ```
/// use leasehold_core::rule::{self, Ledger};
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("permits")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// rule::claim(&mut ledger, &Claim::new(key.clone(), 5, Units::Exactly(2))?, 1_000)?;
/// let head = ledger.head()?.expect("it is in use");
/// assert_eq!((head.limit, head.held, head.claims, head.waiting), (5, 2, 1, 0));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The limit that every claim must declare.
    pub limit: u64,
    /// The limit in force.
    pub effective: u64,
    /// The units held by all claims.
    pub held: u64,
    /// How many claims there are, holding or waiting.
    pub claims: u64,
    /// How many of them wait.
    pub waiting: u64,
    /// No holder's units come free before this. Renewals do not move it, so it may be early, never late.
    pub quiet_until: u64,
    /// The largest token that a quorum agreed on for this key, or tried to.
    pub last: u64,
    /// Until when that is remembered, also if nobody claims the key.
    pub last_until: u64,
}

impl Head {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            effective: limit,
            held: 0,
            claims: 0,
            waiting: 0,
            quiet_until: u64::MAX,
            last: 0,
            last_until: 0,
        }
    }

    /// The units that nobody holds.
    pub(crate) fn free(&self) -> u64 {
        self.effective.saturating_sub(self.held)
    }

    /// Whether anything is left to remember.
    pub(crate) fn is_needed(&self, now: u64) -> bool {
        self.claims > 0 || self.effective != self.limit || now < self.last_until
    }

    /// A holder now comes free at `at`.
    pub(crate) fn note_end(&mut self, at: Option<u64>) {
        self.quiet_until = self.quiet_until.min(at.unwrap_or(u64::MAX));
    }
}

/// A claim as it is stored.
///
/// ```
/// use leasehold_core::rule::{self, Ledger};
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// rule::claim(&mut ledger, &claim, 1_000)?;
/// let row = ledger.row(&claim.id)?.expect("it holds");
/// assert!(!row.waits() && row.expires == Some(31_000));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The owner's secret.
    pub id: ClaimId,
    /// Its place, never reused.
    pub seat: u64,
    /// The number of the write that made it hold; 0 while it never did.
    pub token: u64,
    /// The units it holds.
    pub held: u64,
    /// The units it wants to hold: more than `held` while it waits.
    pub wanted: u64,
    /// The fewest units it is content with.
    pub least: u64,
    /// Since when it holds, or waits.
    pub since: u64,
    /// How long it lives without renewal once it holds; after a renewal with a shorter lease, what was left of the longer
    /// one.
    pub lease: Option<u64>,
    /// How long it lives without renewal while it waits.
    pub patience: u64,
    /// When it ends unless renewed; `None`: never.
    pub expires: Option<u64>,
    /// How long its units stay blocked after it expired as a holder.
    pub lock_delay: u64,
    /// Who is told of its promotion.
    pub inbox: Inbox,
    /// For people.
    pub label: Arc<str>,
    /// Its published value.
    pub value: Arc<[u8]>,
    /// What is left of a latch's count.
    pub count: Option<u64>,
    /// The `Give`s that were counted already; of a claim without a count, the last change (`op`).
    pub given: Vec<u64>,
    /// Whether somebody asked for it back.
    pub asked: bool,
}

impl Row {
    /// Whether it stands in the queue.
    pub fn waits(&self) -> bool {
        self.held < self.wanted
    }

    /// Whether its lease is over.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// When the units it holds come free if it is not renewed.
    pub fn frees_at(&self) -> Option<u64> {
        self.expires.map(|at| at.saturating_add(self.lock_delay))
    }

    /// The row of a claim that arrives now: it has no seat, no lease and no units yet.
    pub(crate) fn arriving(claim: &Claim, now: u64) -> Self {
        let (most, least) = match claim.units {
            Units::Exactly(n) => (n, n),
            Units::UpTo(n) => (n, 1),
        };
        Self {
            id: claim.id,
            seat: 0,
            token: 0,
            held: 0,
            wanted: most,
            least,
            since: now,
            lease: claim.lease.map(millis),
            patience: millis(claim.patience),
            expires: None,
            lock_delay: millis(claim.lock_delay),
            inbox: claim.inbox,
            label: claim.label.clone(),
            value: claim.value.clone(),
            count: claim.count,
            given: Vec::new(),
            asked: false,
        }
    }

    /// Starts its lease again: one of this length when it holds, its patience when it waits. Never shortens it:
    /// a renewal that was under way for long must not undo a longer one that overtook it.
    pub(crate) fn extend(&mut self, lease: Option<u64>, now: u64) {
        let length = if self.held > 0 { lease } else { Some(self.patience) };
        self.expires = length.map(|length| now.saturating_add(length).max(self.expires.unwrap_or(0)));
        self.lease = match self.expires {
            // What is left of a longer lease counts until it has ended: a store whose clock starts anew knows no more
            // than this number of how long the owner may believe in it.
            Some(at) if self.held > 0 => lease.map(|_| at.saturating_sub(now)),
            _ => lease,
        };
    }

    /// Whether the walk passes it over: it asks for more than there is while the limit is as low as this, and would
    /// block everybody behind it. One that expired in the queue is not passed over but removed.
    pub fn is_passed_over(&self, effective: u64, now: u64) -> bool {
        self.least > effective && !(self.held == 0 && self.is_expired(now))
    }

    /// Takes as much as it wants of `free`, if that is enough.
    pub(crate) fn fits(&self, free: u64) -> bool {
        self.least.saturating_sub(self.held) <= free
    }
}

/// Whole milliseconds, at least one for anything that is not zero.
pub(crate) fn millis(d: std::time::Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
