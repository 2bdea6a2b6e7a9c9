//! What the database answers, in the words of the core.

use std::time::Duration;

use leasehold_core::rule::{self, Head, Row as Stored};
use leasehold_core::{
    Answer, Book, Claim, ClaimId, Error, ErrorKind, Fence, Grant, Inbox, Key, OpenBook, Place, Promotion,
    Released, Result, Snapshot, Usage,
};
use tokio_postgres::Row;
use tokio_postgres::types::FromSqlOwned;

use crate::names;
use crate::proof::Secret;

/// The database's word for a time that never comes; whatever is beyond it is just as far.
const NEVER: i64 = 1 << 62;

/// The first word about a claim whose lock's row another session kept: it was not extended.
const KEPT: &str = "kept ";

/// Whether another session kept the row of a claim's lock.
pub(crate) fn is_kept(row: &Row) -> bool {
    row.try_get::<_, &str>(0).is_ok_and(|said| said.starts_with(KEPT))
}

/// How a claim stands.
pub(crate) fn answer(row: &Row, claim: &Claim) -> Result<Answer> {
    let lease = || {
        let left = get::<Option<i64>>(row, 4)?;
        Ok::<_, Error>(left.map(|left| u64::try_from(left).map_or(Duration::MAX, Duration::from_millis)))
    };
    let units = || get::<Option<i64>>(row, 3).map(|n| n.unwrap_or(0).cast_unsigned());
    let said = get::<&str>(row, 0)?;
    Ok(match said.strip_prefix(KEPT).unwrap_or(said) {
        "granted" => Answer::Granted(Grant {
            seat: number(row, 1)?,
            token: number(row, 2)?,
            units: number(row, 3)?,
            lease: lease()?,
            asked: get(row, 5)?,
        }),
        "waiting" => Answer::Waiting(Place {
            seat: number(row, 1)?,
            ahead: number(row, 6)?,
            look_in: Duration::from_millis(number(row, 7)?),
            held: number(row, 3)?,
            lease: lease()?,
        }),
        "busy" => Answer::Busy,
        "gone" => Answer::Gone,
        "left" => Answer::Left(units()?),
        "done" => Answer::Done,
        why => return Err(refusal(why, units()?).on(&claim.key)),
    })
}

/// Why it may not be.
fn refusal(why: &str, n: u64) -> Error {
    let conflict = |message: &str| Error::new(ErrorKind::Conflict, message);
    let error = match why {
        "limit" => Usage(n).conflict(),
        "young" => {
            let left = Duration::from_millis(n);
            let message =
                format!("too young to vote: it may have forgotten a claim, and counts again in {left:?}");
            Error::new(ErrorKind::Unavailable, message).after(left)
        }
        "units" => {
            Error::new(ErrorKind::Invalid, format!("cannot hold that many permits: hold from 1 to {n}"))
        }
        "lowered" => Error::new(
            ErrorKind::Invalid,
            format!(
                "cannot hold that many permits: the limit was lowered to {n}: ask for fewer, or raise the limit"
            ),
        ),
        "uncounted" => conflict("in use, but not as a latch: count down on another key"),
        "heir" => conflict("the heir has a claim already: adopt with a new id"),
        _ => strange("an answer"),
    };
    error.at("postgres")
}

/// What a release found, and who of the same client holds now: nobody else is told that.
pub(crate) fn released(row: &Row, claim: &Claim) -> Result<(Released, Option<Promotion>)> {
    let said = get::<&str>(row, 0)?;
    let found = match said {
        "held" | "freed" => Released::Held,
        "waiting" => Released::Waiting,
        "gone" => Released::Gone,
        _ => {
            let next = passed(said, claim).ok_or_else(|| strange("a release"))?;
            return Ok((Released::Held, Some(next)));
        }
    };
    Ok((found, None))
}

/// Reads who has the lock now: seat, token and units.
fn passed(said: &str, claim: &Claim) -> Option<Promotion> {
    let mut words = said.strip_prefix("passed ")?.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (seat, token, units) = (number()?, number()?, number()?);
    let (key, inbox) = (claim.key.clone(), claim.inbox);
    words.next().is_none().then_some(Promotion { key, inbox, seat, token, units })
}

/// All that is stored about some locks, and the database's time.
pub(crate) fn books(rows: &[Row]) -> Result<Vec<(Key, u64, Book)>> {
    let mut books = Vec::new();
    for of_one in rows.chunk_by(|a, b| a.get::<_, &str>(0) == b.get::<_, &str>(0)) {
        let Some(first) = of_one.first() else { continue };
        let key = names::key(get::<&str>(first, 0)?).ok_or_else(|| strange("a name"))?;
        let claims = of_one.iter().filter_map(|row| stored(row).transpose());
        let book = Book::new(Some(head(first)?), claims.collect::<Result<Vec<_>>>()?);
        books.push((key, number(first, 1)?, book));
    }
    Ok(books)
}

/// What anybody may see of a lock.
pub(crate) fn snapshot(key: &Key, now: u64, mut book: Book) -> Result<Option<Snapshot>> {
    let mut fence = Fence::default();
    Ok(rule::snapshot(&mut OpenBook::new(key, &mut book, &mut fence, 0), now)?.answer)
}

