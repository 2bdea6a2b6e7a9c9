//! The operations that bring, keep and end claims.

use std::time::Duration;

use super::Outcome;
use super::ledger::{Head, Ledger, Row, millis};
use super::settle::{bury, close, expire, grant, refuse_copies, settle};
use super::view::snapshot;
use crate::claim::{Answer, Claim, ClaimId, Extend, Grant, IfBusy, Order, Place, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::Mutant;
use crate::store::Promotion;
use crate::usage::Usage;

/// How often the head of the queue looks at the latest: nobody else runs when a dead holder's lease ends.
const HEAD_LOOKS: u64 = 1000;

/// Asks for units: see [`Store::claim`](crate::Store::claim).
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Answer, Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// let said = rule::claim(&mut ledger, &claim, 1_000)?;
/// assert!(matches!(said.answer, Answer::Granted(_)));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn claim(ledger: &mut impl Ledger, claim: &Claim, now: u64) -> Result<Outcome<Answer>> {
    if ledger.is_refused(&claim.id, now)? {
        return Ok(Outcome::quiet(Answer::Gone));
    }
    let before = ledger.head()?;
    if let Some(head) = before.as_ref().filter(|head| head.limit == claim.limit)
        && let Some(row) = ledger.row(&claim.id)?
    {
        // Asked again: before anything is buried, or an expired waiter would lose the place that it revives. A latch that
        // is set belongs to nobody and lives as long as it was set for.
        let is_set_latch = row.count.is_some() && row.held > 0;
        return look_after(
            ledger,
            head,
            row,
            claim,
            if is_set_latch { Extend::Nothing } else { Extend::Lease },
            now,
        );
    }
    let mut head = enter(ledger, before.as_ref(), claim, now)?;
    let mut row = Row::arriving(claim, now);
    if row.least > head.effective {
        let message = format!(
            "cannot hold {} permits: the limit was lowered to {}: ask for fewer, or raise the limit",
            row.least, head.effective
        );
        return Err(Error::new(ErrorKind::Invalid, message).on(ledger.key()));
    }
    check_age(ledger, claim, now)?;
    let promoted = catch_up(ledger, &mut head, now)?;

    let may_hold = claim.order == Order::Barging || !is_queued(ledger, &head, now)?;
    let answer = if may_hold && row.fits(head.free()) {
        let token = draw(ledger, &mut head, claim)?;
        grant(&mut head, &mut row, token, now);
        row.seat = row.token;
        row.extend(row.lease, now);
        head.claims += 1;
        head.note_end(row.frees_at());
        remember(&mut head, claim, &row);
        ledger.put(&row)?;
        granted(&row, now, Extended::Yes)
    } else if claim.if_busy == IfBusy::Leave {
        Answer::Busy
    } else {
        row.seat = ledger.number(claim.token_above)?;
        row.extend(row.lease, now);
        head.claims += 1;
        head.waiting += 1;
        ledger.put(&row)?;
        waiting(ledger, &head, &row, now, Extended::Yes)?
    };
    close(ledger, before.as_ref(), &mut head, now)?;
    Ok(Outcome { answer, promoted, ended: Vec::new() })
}

/// Extends one claim's lease: see [`Store::renew`](crate::Store::renew).
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Answer, Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// rule::claim(&mut ledger, &claim, 1_000)?;
/// // The lease is 30 s: after 31 it is over, and stays so.
/// assert_eq!(rule::renew(&mut ledger, &claim, 32_000)?.answer, Answer::Gone);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn renew(ledger: &mut impl Ledger, claim: &Claim, now: u64) -> Result<Outcome<Answer>> {
    let (Some(before), Some(row)) = (ledger.head()?, ledger.row(&claim.id)?) else {
        return Ok(Outcome::quiet(Answer::Gone));
    };
    let extend = if Mutant::PollExtendsFixedLease.lives() { Extend::Lease } else { claim.extend };
    look_after(ledger, &before, row, claim, extend, now)
}

/// Lets time pass for a claim that is there, extends its lease if it is still alive, and says how it stands.
fn look_after(
    ledger: &mut impl Ledger,
    before: &Head,
    mut row: Row,
    claim: &Claim,
    extend: Extend,
    now: u64,
) -> Result<Outcome<Answer>> {
    let mut head = before.clone();
    let lease = claim.lease.map(millis);
    let extended = if extend == Extend::Lease { Extended::Yes } else { Extended::No };
    // A holder that is over stays over, even before anybody has buried it.
    let alive = row.held == 0 || !row.is_expired(now);
    if alive && extended == Extended::Yes {
        row.extend(lease, now);
        head.note_end(row.frees_at().filter(|_| row.held > 0));
        remember(&mut head, claim, &row);
        ledger.put(&row)?;
    }
    // Where nobody waits nothing can change hands, and ten thousand renewals need not walk.
    let mut promoted = if head.waiting > 0 { catch_up(ledger, &mut head, now)? } else { Vec::new() };
    if promoted.iter().any(|p| p.seat == row.seat) {
        // Its own request found it promoted: the owner is alive, so the full lease may start.
        row = ledger.row(&claim.id)?.unwrap_or(row);
        if extended == Extended::Yes {
            row.extend(lease, now);
            ledger.put(&row)?;
        }
        promoted.retain(|p| p.seat != row.seat);
    }
    let answer = if alive { standing(ledger, &head, &claim.id, now, extended)? } else { Answer::Gone };
    close(ledger, Some(before), &mut head, now)?;
    Ok(Outcome { answer, promoted, ended: Vec::new() })
}

