//! The rows of one lock, between the database and the rule.

use std::sync::Arc;

use leasehold_core::rule::{Head, Row as Stored};
use leasehold_core::{ClaimId, Error, ErrorKind, Inbox, Result};
use mysql_async::Row;
use mysql_async::prelude::FromValue;

use crate::sql::{bytes, maybe};

/// Times at or beyond this are never: far enough from the end of the range that two can be added.
const NEVER: u64 = 1 << 62;

/// The columns of a claim, in the order of [`claim`] and [`values`].
pub(crate) const CLAIM: &str = "id, seat, token, held, wanted, at_least, since, lease, patience, expires, lock_delay, \
                                inbox, label, value, count, given, asked";
/// The columns of a lock, in the order of [`head`].
pub(crate) const HEAD: &str = "declared, effective, held, claims, waiting, quiet_until, agreed, agreed_until";

/// The lock of a row whose columns begin at `from`; `None` for one that is only being made.
pub(crate) fn head(row: &Row, from: usize) -> Result<Option<Head>> {
    let number = |at: usize| get::<i64>(row, from + at).map(i64::cast_unsigned);
    let limit = number(0)?;
    if limit == 0 {
        return Ok(None);
    }
    Ok(Some(Head {
        limit,
        effective: number(1)?,
        held: number(2)?,
        claims: number(3)?,
        waiting: number(4)?,
        quiet_until: past(number(5)?),
        last: number(6)?,
        last_until: past(number(7)?),
    }))
}

/// The claim of a row whose columns begin at `from`.
pub(crate) fn claim(row: &Row, from: usize) -> Result<Stored> {
    let number = |at: usize| get::<i64>(row, from + at).map(i64::cast_unsigned);
    let perhaps = |at: usize| get::<Option<i64>>(row, from + at).map(|n| n.map(i64::cast_unsigned));
    let id: Vec<u8> = get(row, from)?;
    let label = String::from_utf8(get(row, from + 12)?).map_err(|_| strange("a label"))?;
    let given: Vec<u8> = get(row, from + 15)?;
    Ok(Stored {
        id: ClaimId::from_bytes(id.try_into().map_err(|_| strange("an id"))?),
        seat: number(1)?,
        token: number(2)?,
        held: number(3)?,
        wanted: number(4)?,
        least: number(5)?,
        since: number(6)?,
        lease: perhaps(7)?,
        patience: number(8)?,
        expires: perhaps(9)?.map(past),
        lock_delay: number(10)?,
        inbox: Inbox(number(11)?),
        label: label.into(),
        value: Arc::from(get::<Vec<u8>>(row, from + 13)?),
        count: perhaps(14)?,
        given: given.as_chunks().0.iter().map(|op| u64::from_le_bytes(*op)).collect(),
        asked: number(16)? > 0,
    })
}

/// A claim as it is written: the columns of [`CLAIM`], and its turn.
pub(crate) fn values(row: &Stored, time: impl Fn(u64) -> String, drawn: impl Fn(u64) -> String) -> String {
    let given: Vec<u8> = row.given.iter().flat_map(|op| op.to_le_bytes()).collect();
    let turn = row.waits().then(|| rank(row));
    [
        bytes(row.id.as_bytes()),
        drawn(row.seat),
        drawn(row.token),
        number(row.held),
        number(row.wanted),
        number(row.least),
        time(row.since),
        maybe(row.lease.map(clamp)),
        number(row.patience),
        row.expires.map_or_else(|| maybe(None), time),
        number(row.lock_delay),
        row.inbox.0.cast_signed().to_string(),
        bytes(row.label.as_bytes()),
        bytes(&row.value),
        maybe(row.count.map(clamp)),
        bytes(&given),
        u8::from(row.asked).to_string(),
        maybe(turn),
    ]
    .join(", ")
}

/// A lock as it is written when it is new: the columns of [`HEAD`].
pub(crate) fn head_values(head: &Head, time: impl Fn(u64) -> String) -> String {
    [
        number(head.limit),
        number(head.effective),
        number(head.held),
        number(head.claims),
        number(head.waiting),
        time(head.quiet_until),
        number(head.last),
        time(head.last_until),
    ]
    .join(", ")
}

/// A lock as it is written, in an update.
pub(crate) fn assignments(head: &Head) -> String {
    format!(
        "declared = {}, effective = {}, held = {}, claims = {}, waiting = {}, quiet_until = {}, agreed = {}, \
         agreed_until = {}",
        number(head.limit),
        number(head.effective),
        number(head.held),
        number(head.claims),
        number(head.waiting),
        number(head.quiet_until),
        number(head.last),
        number(head.last_until)
    )
}

/// The order of the queue as one number: who holds already and wants more comes first, then by seat.
fn rank(row: &Stored) -> i64 {
    let seat = clamp(row.seat);
    if row.held > 0 { seat + i64::MIN } else { seat }
}

pub(crate) fn number(value: u64) -> String {
    clamp(value).to_string()
}

fn clamp(value: u64) -> i64 {
    value.min(NEVER).cast_signed()
}

fn past(stored: u64) -> u64 {
    if stored < NEVER { stored } else { u64::MAX }
}

/// A column.
pub(crate) fn get<T: FromValue>(row: &Row, at: usize) -> Result<T> {
    row.get_opt(at).and_then(std::result::Result::ok).ok_or_else(|| strange("a column"))
}

pub(crate) fn strange(what: &str) -> Error {
    let message = format!("the database answered {what} that this version does not understand");
    Error::new(ErrorKind::Protocol, message).at("mysql")
}
