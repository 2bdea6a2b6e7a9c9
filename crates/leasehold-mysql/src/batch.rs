//! Renewing many at once: holders of locks that nobody waits for, which is most of them, in one round trip.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Grant, Result};
use mysql_async::Row;
use tokio::time::timeout_at;

use crate::fault::{Stop, is_missing};
use crate::link::Link;
use crate::rows::get;
use crate::sql::{NOW, bytes, list, with};

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
            extended.insert(get::<Vec<u8>>(&row, 0)?, grant(&row)?);
        }
    }
    Ok(claims.iter().map(|claim| extended.remove(&claim.id.as_bytes()[..])).collect())
}

fn grant(row: &Row) -> Result<Answer> {
    let number = |at| get::<i64>(row, at).map(i64::cast_unsigned);
    let lease = Some(Duration::from_millis(number(4)?));
    let [seat, token, units] = [number(1)?, number(2)?, number(3)?];
    Ok(Answer::Granted(Grant { seat, token, units, lease, asked: number(5)? > 0 }))
}

/// Takes the rows of all locks, in the order of their names, with their claims; then extends what it has taken. Both go by the
/// time before: what is over at that moment stays over.
fn question(lease: u128, claims: &[&Claim]) -> String {
    let names = list(claims.iter().map(|claim| bytes(claim.key.as_str().as_bytes())));
    let ids = list(claims.iter().map(|claim| bytes(claim.id.as_bytes())));
    // No update of both tables at once: the server would make a table on its disk for that.
    format!(
        "SET @now = {NOW}; START TRANSACTION; \
         SELECT c.id, c.seat, c.token, c.held, GREATEST(c.expires - @now, {lease}), c.asked \
         FROM leasehold_keys k STRAIGHT_JOIN leasehold_claims c ON c.name = k.name \
         WHERE k.name IN ({names}) AND k.waiting = 0 AND c.id IN ({ids}) AND c.held > 0 AND c.expires > @now FOR UPDATE; \
         UPDATE leasehold_claims c SET c.lease = {lease}, c.expires = GREATEST(c.expires, @now + {lease}) \
         WHERE c.name IN ({names}) AND c.id IN ({ids}) AND c.held > 0 AND c.expires > @now \
         AND (SELECT k.waiting FROM leasehold_keys k WHERE k.name = c.name) = 0; \
         COMMIT"
    )
}

async fn say(link: &Link, sql: &str) -> Result<Vec<Row>> {
    let until = link.deadline();
    let mut wire = link.connected(until).await?;
    let said = timeout_at(until, wire.say(&with(&link.target.prefix, sql))).await;
    let said = said.unwrap_or_else(|_| Err(mysql_async::Error::Other("no answer in time".into())));
    match said {
        Ok(rows) => {
            wire.give_back();
            Ok(rows)
        }
        // Extended or not: whoever is not sure asks again.
        Err(cause) => {
            if is_missing(&cause) {
                link.forget();
            }
            Err(Stop::after(cause).into_error())
        }
    }
}