fn head(row: &Row) -> Result<Head> {
    Ok(Head {
        limit: number(row, 2)?,
        effective: number(row, 3)?,
        held: number(row, 4)?,
        claims: number(row, 5)?,
        waiting: number(row, 6)?,
        quiet_until: time(get(row, 7)?),
        last: number(row, 8)?,
        last_until: time(get(row, 9)?),
    })
}

fn stored(row: &Row) -> Result<Option<Stored>> {
    let Some(id) = get::<Option<Vec<u8>>>(row, 10)? else { return Ok(None) };
    let id = <[u8; 16]>::try_from(id).map_err(|_| strange("an id"))?;
    Ok(Some(Stored {
        id: ClaimId::from_bytes(id),
        seat: number(row, 11)?,
        token: number(row, 12)?,
        held: number(row, 13)?,
        wanted: number(row, 14)?,
        least: number(row, 15)?,
        since: number(row, 16)?,
        lease: get::<Option<i64>>(row, 17)?.map(i64::cast_unsigned),
        patience: number(row, 18)?,
        expires: get::<Option<i64>>(row, 19)?.map(time),
        lock_delay: number(row, 20)?,
        inbox: Inbox(number(row, 21)?),
        label: names::decode(get::<&str>(row, 22)?).ok_or_else(|| strange("a label"))?.into(),
        value: get::<Vec<u8>>(row, 23)?.into(),
        count: get::<Option<i64>>(row, 24)?.map(i64::cast_unsigned),
        given: get::<Vec<i64>>(row, 25)?.into_iter().map(i64::cast_unsigned).collect(),
        asked: get(row, 26)?,
    }))
}

/// What a client hears on its channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Promoted(Promotion),
    Look(Key),
    /// Without a valid proof. Anybody can have sent it, so it says no more than that the lock is worth a look.
    Unproven(Key),
}

/// Reads a message: seat, token, units, the name and the proof; three zeros for "look".
pub(crate) fn heard(inbox: Inbox, payload: &str, secret: &Secret) -> Option<Heard> {
    let (body, proof) = payload.rsplit_once(' ')?;
    let mut words = body.splitn(4, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (seat, token, units) = (number()?, number()?, number()?);
    let key = names::key(words.next()?)?;
    if !secret.proves(&names::channel(inbox), body, proof) {
        return Some(Heard::Unproven(key));
    }
    Some(match seat {
        0 => Heard::Look(key),
        _ => Heard::Promoted(Promotion { key, inbox, seat, token, units }),
    })
}

pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|cause| strange("a column").because(cause))
}

/// The only column of the only row.
pub(crate) fn only<T: FromSqlOwned>(rows: &[Row]) -> Result<T> {
    get(one(rows)?, 0)
}

/// The only row.
pub(crate) fn one(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(|| strange("no row"))
}

fn number(row: &Row, at: usize) -> Result<u64> {
    get::<i64>(row, at).map(i64::cast_unsigned)
}

fn time(stored: i64) -> u64 {
    if stored < NEVER { stored.cast_unsigned() } else { u64::MAX }
}

pub(crate) fn strange(what: &str) -> Error {
    let message = format!("the database answered {what} that this version does not understand");
    Error::new(ErrorKind::Protocol, message).at("postgres")
}

#[cfg(test)]
mod tests {
    use leasehold_core::Units;

    use super::*;

    #[test]
    fn a_release_says_who_is_next() {
        let key = Key::new("k").unwrap();
        let claim = Claim { inbox: Inbox(5), ..Claim::new(key.clone(), 1, Units::Exactly(1)).unwrap() };
        let next = Promotion { key, inbox: Inbox(5), seat: 7, token: 8, units: 1 };
        assert_eq!(passed("passed 7 8 1", &claim), Some(next));
        for odd in ["", "passed", "passed 7 8", "passed 7 8 x", "passed 7 8 1 2", "7 8 1"] {
            assert_eq!(passed(odd, &claim), None, "{odd}");
        }
    }

    #[test]
    fn a_proven_message_names_its_lock_whatever_it_is_called() {
        let (name, secret) = ("a b \0 \\", Secret::default());
        secret.set(Some(b"secret".to_vec()));
        let key = Key::new(name).unwrap();
        let proven = |inbox, body: &str| {
            format!("{body} {}", secret.proof(&names::channel(inbox), body).expect("there is a secret"))
        };
        let inbox = Inbox(5);
        let (body, look) =
            (format!("7 8 1 {}", names::encode(name)), format!("0 0 0 {}", names::encode(name)));
        let promotion = Promotion { key: key.clone(), inbox, seat: 7, token: 8, units: 1 };
        assert_eq!(heard(inbox, &proven(inbox, &body), &secret), Some(Heard::Promoted(promotion)));
        assert_eq!(heard(inbox, &proven(inbox, &look), &secret), Some(Heard::Look(key.clone())));
        let (elsewhere, forged) = (proven(Inbox(6), &body), format!("{body} 00"));
        for unproven in [elsewhere, forged, proven(inbox, &body).replacen('7', "6", 1)] {
            assert_eq!(heard(inbox, &unproven, &secret), Some(Heard::Unproven(key.clone())), "{unproven}");
        }
        // Without a secret nothing is proven.
        assert_eq!(heard(inbox, &proven(inbox, &body), &Secret::default()), Some(Heard::Unproven(key)));
        for odd in ["", "1", "1 2 3", "x y z k -", "1 2 3 \\x -"] {
            assert_eq!(heard(inbox, odd, &secret), None, "{odd}");
        }
    }
}
