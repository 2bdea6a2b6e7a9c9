//! What anybody may see of a key.

use std::time::Duration;

use super::Outcome;
use super::ledger::{Ledger, Row};
use crate::claim::ClaimId;
use crate::error::Result;
use crate::store::{Finished, Holder, Snapshot, Waiter};

/// Everybody on the key, without changing anything: claims that are over are left out, not buried.
///
/// ```
/// use leasehold_core::rule;
/// use leasehold_core::{Book, Claim, Fence, Key, OpenBook, Units};
/// let key = Key::new("k")?;
/// let (mut book, mut fence) = (Book::default(), Fence::default());
/// let mut ledger = OpenBook::new(&key, &mut book, &mut fence, 0);
/// let claim = Claim::new(key.clone(), 1, Units::Exactly(1))?;
/// rule::claim(&mut ledger, &claim, 1_000)?;
/// let seen = rule::snapshot(&mut ledger, 2_000)?.answer.expect("it is held");
/// assert_eq!(seen.held(), 1);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn snapshot(ledger: &mut impl Ledger, now: u64) -> Result<Outcome<Option<Snapshot>>> {
    let Some(head) = ledger.head()? else { return Ok(Outcome::quiet(None)) };
    let mut shown = Snapshot::free(ledger.key().clone(), head.limit);
    shown.effective_limit = head.effective;

    let mut rows = ledger.rows()?;
    rows.sort_by_key(|row| (row.held == 0, row.seat));
    for row in &rows {
        if row.held > 0 && row.frees_at().is_none_or(|at| at > now) {
            match row.id == ClaimId::ownerless(row.seat) {
                true => shown.finished.push(finished(row, now)),
                false => shown.holders.push(holder(row, now)),
            }
        }
        if row.waits() && !row.is_expired(now) {
            shown.waiters.push(waiter(row, now));
        }
    }
    shown.holders.sort_by_key(|holder| holder.token);
    shown.finished.sort_by_key(|finished| finished.token);
    let is_free = shown.holders.is_empty() && shown.finished.is_empty() && shown.waiters.is_empty();
    let in_use = !is_free || head.effective != head.limit;
    Ok(Outcome::quiet(in_use.then_some(shown)))
}

/// The tail of a job.
fn finished(row: &Row, now: u64) -> Finished {
    Finished {
        seat: row.seat,
        token: row.token,
        units: row.held,
        label: row.label.to_string(),
        started: Duration::from_millis(now.saturating_sub(row.since)),
        due_in: lease_left(row, now).unwrap_or(Duration::MAX),
    }
}

fn holder(row: &Row, now: u64) -> Holder {
    Holder {
        seat: row.seat,
        token: row.token,
        units: row.held,
        label: row.label.to_string(),
        held_for: Duration::from_millis(now.saturating_sub(row.since)),
        lease_left: lease_left(row, now),
        value: row.value.clone(),
        count: row.count,
    }
}

fn waiter(row: &Row, now: u64) -> Waiter {
    Waiter {
        seat: row.seat,
        units: row.wanted - row.held,
        label: row.label.to_string(),
        waiting_for: Duration::from_millis(now.saturating_sub(row.since)),
        lease_left: lease_left(row, now),
    }
}

/// `None` when it never ends by itself: a waiter on a session has endless patience.
fn lease_left(row: &Row, now: u64) -> Option<Duration> {
    row.expires.filter(|at| *at < u64::MAX).map(|at| Duration::from_millis(at.saturating_sub(now)))
}