/// Gives back or leaves the queue: see [`Store::release`](crate::Store::release).
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Released, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// rule::claim(&mut ledger, &claim, 1_000)?;
/// assert_eq!(rule::release(&mut ledger, &claim.id, None, 2_000)?.answer, Released::Held);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn release(
    ledger: &mut impl Ledger,
    id: &ClaimId,
    refuse_for: Option<Duration>,
    now: u64,
) -> Result<Outcome<Released>> {
    // Also when the claim is there: it may be asked twice, and the other copy still be on the way.
    if let Some(length) = refuse_for {
        ledger.refuse(id, now.saturating_add(millis(length)))?;
    }
    let (Some(before), Some(row)) = (ledger.head()?, ledger.row(id)?) else {
        return Ok(Outcome::quiet(Released::Gone));
    };
    let mut head = before.clone();
    let answer = match row.held {
        0 => Released::Waiting,
        _ if row.is_expired(now) => Released::Gone,
        _ => Released::Held,
    };
    // A holder that is over cannot cut its lock delay short by releasing late.
    if answer != Released::Gone {
        bury(ledger, &mut head, &row)?;
    }
    let promoted = catch_up(ledger, &mut head, now)?;
    close(ledger, Some(&before), &mut head, now)?;
    Ok(Outcome { answer, promoted, ended: Vec::new() })
}

/// Ends somebody's hold: see [`Store::evict`](crate::Store::evict).
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Answer, Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// let Answer::Granted(grant) = rule::claim(&mut ledger, &claim, 1_000)?.answer else { panic!("it is free") };
/// assert!(rule::evict(&mut ledger, grant.token, 2_000)?.answer);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn evict(ledger: &mut impl Ledger, token: u64, now: u64) -> Result<Outcome<bool>> {
    let holds = |row: &Row| row.frees_at().is_none_or(|at| at > now);
    let (Some(before), Some(row)) = (ledger.head()?, ledger.holder(token)?.filter(holds)) else {
        return Ok(Outcome::quiet(false));
    };
    let mut head = before.clone();
    refuse_copies(ledger, &row, now)?;
    bury(ledger, &mut head, &row)?;
    raise_fence(ledger, token)?;
    if head.last > 0 {
        // A quorum that has not heard of it on a majority must not claim it again here.
        head.last += 1;
    }
    let mut ended = vec![row.inbox];
    if row.count.is_some() {
        // Who waits behind a latch waits for it to open, which it never will.
        for waiter in ledger.rows()?.iter().filter(|row| row.held == 0) {
            bury(ledger, &mut head, waiter)?;
            ended.push(waiter.inbox);
        }
        ended.sort_unstable();
        ended.dedup();
    }
    let promoted = catch_up(ledger, &mut head, now)?;
    close(ledger, Some(&before), &mut head, now)?;
    Ok(Outcome { answer: true, promoted, ended })
}

/// Draws a number above the token of an evicted claim. A quorum gives out tokens of its own, which can be
/// further ahead than this store's numbers may go; then the store's next number is enough.
fn raise_fence(ledger: &mut impl Ledger, token: u64) -> Result<u64> {
    match ledger.number(token) {
        Err(error) if error.kind() == ErrorKind::Unavailable => ledger.number(0),
        drawn => drawn,
    }
}

/// Lets time pass on a key that nobody asks about: for stores that sweep.
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// rule::claim(&mut ledger, &claim, 1_000)?;
/// rule::pass(&mut ledger, 32_000)?;
/// assert!(book.is_empty());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn pass(ledger: &mut impl Ledger, now: u64) -> Result<Outcome<()>> {
    let Some(before) = ledger.head()? else { return Ok(Outcome::quiet(())) };
    let mut head = before.clone();
    let promoted = catch_up(ledger, &mut head, now)?;
    close(ledger, Some(&before), &mut head, now)?;
    Ok(Outcome { answer: (), promoted, ended: Vec::new() })
}

