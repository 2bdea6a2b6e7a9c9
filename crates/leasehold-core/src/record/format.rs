//! A key's claims as text: what a record holds, and how the golden vectors write a state down.
//!
//! Versioned JSON that a person can read: `{"leasehold":1,"key":"orders/42","last":17,"limit":1,"claims":[…]}`.
//! What follows from the claims (the head's counters) is not written. Times are milliseconds from a base
//! that the reader knows: the epoch of the store's clock in a record, "now" in a vector.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::SMALL;
use crate::book::{Book, Fence};
use crate::claim::{ClaimId, Inbox};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::rule::{Head, Row};

/// The version of the format. Another one is not ours to read or to overwrite.
const VERSION: u64 = 1;

/// What is stored under a key.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// Marks the record as ours; checked before anything else is read.
    leasehold: u64,
    /// The full name: stores with narrower names keep a digest as theirs.
    key: String,
    /// The last number drawn for this key.
    pub(super) last: u64,
    #[serde(flatten)]
    pub(super) state: State,
    /// It was stored with numbers that count from its origin, and would look different if it were written again.
    #[serde(skip)]
    pub(super) is_relative: bool,
}

/// The claims of one key, and the ids that it refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The limit that every claim declares; absent when there is no resource.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit: Option<u64>,
    /// The limit in force, when it is another one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub effective: Option<u64>,
    /// [`Head::quiet_until`]; absent for never.
    #[serde(default, skip_serializing_if = "is_default")]
    pub quiet_until: Option<i64>,
    /// [`Head::last`]; absent for none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub agreed: u64,
    /// [`Head::last_until`]; absent when there is nothing to remember.
    #[serde(default, skip_serializing_if = "is_default")]
    pub agreed_until: Option<i64>,
    /// The claims, by seat.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claims: Vec<Stored>,
    /// Ids that are refused, and until when.
    #[serde(default, skip_serializing_if = "is_default")]
    pub refused: BTreeMap<Id, i64>,
}

/// A claim: [`Row`] with what is usual left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stored {
    /// [`Row::id`].
    pub id: Id,
    /// [`Row::seat`].
    pub seat: u64,
    /// [`Row::token`]; absent while it never held.
    #[serde(skip_serializing_if = "is_default")]
    pub token: u64,
    /// [`Row::held`]; absent for nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub held: u64,
    /// [`Row::wanted`], when it waits for more than it holds.
    #[serde(skip_serializing_if = "is_default")]
    pub wanted: Option<u64>,
    /// [`Row::least`], when that is not what it wants.
    #[serde(skip_serializing_if = "is_default")]
    pub least: Option<u64>,
    /// [`Row::since`].
    #[serde(skip_serializing_if = "is_default")]
    pub since: i64,
    /// [`Row::lease`]; absent for state that no process owns.
    #[serde(skip_serializing_if = "is_default")]
    pub lease: Option<u64>,
    /// [`Row::patience`].
    #[serde(skip_serializing_if = "is_default")]
    pub patience: u64,
    /// [`Row::expires`]; absent for never, and while its session lives.
    #[serde(skip_serializing_if = "is_default")]
    pub expires: Option<i64>,
    /// The session that carries it; absent where it has a lease of its own.
    #[serde(skip_serializing_if = "is_default")]
    pub session: Option<String>,
    /// [`Row::lock_delay`].
    #[serde(skip_serializing_if = "is_default")]
    pub lock_delay: u64,
    /// [`Row::inbox`].
    #[serde(skip_serializing_if = "is_default")]
    pub inbox: u64,
    /// [`Row::label`].
    #[serde(skip_serializing_if = "is_default")]
    pub label: String,
    /// [`Row::value`].
    #[serde(skip_serializing_if = "is_default")]
    pub value: Value,
    /// [`Row::count`].
    #[serde(skip_serializing_if = "is_default")]
    pub count: Option<u64>,
    /// [`Row::given`].
    #[serde(skip_serializing_if = "is_default")]
    pub given: Vec<u64>,
    /// [`Row::asked`]; absent for no.
    #[serde(skip_serializing_if = "is_default")]
    pub asked: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Record {
    /// An empty record of a key.
    pub(super) fn new(key: &Key, last: u64, state: State) -> Self {
        Self { leasehold: VERSION, key: key.as_str().to_owned(), last, state, is_relative: false }
    }

    /// Reads a record whose small numbers count from `origin`.
    pub(super) fn read(key: &Key, bytes: &[u8], origin: u64) -> Result<Self> {
        let conflict = |message: String| Error::new(ErrorKind::Conflict, message).on(key);
        let version = serde_json::from_slice::<serde_json::Value>(bytes)
            .ok()
            .and_then(|record| record.get("leasehold")?.as_u64())
            .ok_or_else(|| conflict("something else is stored under this name: choose another".into()))?;
        if version != VERSION {
            let message =
                format!("stored in format {version}, this release knows {VERSION}: use one release");
            return Err(conflict(message));
        }
        let mut record: Self = serde_json::from_slice(bytes).map_err(|e| {
            conflict("the stored record is damaged: remove it when nobody uses the lock".into()).because(e)
        })?;
        if record.key != key.as_str() {
            return Err(conflict("another key has the same name in this store: choose another".into()));
        }
        record.is_relative = origin > 0 && record.last < SMALL;
        count_from(origin, &mut record.last);
        for claim in &mut record.state.claims {
            count_from(origin, &mut claim.seat);
            if claim.token > 0 {
                count_from(origin, &mut claim.token);
            }
        }
        Ok(record)
    }

    /// Its text.
    pub(super) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }

    /// The fence that it describes.
    pub(super) fn fence(&self) -> Fence {
        let mut fence = Fence::above(self.last);
        for (id, until) in &self.state.refused {
            fence.refuse(id.0, absolute(*until, 0));
        }
        fence
    }
}

