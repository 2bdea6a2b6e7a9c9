//! What scripts answer, in the words of the core.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rule::{self, Head, Row};
use leasehold_core::{
    Answer, Book, Claim, ClaimId, Error, ErrorKind, Fence, Grant, Inbox, Key, OpenBook, Place, Promotion,
    Released, Result, Snapshot, Usage,
};
use redis::Value;

use crate::names;
use crate::pack::millis;

/// The scripts' word for a time that never comes.
const NEVER: u64 = 1 << 53;

/// How a claim stands that was just made: `taken` and its token where it has all that it asked for.
pub(crate) fn claimed(reply: Value, claim: &Claim) -> Result<Answer> {
    let token = match &reply {
        Value::BulkString(said) => said.strip_prefix(b"taken"),
        _ => None,
    };
    let Some(token) = token else { return answer(reply, &claim.key) };
    let token = token.first_chunk().map(|token| u64::from_be_bytes(*token));
    let token = token.ok_or_else(|| strange(&reply).on(&claim.key))?;
    let lease = claim.lease.map_or(Duration::MAX, |lease| Duration::from_millis(millis(lease)));
    let units = claim.units.most();
    Ok(Answer::Granted(Grant { seat: token, token, units, lease: Some(lease), asked: false }))
}

/// How a claim stands.
pub(crate) fn answer(reply: Value, key: &Key) -> Result<Answer> {
    let mut said = Said::of(reply, key)?;
    Ok(match said.word() {
        b"granted" => Answer::Granted(Grant {
            seat: said.number()?,
            token: said.number()?,
            units: said.number()?,
            lease: said.lease()?,
            asked: said.number()? > 0,
        }),
        b"waiting" => Answer::Waiting(Place {
            seat: said.number()?,
            ahead: said.number()?,
            look_in: Duration::from_millis(said.number()?),
            held: said.number()?,
            lease: said.lease()?,
        }),
        b"busy" => Answer::Busy,
        b"gone" => Answer::Gone,
        b"left" => Answer::Left(said.number()?),
        b"done" => Answer::Done,
        _ => return Err(said.refusal()),
    })
}

/// The replies about so many locks.
pub(crate) fn each(reply: Value, locks: usize) -> Result<Vec<Value>> {
    match reply {
        Value::Array(replies) if replies.len() == locks => Ok(replies),
        other => Err(strange(&other)),
    }
}

/// What a release found.
pub(crate) fn released(reply: Value, key: &Key) -> Result<Released> {
    let said = Said::of(reply, key)?;
    match said.word() {
        b"held" => Ok(Released::Held),
        b"waiting" => Ok(Released::Waiting),
        b"gone" => Ok(Released::Gone),
        _ => Err(said.refusal()),
    }
}

/// Whether an eviction found a holder.
pub(crate) fn evicted(reply: Value, key: &Key) -> Result<bool> {
    let said = Said::of(reply, key)?;
    match said.word() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(said.refusal()),
    }
}

/// What anybody may see of a lock.
pub(crate) fn snapshot(reply: Value, key: &Key) -> Result<Option<Snapshot>> {
    let Some((now, mut book)) = book(reply, key)? else { return Ok(None) };
    let mut fence = Fence::default();
    Ok(rule::snapshot(&mut OpenBook::new(key, &mut book, &mut fence, 0), now)?.answer)
}

/// All that is stored about a lock, and the server's time.
pub(crate) fn book(reply: Value, key: &Key) -> Result<Option<(u64, Book)>> {
    let mut words = Words::of(reply, key)?;
    match words.word()?.as_str() {
        "used" => {}
        "free" => return Ok(None),
        other => return Err(refusal(other, None).on(key)),
    }
    let now = words.number()?;
    let head = Head {
        limit: words.number()?,
        effective: words.number()?,
        held: words.number()?,
        claims: words.number()?,
        waiting: words.number()?,
        quiet_until: time(words.number()?),
        last: words.number()?,
        last_until: time(words.number()?),
    };
    let rows = match words.next()? {
        Value::Array(rows) => {
            rows.into_iter().map(|row| Words::of(row, key)?.row()).collect::<Result<Vec<_>>>()?
        }
        other => return Err(strange(&other)),
    };
    Ok(Some((now, Book::new(Some(head), rows))))
}

/// What a client hears in its inbox.
#[derive(Debug)]
pub(crate) enum Heard {
    Promoted(Promotion),
    /// Something about this lock changed.
    Look(Key),
}

/// Reads a message, `proof inbox seat token units lock`: without a seat it is only a hint. `None` when it is not one of
/// ours. Whether to believe it is for the [secret](crate::secret::Secret::proves) to say.
pub(crate) fn heard(message: &[u8]) -> Option<Heard> {
    let mut parts = message.splitn(6, |byte| *byte == b' ').map(|part| std::str::from_utf8(part).ok());
    let _proof = parts.next()??;
    let inbox = Inbox(u64::from_str_radix(parts.next()??, 16).ok()?);
    let mut number = || parts.next()??.parse().ok();
    let (seat, token, units) = (number()?, number()?, number()?);
    let key = names::locked(parts.next()??.as_bytes())?;
    Some(match seat {
        0 => Heard::Look(key),
        _ => Heard::Promoted(Promotion { key, inbox, seat, token, units }),
    })
}

fn time(at: u64) -> u64 {
    if at >= NEVER { u64::MAX } else { at }
}

fn strange(value: &Value) -> Error {
    Error::new(ErrorKind::Protocol, format!("a script answered {value:?}: is there a proxy in between?"))
}

