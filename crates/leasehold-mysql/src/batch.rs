//! Renewing many at once: holders of locks that nobody waits for, which is most of them, in one round trip.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Grant, Result};
use mysql_async::Row;
use tokio::time::{Instant, timeout_at};

use crate::fault::Stop;
use crate::link::Link;
use crate::rows::get;
use crate::sql::{bytes, list, with};

/// One answer for each claim that could be extended like this; the others are for the rule.
pub(crate) async fn extend(link: &Link, claims: &[Claim]) -> Result<Vec<Option<Answer>>> {
    let mut groups: BTreeMap<u128, Vec<&Claim>> = BTreeMap::new();
    for claim in claims.iter().filter(|claim| claim.quorum.is_none()) {
        if let Some(lease) = claim.lease {
            groups.entry(lease.as_nanos().div_ceil(1_000_000)).or_default().push(claim);
        }
    }
    let mut extended = HashMap::new();
    for (lease, claims) in groups {
        for row in say(link, &question(lease, &claims)).await? {
            if get::<String>(&row, 0)? == "c" && get::<i64>(&row, 7)? > 0 {
                extended.insert(get::<Vec<u8>>(&row, 1)?, grant(&row)?);
            }
        }
    }
    Ok(claims.iter().map(|claim| extended.remove(&claim.id.as_bytes()[..])).collect())
}

fn grant(row: &Row) -> Result<Answer> {
    let number = |at| get::<i64>(row, at).map(i64::cast_unsigned);
    let lease = Some(Duration::from_millis(number(5)?));
    Ok(Answer::Granted(Grant {
        seat: number(2)?,
        token: number(3)?,
        units: number(4)?,
        lease,
        asked: number(6)? > 0,
    }))
}

/// Takes the rows of all locks, always in the same order, then extends and looks.
fn question(lease: u128, claims: &[&Claim]) -> String {
    let names = list(claims.iter().map(|claim| bytes(claim.key.as_str().as_bytes())));
    let ids = list(claims.iter().map(|claim| bytes(claim.id.as_bytes())));
    // Pairs of names and ids, or a join of the two tables, would be tried one by one: a hundred times slower. No id is twice.
    let these = format!("c.name IN ({names}) AND c.id IN ({ids})");
    let held = "c.held > 0 AND (SELECT k.waiting FROM leasehold_keys k WHERE k.name = c.name) = 0";
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; \
         SELECT 'k' FROM leasehold_keys WHERE name IN ({names}) ORDER BY name FOR UPDATE; \
         SET @now = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED); \
         UPDATE leasehold_claims c SET c.lease = {lease}, c.expires = GREATEST(c.expires, @now + {lease}) \
         WHERE {these} AND {held} AND c.expires > @now; \
         SELECT 'c', c.id, c.seat, c.token, c.held, c.expires - @now, c.asked, {held} AND c.expires >= @now + {lease} \
         FROM leasehold_claims c WHERE {these}; COMMIT"
    )
}

async fn say(link: &Link, sql: &str) -> Result<Vec<Row>> {
    let until = Instant::now() + link.target.timeout;
    let mut wire = link.connected(until).await?;
    let said = timeout_at(until, wire.say(&with(&link.target.prefix, sql))).await;
    let said = said.unwrap_or_else(|_| Err(mysql_async::Error::Other("no answer in time".into())));
    match said {
        Ok(rows) => {
            wire.give_back();
            Ok(rows)
        }
        // Extended or not: whoever is not sure asks again.
        Err(cause) => Err(Stop::after(cause).into_error()),
    }
}
