//! The walk from the front of the queue.

use super::LATE;
use super::ledger::{Head, Ledger, Row, millis};
use crate::error::Result;
use crate::mutant::Mutant;
use crate::store::Promotion;

/// The most claims that one call buries: a killed client with ten thousand waiters must not make one
/// unlucky caller pay for all of them.
const BURIED_PER_CALL: usize = 64;

/// Frees what expired holders held. Call before looking at anything else.
pub(super) fn expire(ledger: &mut impl Ledger, head: &mut Head, now: u64) -> Result<()> {
    if now < head.quiet_until {
        return Ok(());
    }
    for row in ledger.ended(now, BURIED_PER_CALL)? {
        refuse_copies(ledger, &row, now)?;
        bury(ledger, head, &row)?;
    }
    head.quiet_until = ledger.next_end()?.unwrap_or(u64::MAX);
    Ok(())
}

/// Grants from the front while claims fit. Returns those that were granted.
pub(super) fn settle(ledger: &mut impl Ledger, head: &mut Head, now: u64) -> Result<Vec<Promotion>> {
    let mut promoted = Vec::new();
    let mut buried = 0;
    while head.waiting > 0 && buried < BURIED_PER_CALL {
        let Some(mut row) = ledger.front(head.effective, now)? else { break };
        if row.held == 0 && row.is_expired(now) {
            bury(ledger, head, &row)?;
            buried += 1;
        } else if !row.is_expired(now) && row.fits(head.free()) {
            let token = ledger.number(0)?;
            grant(head, &mut row, token, now);
            head.waiting -= 1;
            head.note_end(row.frees_at());
            ledger.put(&row)?;
            promoted.push(Promotion {
                key: ledger.key().clone(),
                inbox: row.inbox,
                seat: row.seat,
                token: row.token,
                units: row.held,
            });
        } else {
            break;
        }
    }
    if buried == BURIED_PER_CALL && head.waiting > 0 {
        // There may be more to do: whoever asks next goes on, and waiters are told to ask at once.
        head.note_end(Some(now));
    }
    Ok(promoted)
}

/// Makes a row hold as much as it wants and fits. Its lease stays as it is.
pub(super) fn grant(head: &mut Head, row: &mut Row, token: u64, now: u64) {
    let more = (row.wanted - row.held).min(head.free());
    row.held += more;
    row.wanted = row.held;
    row.least = row.held;
    row.token = token;
    row.since = now;
    head.held += more;
}

/// Refuses late copies of the request that set a latch which ends now. A copy would set the latch again, without a lease
/// and with nobody left to count it down.
pub(super) fn refuse_copies(ledger: &mut impl Ledger, row: &Row, now: u64) -> Result<()> {
    match row.count {
        Some(_) if Mutant::EndedLatchIsForgotten.lives() => Ok(()),
        Some(_) => ledger.refuse(&row.id, now.saturating_add(millis(LATE))),
        None => Ok(()),
    }
}

/// Removes a row and everything it held.
pub(super) fn bury(ledger: &mut impl Ledger, head: &mut Head, row: &Row) -> Result<()> {
    ledger.remove(row)?;
    head.held -= row.held;
    head.claims -= 1;
    head.waiting -= u64::from(row.waits());
    Ok(())
}

/// Writes the head back, or removes it when nothing is left to remember.
pub(super) fn close(
    ledger: &mut impl Ledger,
    before: Option<&Head>,
    head: &mut Head,
    now: u64,
) -> Result<()> {
    if head.claims == 0 && now < head.last_until {
        // So that a sweep comes by when it can be forgotten.
        head.note_end(Some(head.last_until));
    }
    match head.is_needed(now) {
        true if before != Some(head) => ledger.put_head(Some(head)),
        false if before.is_some() => ledger.put_head(None),
        _ => Ok(()),
    }
}
