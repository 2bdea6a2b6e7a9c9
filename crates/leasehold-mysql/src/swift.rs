//! What nearly all calls are, in one round trip: the claim of a lock that nobody uses, and the release of one that nobody else
//! uses. Whatever else is found is for [`step`](crate::step).
//!
//! The rule decides here as everywhere. About a lock that nobody uses it can be asked before the database is: only the time
//! and the number are missing, which the database puts in when the lock's row is ours.

use leasehold_core::rule;
use leasehold_core::{Answer, Book, Claim, ClaimId, Fence, Grant, Key, OpenBook, Result};
use tokio::time::{Instant, timeout_at};

use crate::dialect::Numbers;
use crate::fault::{Stop, is_null};
use crate::link::Link;
use crate::rows::{self, CLAIM, get};
use crate::sql::{NOW, bytes, with};

/// Stand for the time and the number until the database puts its own in.
const THEN: u64 = 1 << 40;
const DRAWN: u64 = 1 << 50;

/// Claims a lock if nobody uses it; `None` when somebody may.
pub(crate) async fn claim(link: &Link, claim: &Claim, until: Instant) -> Result<Option<Answer>> {
    let Some((sql, grant)) = sketch(claim) else { return Ok(None) };
    let mut wire = link.connected_for(&claim.key, until).await?;
    if link.dialect().numbers != Numbers::Sequence {
        wire.give_back();
        return Ok(None);
    }
    let said = timeout_at(until, wire.say(&with(&link.target.prefix, &sql))).await;
    let stop = match said {
        Ok(Ok(rows)) => {
            wire.give_back();
            let Some(row) = rows.first() else { return Ok(None) };
            let number = get::<i64>(row, 0)?.cast_unsigned();
            return Ok(Some(Answer::Granted(Grant { seat: number, token: number, ..grant })));
        }
        // It was refused, or its number was too small.
        Ok(Err(cause)) if is_null(&cause) => return Ok(None),
        Ok(Err(cause)) => Stop::after(cause),
        Err(_) => Stop::Unknown("no answer in time".to_owned()),
    };
    match stop {
        // It did not happen, and who asks again sees why.
        Stop::Again(_) | Stop::Failed(_) => Ok(None),
        unknown => Err(unknown.into_error().on(&claim.key)),
    }
}

/// The statements that claim a lock which nobody uses, and the answer, in which the number is missing.
fn sketch(claim: &Claim) -> Option<(String, Grant)> {
    if claim.quorum.is_some() {
        return None;
    }
    let (mut book, mut fence) = (Book::default(), Fence::above(DRAWN - 1));
    let asked = Claim { token_above: 0, ..claim.clone() };
    let said = rule::claim(&mut OpenBook::new(&claim.key, &mut book, &mut fence, 0), &asked, THEN).ok()?;
    let Answer::Granted(grant) = said.answer else { return None };
    let (head, row) = (book.head()?, book.rows().next()?);
    if (row.seat, row.token) != (DRAWN, DRAWN) {
        return None;
    }
    let (name, id) = (bytes(claim.key.as_str().as_bytes()), bytes(claim.id.as_bytes()));
    let time = |at: u64| if at < THEN { rows::number(at) } else { soon(at) };
    let drawn = |_| "LASTVAL(leasehold_numbers)".to_owned();
    // Nothing is written before it is known that the row was made here; and an error ends everything: no name may be null.
    let sql = format!(
        "START TRANSACTION; \
         INSERT INTO leasehold_keys VALUES ({name}, {}) ON DUPLICATE KEY UPDATE held = held; \
         INSERT INTO leasehold_claims (name, {CLAIM}, turn) SELECT \
         IF(EXISTS (SELECT 1 FROM leasehold_refusals WHERE id = {id}) OR NEXT VALUE FOR leasehold_numbers <= {}, NULL, {name}), \
         {} FROM leasehold_store WHERE format = 1 AND ROW_COUNT() = 1 RETURNING token; \
         COMMIT",
        rows::head_values(head, time),
        rows::number(claim.token_above),
        rows::values(row, time, drawn),
    );
    Some((sql, grant))
}

/// A time that is so long after the database's.
fn soon(at: u64) -> String {
    if at == u64::MAX { rows::number(at) } else { format!("{NOW} + {}", at - THEN) }
}

/// Releases a lock if this claim holds it and nobody else uses it. Says whether it was so.
pub(crate) async fn release(link: &Link, key: &Key, id: &ClaimId, until: Instant) -> Result<bool> {
    let mut wire = link.connected_for(key, until).await?;
    let said = timeout_at(until, wire.say(&with(&link.target.prefix, &alone(key, id)))).await;
    let stop = match said {
        Ok(Ok(_)) => {
            let removed = wire.affected();
            wire.give_back();
            return Ok(removed == 2);
        }
        Ok(Err(cause)) => Stop::after(cause),
        Err(_) => Stop::Unknown("no answer in time".to_owned()),
    };
    match stop {
        Stop::Again(_) | Stop::Failed(_) => Ok(false),
        unknown => Err(unknown.into_error().on(key)),
    }
}

/// Removes a lock and its only claim. What is over is for the rule, which knows of delays; so is what a quorum remembers.
fn alone(key: &Key, id: &ClaimId) -> String {
    let (name, id) = (bytes(key.as_str().as_bytes()), bytes(id.as_bytes()));
    format!(
        "DELETE k, c FROM leasehold_keys k STRAIGHT_JOIN leasehold_claims c ON c.name = k.name \
         WHERE k.name = {name} AND k.claims = 1 AND k.waiting = 0 AND k.effective = k.declared AND k.agreed_until = 0 \
         AND c.id = {id} AND c.held > 0 AND (c.expires IS NULL OR c.expires > {NOW})"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Units, WHOLE};

    use super::*;

    fn claims() -> Vec<Claim> {
        let new = |limit, units| Claim::new(Key::new("k").expect("a name"), limit, units).expect("it fits");
        vec![
            new(1, Units::Exactly(1)),
            new(5, Units::UpTo(9)),
            Claim { lock_delay: Duration::from_secs(5), ..new(5, Units::Exactly(2)) },
            Claim { lease: None, count: Some(3), ..new(WHOLE, Units::Exactly(WHOLE)) },
        ]
    }

    #[test]
    fn a_lock_with_one_claim_is_gone_after_its_release_by_the_rule_too() {
        for claim in claims() {
            let (mut book, mut fence) = (Book::default(), Fence::default());
            let mut ledger = OpenBook::new(&claim.key, &mut book, &mut fence, 0);
            rule::claim(&mut ledger, &claim, THEN).unwrap();
            rule::release(&mut ledger, &claim.id, None, THEN + 1).unwrap();
            assert!(book.is_empty(), "{claim:?}");
        }
    }

    #[test]
    fn everything_that_depends_on_the_database_is_left_to_it() {
        for claim in claims() {
            let (sql, grant) = sketch(&claim).expect("it can be granted");
            for stand_in in [THEN, DRAWN] {
                assert!(!sql.contains(&stand_in.to_string()), "{sql}");
            }
            assert_eq!((grant.seat, grant.token), (DRAWN, DRAWN));
        }
    }
}
