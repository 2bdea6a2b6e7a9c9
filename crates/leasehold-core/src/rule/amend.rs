//! The operations that change a claim in place.

use std::time::Duration;

use super::LATE;
use super::Outcome;
use super::ledger::{Head, Ledger, Row, millis};
use super::request::{Extended, catch_up, enter, granted, remember, standing};
use super::settle::{bury, close, grant, refuse_copies};
use crate::claim::{Answer, Change, Claim, ClaimId, IfBusy};
use crate::error::{Error, ErrorKind, Result};
use crate::mutant::Mutant;

/// Changes a claim: see [`Store::amend`](crate::Store::amend).
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Answer, Book, Change, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// let Answer::Granted(grant) = rule::claim(&mut ledger, &claim, 1_000)?.answer else { panic!("it is free") };
/// let asked = rule::amend(&mut ledger, &claim, &Change::Ask(grant.token), 2_000)?;
/// assert_eq!(asked.answer, Answer::Done);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn amend(ledger: &mut impl Ledger, claim: &Claim, change: &Change, now: u64) -> Result<Outcome<Answer>> {
    match change {
        Change::Ask(token) => return ask(ledger, *token, now),
        Change::Give { n, op, token } => return give(ledger, *token, *n, *op, now),
        _ => {}
    }
    let before = ledger.head()?;
    let (mut head, mut promoted, answer);
    if let Change::Limit(to) = change {
        if ledger.is_refused(&claim.id, now)? {
            // A copy of a resize that was made or withdrawn: a later one may have been made since.
            return Ok(Outcome::quiet(Answer::Done));
        }
        // Nothing is granted before the new limit is known.
        (head, promoted) = (enter(ledger, before.as_ref(), claim, now)?, Vec::new());
        head.effective = *to;
        ledger.refuse(&claim.id, now.saturating_add(millis(LATE)))?;
        answer = Answer::Done;
    } else {
        let Some(before) = &before else { return Ok(Outcome::quiet(Answer::Gone)) };
        check(ledger, before, &claim.id, change, now)?;
        head = before.clone();
        promoted = catch_up(ledger, &mut head, now)?;
        answer = match find(ledger, &claim.id, change, now)? {
            Found::Gone => Answer::Gone,
            Found::Adopted(row) => granted(&row, now, Extended::No),
            Found::Row(row) => {
                // The caller learns from the answer how its claim stands now.
                promoted.retain(|promotion| promotion.seat != row.seat);
                apply(ledger, &mut head, claim, row, change, now)?
            }
        };
    }

    promoted.extend(catch_up(ledger, &mut head, now)?);
    close(ledger, before.as_ref(), &mut head, now)?;
    Ok(Outcome { answer, promoted, ended: Vec::new() })
}

/// Refuses what cannot be done before anything is written: an operation that fails changes nothing.
fn check(ledger: &mut impl Ledger, head: &Head, id: &ClaimId, change: &Change, now: u64) -> Result<()> {
    let Some(row) = ledger.row(id)?.filter(|row| !row.is_expired(now)) else { return Ok(()) };
    // After the limit went down a holder may have more than it; it may keep that, or give back some.
    let most = head.effective.max(row.held);
    let error = match change {
        Change::Units { to, .. } if *to == 0 || *to > most => {
            Error::new(ErrorKind::Invalid, format!("cannot hold {to} of {most} permits"))
        }
        Change::Owner { to: heir, .. } if heir.id != row.id && ledger.row(&heir.id)?.is_some() => {
            Error::new(ErrorKind::Conflict, "the heir has a claim already: adopt with a new id")
        }
        _ => return Ok(()),
    };
    Err(error.on(ledger.key()))
}

enum Found {
    Row(Row),
    /// A hand-over that was carried out before: its reply was lost.
    Adopted(Row),
    Gone,
}

fn find(ledger: &mut impl Ledger, id: &ClaimId, change: &Change, now: u64) -> Result<Found> {
    if let Change::Owner { to: heir, .. } = change
        && ledger.is_refused(&heir.id, now)?
    {
        // Its adopter gave up before this arrived: nobody would look after it.
        return Ok(Found::Gone);
    }
    if let Some(row) = ledger.row(id)? {
        // Only what holds can be amended, and what is over does not come back.
        return Ok(if row.held > 0 && !row.is_expired(now) { Found::Row(row) } else { Found::Gone });
    }
    if let Change::Owner { to: heir, .. } = change
        && let Some(row) = ledger.row(&heir.id)?.filter(|row| row.held > 0 && !row.is_expired(now))
    {
        return Ok(Found::Adopted(row));
    }
    Ok(Found::Gone)
}

