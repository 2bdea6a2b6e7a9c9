//! A claim as the value of a key: readable, versioned, and without the numbers that only the write itself has.
//!
//! Seats and tokens are revisions, which nobody knows before the write. So a number that is drawn by a write is not in
//! its value: it is the revision that created the key (a seat) or last changed it (a token), times [`PER_REVISION`], plus
//! the position `nth` within that write. When the value is written again, for another reason, the number is put down.

use leasehold_core::record::format::State as Stored;
use leasehold_core::rule::{Head, Row};
use leasehold_core::{Book, Error, ErrorKind, Fence, Key};
use serde::{Deserialize, Serialize};

use crate::wire::message::KeyValue;

/// The version of the format. Another one is not ours to read or to overwrite.
const VERSION: u64 = 1;

/// One write can make several claims hold, and each has a number of its own.
pub(crate) const PER_REVISION: u64 = 128;

/// The first number that a write with this revision draws.
pub(crate) fn first_number(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0).saturating_mul(PER_REVISION)
}

#[derive(Serialize, Deserialize)]
struct Value {
    /// Marks it as ours, and in which format.
    leasehold: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    nth: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    round: u64,
    #[serde(flatten)]
    state: Stored,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A claim, and what its key says about it.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) row: Row,
    /// The limit that it declared.
    pub(crate) limit: u64,
    /// [`Claim::round`](leasehold_core::Claim::round).
    pub(crate) round: u64,
    pub(crate) name: Vec<u8>,
    /// When its key was last changed.
    pub(crate) modified: i64,
    /// The lease that its key is on; 0 for none.
    pub(crate) lease: i64,
}

/// The value for a row. Numbers from `first` on are those that this write draws.
pub(crate) fn value(row: &Row, limit: u64, round: u64, first: u64) -> Vec<u8> {
    // Its end is the lease's, not a time.
    let mut row = Row { expires: None, ..row.clone() };
    let mut nth = 0;
    for number in [&mut row.seat, &mut row.token] {
        if *number >= first {
            nth = *number - first;
            *number = 0;
        }
    }
    write(Some(head(limit, limit)), Some(row), nth, round)
}

/// The value of the key that remembers a resize.
pub(crate) fn limit_value(limit: u64, effective: u64) -> Vec<u8> {
    write(Some(head(limit, effective)), None, 0, 0)
}

fn head(limit: u64, effective: u64) -> Head {
    Head { limit, effective, held: 0, claims: 0, waiting: 0, quiet_until: u64::MAX, last: 0, last_until: 0 }
}

fn write(head: Option<Head>, row: Option<Row>, nth: u64, round: u64) -> Vec<u8> {
    let state = Stored::of(&Book::new(head, row), &Fence::default(), 0);
    let value = Value { leasehold: VERSION, nth, round, state };
    serde_json::to_vec(&value).expect("strings and numbers always serialise")
}

/// What a key of a claim says.
pub(crate) fn claimed(key: &Key, kv: KeyValue) -> Result<Claimed, Error> {
    let Value { nth, round, state, .. } = read(key, &kv.value)?;
    let (Some(limit), Some(mut row)) = (state.limit, state.rows(0).pop()) else { return Err(damaged(key)) };
    if row.seat == 0 {
        row.seat = first_number(kv.created).saturating_add(nth);
    }
    if row.token == 0 && row.held > 0 {
        row.token = first_number(kv.modified).saturating_add(nth);
    }
    Ok(Claimed { row, limit, round, name: kv.key, modified: kv.modified, lease: kv.lease })
}

/// What the key says that remembers a resize: the limit that claims declare, and the one in force.
pub(crate) fn limits(key: &Key, kv: &KeyValue) -> Result<(u64, u64), Error> {
    let state = read(key, &kv.value)?.state;
    let limit = state.limit.ok_or_else(|| damaged(key))?;
    Ok((limit, state.effective.unwrap_or(limit)))
}

fn read(key: &Key, bytes: &[u8]) -> Result<Value, Error> {
    let value: Value = serde_json::from_slice(bytes).map_err(|cause| damaged(key).because(cause))?;
    if value.leasehold == VERSION {
        return Ok(value);
    }
    let message =
        format!("stored in format {}, this release knows {VERSION}: use one release", value.leasehold);
    Err(Error::new(ErrorKind::Conflict, message).on(key))
}

fn damaged(key: &Key) -> Error {
    let message = "something that is no claim is stored under this name: remove it, or choose another name";
    Error::new(ErrorKind::Conflict, message).on(key)
}