/// Frees what is over, then grants.
pub(super) fn catch_up(ledger: &mut impl Ledger, head: &mut Head, now: u64) -> Result<Vec<Promotion>> {
    expire(ledger, head, now)?;
    settle(ledger, head, now)
}

/// Whether anybody waits whom a newcomer must not overtake.
fn is_queued(ledger: &mut impl Ledger, head: &Head, now: u64) -> Result<bool> {
    match head.waiting {
        0 => Ok(false),
        // Only a lowered limit can leave claims that cannot fit.
        _ if head.effective >= head.limit => Ok(true),
        _ => Ok(ledger.front(head.effective, now)?.is_some()),
    }
}

/// The resource as this claim finds it. A claim that has another idea of it is refused while anybody uses
/// it, and before anything is written: an operation that fails changes nothing.
pub(super) fn enter(
    ledger: &mut impl Ledger,
    before: Option<&Head>,
    claim: &Claim,
    now: u64,
) -> Result<Head> {
    let Some(before) = before else { return Ok(Head::new(claim.limit)) };
    if before.limit == claim.limit {
        return Ok(before.clone());
    }
    if snapshot(ledger, now)?.answer.is_some() {
        return Err(Usage(before.limit).conflict().on(ledger.key()));
    }
    // Everybody on it is over.
    for row in ledger.rows()? {
        if row.held > 0 {
            refuse_copies(ledger, &row, now)?;
        }
        ledger.remove(&row)?;
    }
    Ok(Head { last: before.last, last_until: before.last_until, ..Head::new(claim.limit) })
}

/// The token of a grant: the store's next number, or in a quorum the key's.
fn draw(ledger: &mut impl Ledger, head: &mut Head, claim: &Claim) -> Result<u64> {
    let Some(terms) = &claim.quorum else { return ledger.number(claim.token_above) };
    if !terms.again || head.last != claim.token_above + 1 {
        head.last = head.last.max(claim.token_above) + 1;
    }
    Ok(head.last)
}

/// Keeps what a quorum agreed on for longer than the claim can live.
pub(super) fn remember(head: &mut Head, claim: &Claim, row: &Row) {
    if let Some(terms) = claim.quorum.as_ref().filter(|_| head.last > 0) {
        let end = row.frees_at().unwrap_or(u64::MAX).saturating_add(millis(terms.keep));
        head.last_until = head.last_until.max(end);
    }
}

/// Refuses a new claim of a quorum while the store may have forgotten an older one.
fn check_age(ledger: &mut impl Ledger, claim: &Claim, now: u64) -> Result<()> {
    let Some(terms) = &claim.quorum else { return Ok(()) };
    let left = ledger.born()?.saturating_add(millis(terms.min_age)).saturating_sub(now);
    if left == 0 {
        return Ok(());
    }
    let left = Duration::from_millis(left);
    let message = format!("too young to vote: it may have forgotten a claim, and counts again in {left:?}");
    Err(Error::new(ErrorKind::Unavailable, message).after(left).on(ledger.key()))
}

/// How the claim stands now.
pub(super) fn standing(
    ledger: &mut impl Ledger,
    head: &Head,
    id: &ClaimId,
    now: u64,
    extended: Extended,
) -> Result<Answer> {
    match ledger.row(id)? {
        None => Ok(Answer::Gone),
        Some(row) if row.waits() => waiting(ledger, head, &row, now, extended),
        Some(row) => Ok(granted(&row, now, extended)),
    }
}

/// Whether the request that is being answered moved the claim's lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extended {
    Yes,
    No,
}

impl Extended {
    /// What to report of a lease.
    fn lease(self, row: &Row, now: u64) -> Option<Duration> {
        // State that no process owns has no lease: it reports the longest there is.
        let left = row.expires.map_or(Duration::MAX, |at| Duration::from_millis(at.saturating_sub(now)));
        (self == Self::Yes).then_some(left)
    }
}

pub(super) fn granted(row: &Row, now: u64, extended: Extended) -> Answer {
    let lease = extended.lease(row, now);
    Answer::Granted(Grant { seat: row.seat, token: row.token, units: row.held, lease, asked: row.asked })
}

fn waiting(ledger: &mut impl Ledger, head: &Head, row: &Row, now: u64, extended: Extended) -> Result<Answer> {
    let ahead = ledger.ahead(row, Place::COUNTED)?;
    let end_in = head.quiet_until.saturating_sub(now);
    let look_in = match ahead {
        0 => end_in.min(HEAD_LOOKS),
        // The last walk was cut short: somebody must go on with it.
        _ if end_in == 0 => 0,
        _ => row.patience / 3,
    };
    Ok(Answer::Waiting(Place {
        seat: row.seat,
        ahead,
        look_in: Duration::from_millis(look_in),
        held: row.held,
        lease: extended.lease(row, now),
    }))
}