/// A word, and numbers of eight bytes behind it: a string costs a server half of what an array does.
struct Said<'a> {
    key: &'a Key,
    all: Vec<u8>,
    /// Where the word ends and the numbers begin.
    end: usize,
    /// The next number.
    next: usize,
}

impl<'a> Said<'a> {
    fn of(reply: Value, key: &'a Key) -> Result<Self> {
        let Value::BulkString(all) = reply else { return Err(strange(&reply).on(key)) };
        // No number begins with a letter: the first byte is only a sign, as they are below 2^53.
        let end = all.iter().position(|byte| !byte.is_ascii_lowercase()).unwrap_or(all.len());
        Ok(Self { key, all, end, next: end })
    }

    fn word(&self) -> &[u8] {
        &self.all[..self.end]
    }

    fn signed(&mut self) -> Result<i64> {
        let number = self.all[self.next..].first_chunk();
        let number = number.ok_or_else(|| strange(&Value::BulkString(self.all.clone())).on(self.key))?;
        self.next += 8;
        Ok(i64::from_be_bytes(*number))
    }

    fn number(&mut self) -> Result<u64> {
        let number = self.signed()?;
        u64::try_from(number).map_err(|_| strange(&Value::Int(number)).on(self.key))
    }

    /// What is left of a lease, if this request extended it.
    fn lease(&mut self) -> Result<Option<Duration>> {
        Ok(match self.signed()? {
            -2 => None,
            -1 => Some(Duration::MAX),
            left => Some(Duration::from_millis(left.unsigned_abs())),
        })
    }

    /// What a script says instead of an answer.
    fn refusal(mut self) -> Error {
        let number = self.signed().ok();
        refusal(&String::from_utf8_lossy(self.word()), number).on(self.key)
    }
}

/// What a script says instead of an answer.
fn refusal(word: &str, number: Option<i64>) -> Error {
    let number = number.unwrap_or_default();
    let (kind, message) = match word {
        "limit" => return Usage(number.unsigned_abs()).conflict(),
        "foreign" => (
            ErrorKind::Conflict,
            "something else is stored under this lock's name: choose another name or database".to_owned(),
        ),
        "young" => {
            let message =
                format!("too young to vote: it may have forgotten a claim, and counts again in {number} ms");
            return Error::new(ErrorKind::Unavailable, message)
                .after(Duration::from_millis(number.unsigned_abs()));
        }
        "ahead" => (
            ErrorKind::Unavailable,
            format!(
                "tokens are as far ahead of the server's clock as they may be: \
                 it grants again in {number} ms, or when its clock is set right"
            ),
        ),
        "units" => (ErrorKind::Invalid, format!("cannot hold that many: there are {number} permits")),
        "lowered" => (
            ErrorKind::Invalid,
            format!(
                "cannot hold that many permits: the limit was lowered to {number}: ask for fewer, or raise the limit"
            ),
        ),
        "uncounted" => {
            (ErrorKind::Conflict, "in use, but not as a latch: count down on another key".to_owned())
        }
        "heir" => (ErrorKind::Conflict, "the heir has a claim already: adopt with a new id".to_owned()),
        other => (ErrorKind::Protocol, format!("a script answered {other:?}: is there a proxy in between?")),
    };
    Error::new(kind, message)
}

/// An array, read from its start.
struct Words<'a> {
    key: &'a Key,
    rest: std::vec::IntoIter<Value>,
}

impl<'a> Words<'a> {
    fn of(reply: Value, key: &'a Key) -> Result<Self> {
        match reply {
            Value::Array(words) => Ok(Self { key, rest: words.into_iter() }),
            other => Err(strange(&other).on(key)),
        }
    }

    fn next(&mut self) -> Result<Value> {
        self.rest.next().ok_or_else(|| strange(&Value::Nil).on(self.key))
    }

    fn bytes(&mut self) -> Result<Vec<u8>> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(bytes),
            other => Err(strange(&other).on(self.key)),
        }
    }

    fn word(&mut self) -> Result<String> {
        let text = String::from_utf8(self.bytes()?);
        Ok(text.unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned()))
    }

    fn signed(&mut self) -> Result<i64> {
        match self.next()? {
            Value::Int(number) => Ok(number),
            other => Err(strange(&other).on(self.key)),
        }
    }

    fn number(&mut self) -> Result<u64> {
        let number = self.signed()?;
        u64::try_from(number).map_err(|_| strange(&Value::Int(number)).on(self.key))
    }

    fn maybe(&mut self) -> Result<Option<u64>> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::Int(number) => Ok(u64::try_from(number).ok()),
            other => Err(strange(&other).on(self.key)),
        }
    }

    fn row(mut self) -> Result<Row> {
        let id = <[u8; 16]>::try_from(self.bytes()?).map_err(|id| strange(&Value::BulkString(id)))?;
        Ok(Row {
            id: ClaimId::from_bytes(id),
            seat: self.number()?,
            token: self.number()?,
            held: self.number()?,
            wanted: self.number()?,
            least: self.number()?,
            since: self.number()?,
            lease: self.maybe()?,
            patience: self.number()?,
            expires: self.maybe()?,
            lock_delay: self.number()?,
            inbox: Inbox(u64::from_str_radix(&self.word()?, 16).unwrap_or(0)),
            label: self.word()?.into(),
            value: Arc::from(self.bytes()?),
            count: self.maybe()?,
            given: self
                .bytes()?
                .chunks_exact(8)
                .filter_map(|op| Some(u64::from_be_bytes(op.try_into().ok()?)))
                .collect(),
            asked: self.maybe()?.is_some(),
        })
    }
}