/// The key that a record is about, for stores whose names do not tell.
///
/// ```
/// assert!(leasehold_core::record::key_of(b"something else").is_none());
/// ```
pub fn key_of(bytes: &[u8]) -> Option<Key> {
    serde_json::from_slice::<Record>(bytes).ok().and_then(|record| Key::new(record.key).ok())
}

/// Makes a number that is relative to the origin absolute.
pub(super) fn count_from(origin: u64, number: &mut u64) {
    if *number < SMALL {
        *number = number.saturating_add(origin);
    }
}

impl State {
    /// The contents of a book, with times relative to `base`.
    pub fn of(book: &Book, fence: &Fence, base: u64) -> Self {
        let mut claims: Vec<_> = book.rows().map(|row| Stored::of(row, base)).collect();
        claims.sort_by_key(|claim| claim.seat);
        let head = book.head();
        Self {
            limit: head.map(|head| head.limit),
            effective: head.filter(|head| head.effective != head.limit).map(|head| head.effective),
            quiet_until: head
                .filter(|head| head.quiet_until != u64::MAX)
                .map(|head| relative(head.quiet_until, base)),
            agreed: head.map_or(0, |head| head.last),
            agreed_until: head.filter(|head| head.last_until > 0).map(|head| relative(head.last_until, base)),
            claims,
            refused: fence.refused().map(|(id, until)| (Id(id), relative(until, base))).collect(),
        }
    }

    /// The rows, with absolute times.
    pub fn rows(&self, base: u64) -> Vec<Row> {
        self.claims.iter().map(|claim| claim.row(base)).collect()
    }

    /// The head, its counters summed up from the claims.
    pub fn head(&self, base: u64) -> Option<Head> {
        let limit = self.limit?;
        let rows = self.rows(base);
        Some(Head {
            limit,
            effective: self.effective.unwrap_or(limit),
            held: rows.iter().fold(0, |held, row| held.saturating_add(row.held)),
            claims: rows.len() as u64,
            waiting: rows.iter().filter(|row| row.waits()).count() as u64,
            quiet_until: self.quiet_until.map_or(u64::MAX, |at| absolute(at, base)),
            last: self.agreed,
            last_until: self.agreed_until.map_or(0, |at| absolute(at, base)),
        })
    }

    /// The book.
    pub fn book(&self, base: u64) -> Book {
        Book::new(self.head(base), self.rows(base))
    }
}

impl Stored {
    fn of(row: &Row, base: u64) -> Self {
        Self {
            id: Id(row.id),
            seat: row.seat,
            token: row.token,
            held: row.held,
            wanted: (row.wanted != row.held).then_some(row.wanted),
            least: (row.least != row.wanted).then_some(row.least),
            since: relative(row.since, base),
            lease: row.lease,
            patience: row.patience,
            expires: row.expires.map(|at| relative(at, base)),
            session: None,
            lock_delay: row.lock_delay,
            inbox: row.inbox.0,
            label: row.label.to_string(),
            value: Value::of(&row.value),
            count: row.count,
            given: row.given.clone(),
            asked: row.asked,
        }
    }

    fn row(&self, base: u64) -> Row {
        let wanted = self.wanted.unwrap_or(self.held);
        Row {
            id: self.id.0,
            seat: self.seat,
            token: self.token,
            held: self.held,
            wanted,
            least: self.least.unwrap_or(wanted),
            since: absolute(self.since, base),
            lease: self.lease,
            patience: self.patience,
            expires: self.expires.map(|at| absolute(at, base)),
            lock_delay: self.lock_delay,
            inbox: Inbox(self.inbox),
            label: self.label.as_str().into(),
            value: self.value.bytes(),
            count: self.count,
            given: self.given.clone(),
            asked: self.asked,
        }
    }
}

fn relative(at: u64, base: u64) -> i64 {
    i64::try_from(i128::from(at) - i128::from(base)).unwrap_or(i64::MAX)
}

fn absolute(at: i64, base: u64) -> u64 {
    base.saturating_add_signed(at)
}

/// A published value: text where it is text, else its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl Value {
    fn of(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_vec()),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> Arc<[u8]> {
        match self {
            Self::Text(text) => text.as_bytes().into(),
            Self::Bytes(bytes) => bytes.as_slice().into(),
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// An id as text: 32 hexadecimal digits, or, in vectors, a name of up to 15 characters that stands for its
/// own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub ClaimId);

impl Default for Id {
    fn default() -> Self {
        Self(ClaimId::from_bytes([0; 16]))
    }
}

impl Id {
    fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        if text.len() == 32 {
            for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
                *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
            }
        } else {
            bytes
                .get_mut(..text.len())
                .filter(|_| is_name(text.as_bytes()))?
                .copy_from_slice(text.as_bytes());
        }
        Some(Self(ClaimId::from_bytes(bytes)))
    }

    fn text(self) -> String {
        let bytes = self.0.as_bytes();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        match str::from_utf8(&bytes[..used]) {
            Ok(name) if is_name(name.as_bytes()) => name.to_owned(),
            _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

fn is_name(text: &[u8]) -> bool {
    (1..16).contains(&text.len()) && text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("an id is 32 hexadecimal digits or a short name"))
    }
}