fn apply(
    ledger: &mut impl Ledger,
    head: &mut Head,
    claim: &Claim,
    mut row: Row,
    change: &Change,
    now: u64,
) -> Result<Answer> {
    if let Change::Units { op, .. } | Change::Value { op, .. } = change
        && was_made(&mut row, *op)
    {
        return standing(ledger, head, &row.id, now, Extended::No);
    }
    match change {
        Change::Units { to, .. } => return resize(ledger, head, claim, row, *to, now),
        Change::Value { to, .. } => {
            row.value = to.clone();
            ledger.put(&row)?;
        }
        Change::Owner { to: heir, refuse_for } => {
            ledger.remove(&row)?;
            if heir.id != row.id && !refuse_for.is_zero() {
                ledger.refuse(&row.id, now.saturating_add(millis(*refuse_for)))?;
            }
            row.id = heir.id;
            if row.count.is_none() {
                // The heir counts its own changes.
                row.given.clear();
            }
            row.asked = false;
            row.inbox = heir.inbox;
            row.label = heir.label.clone();
            row.token = ledger.number(row.token)?;
            row.extend(heir.lease.map(millis), now);
            head.note_end(row.frees_at());
            ledger.put(&row)?;
            return Ok(granted(&row, now, Extended::Yes));
        }
        Change::Tail(length) => return leave_tail(ledger, head, claim, row, *length, now),
        Change::Give { .. } | Change::Limit(_) | Change::Ask(_) => {
            unreachable!("not about the caller's own claim")
        }
    }
    Ok(granted(&row, now, Extended::No))
}

/// Whether this change, or a later one, was made already; if not it is from now on.
fn was_made(row: &mut Row, op: u64) -> bool {
    if row.count.is_some() {
        // The numbers that a latch remembers are those of its `Give`s.
        return false;
    }
    if row.given.last().is_some_and(|last| op <= *last) {
        return true;
    }
    row.given = vec![op];
    false
}

/// Marks the holder with this token, and has it told.
fn ask(ledger: &mut impl Ledger, token: u64, now: u64) -> Result<Outcome<Answer>> {
    // A tail has no owner who could be asked.
    let is_owned = |row: &Row| !row.is_expired(now) && row.id != ClaimId::ownerless(row.seat);
    let Some(mut row) = ledger.holder(token)?.filter(is_owned) else {
        return Ok(Outcome::quiet(Answer::Gone));
    };
    if !row.asked {
        row.asked = true;
        ledger.put(&row)?;
    }
    // Also when it was asked before: it may not have heard.
    Ok(Outcome { answer: Answer::Done, promoted: Vec::new(), ended: vec![row.inbox] })
}

/// Grows or shrinks in place.
fn resize(
    ledger: &mut impl Ledger,
    head: &mut Head,
    claim: &Claim,
    mut row: Row,
    units: u64,
    now: u64,
) -> Result<Answer> {
    head.waiting -= u64::from(row.waits());
    head.held -= row.held.saturating_sub(units);
    row.held = row.held.min(units);
    (row.wanted, row.least) = (units, units);
    // Who holds already goes before all who wait: they may be waiting for it.
    if row.waits() && row.fits(head.free()) {
        let token = ledger.number(claim.token_above)?;
        grant(head, &mut row, token, now);
    }
    let gives_up = row.waits() && claim.if_busy == IfBusy::Leave;
    if gives_up {
        (row.wanted, row.least) = (row.held, row.held);
    }
    head.waiting += u64::from(row.waits());
    ledger.put(&row)?;
    if gives_up { Ok(Answer::Busy) } else { standing(ledger, head, &row.id, now, Extended::No) }
}

/// Counts the latch with this token down, once per operation.
fn give(ledger: &mut impl Ledger, token: u64, n: u64, op: u64, now: u64) -> Result<Outcome<Answer>> {
    let is_set = |row: &Row| !row.is_expired(now);
    let latch = match Mutant::CountKnowsNoRound.lives() {
        true => ledger.rows()?.into_iter().find(|row| row.held > 0 && row.count.is_some()),
        false => ledger.holder(token)?,
    };
    let (Some(before), Some(mut row)) = (ledger.head()?, latch.filter(is_set)) else {
        return Ok(Outcome::quiet(Answer::Gone));
    };
    let Some(count) = row.count else {
        let message = "in use, but not as a latch: count down on another key";
        return Err(Error::new(ErrorKind::Conflict, message).on(ledger.key()));
    };
    if row.given.contains(&op) {
        return Ok(Outcome::quiet(Answer::Left(count)));
    }
    let left = count.saturating_sub(n);
    if left > 0 {
        row.count = Some(left);
        row.given.push(op);
        ledger.put(&row)?;
        return Ok(Outcome::quiet(Answer::Left(left)));
    }
    let mut head = before.clone();
    refuse_copies(ledger, &row, now)?;
    bury(ledger, &mut head, &row)?;
    let promoted = catch_up(ledger, &mut head, now)?;
    close(ledger, Some(&before), &mut head, now)?;
    Ok(Outcome { answer: Answer::Left(0), promoted, ended: Vec::new() })
}

/// Turns a hold into one that nobody owns and that ends by itself.
fn leave_tail(
    ledger: &mut impl Ledger,
    head: &mut Head,
    claim: &Claim,
    mut row: Row,
    length: Duration,
    now: u64,
) -> Result<Answer> {
    if length.is_zero() {
        bury(ledger, head, &row)?;
        return Ok(Answer::Done);
    }
    ledger.remove(&row)?;
    head.waiting -= u64::from(row.waits());
    (row.wanted, row.least) = (row.held, row.held);
    row.id = ClaimId::ownerless(row.seat);
    row.expires = Some(now.saturating_add(millis(length)));
    row.lock_delay = 0;
    head.note_end(row.frees_at());
    remember(head, claim, &row);
    ledger.put(&row)?;
    Ok(Answer::Done)
}
