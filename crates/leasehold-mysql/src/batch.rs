//! Renewing many at once: holders of locks that nobody waits for, which is most of them, in two round trips.
//!
//! Nobody is waited for: a row that others have their hands on is passed over, and is for the rule, so that it costs the other
//! claims nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Grant, Result};
use mysql_async::Row;
use tokio::time::{Instant, timeout_at};

use crate::fault::{Stop, is_missing};
use crate::link::{Link, Wire};
use crate::rows::get;
use crate::sql::{NOW, bytes, list, with};

/// What became of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Extended {
    Done(Answer),
    /// It is for the rule. If that cannot decide in time, this is how the claim stood, unless it waits: with what is left of its
    /// lease.
    Left(Option<Answer>),
}

/// Extends what can be extended like this.
pub(crate) async fn extend(link: &Link, claims: &[Claim]) -> Result<Vec<Extended>> {
    let mut groups: BTreeMap<u128, Vec<&Claim>> = BTreeMap::new();
    for claim in claims.iter().filter(|claim| claim.quorum.is_none()) {
        if let Some(lease) = claim.lease {
            groups.entry(lease.as_nanos().div_ceil(1_000_000)).or_default().push(claim);
        }
    }
    let mut known = HashMap::new();
    for (lease, claims) in groups {
        extend_alike(link, lease, &claims, &mut known).await?;
    }
    let left = |claim: &Claim| known.remove(&claim.id.as_bytes()[..]).unwrap_or(Extended::Left(None));
    Ok(claims.iter().map(left).collect())
}

/// Extends claims with the same lease.
async fn extend_alike(
    link: &Link,
    lease: u128,
    claims: &[&Claim],
    known: &mut HashMap<Vec<u8>, Extended>,
) -> Result<()> {
    let until = link.deadline();
    let mut wire = link.connected(until).await?;
    let taken = say(link, &mut wire, &take(lease, claims), until).await?;
    let now = taken.first().map(|row| get::<i64>(row, 0)).transpose()?;
    for row in &taken {
        known.insert(get(row, 1)?, Extended::Done(grant(row)?));
    }
    let (taken, missed): (Vec<&Claim>, Vec<&Claim>) =
        claims.iter().partition(|claim| known.contains_key(&claim.id.as_bytes()[..]));
    let mut sql = String::new();
    if let Some(now) = now {
        let those = those(&taken);
        sql += &format!(
            "UPDATE leasehold_claims c SET lease = {lease}, expires = GREATEST(expires, {now} + {lease}) WHERE {those}; "
        );
    }
    sql += "COMMIT";
    if !missed.is_empty() {
        // Without waiting for anybody: what was committed last.
        sql += &format!(
            "; SELECT {NOW} AS now, {COLUMNS}, c.expires - {NOW}, c.asked FROM leasehold_claims c \
             WHERE {} AND c.held = c.wanted",
            those(&missed)
        );
    }
    for row in say(link, &mut wire, &sql, until).await? {
        let is_over = get::<i64>(&row, 5)? <= 0;
        let stands = if is_over { Answer::Gone } else { grant(&row)? };
        known.insert(get(&row, 1)?, Extended::Left(Some(stands)));
    }
    wire.give_back();
    Ok(())
}

/// What a grant is made of, before the length of its lease.
const COLUMNS: &str = "c.id, c.seat, c.token, c.held";

fn grant(row: &Row) -> Result<Answer> {
    let number = |at| get::<i64>(row, at).map(i64::cast_unsigned);
    let lease = Some(Duration::from_millis(number(5)?));
    let [seat, token, units] = [number(2)?, number(3)?, number(4)?];
    Ok(Answer::Granted(Grant { seat, token, units, lease, asked: number(6)? > 0 }))
}

/// Takes the rows of the locks with their claims, in the order of their names. What is over at this moment stays over.
fn take(lease: u128, claims: &[&Claim]) -> String {
    // No update of both tables at once: the server would make a table on its disk for that.
    format!(
        "START TRANSACTION; SELECT {NOW} AS now, {COLUMNS}, GREATEST(c.expires - {NOW}, {lease}), c.asked \
         FROM leasehold_keys k STRAIGHT_JOIN leasehold_claims c ON c.name = k.name \
         WHERE k.name IN ({}) AND k.waiting = 0 AND c.id IN ({}) AND c.held > 0 AND c.expires > {NOW} \
         FOR UPDATE SKIP LOCKED",
        names(claims),
        ids(claims)
    )
}

fn those(claims: &[&Claim]) -> String {
    // Not pairs of both, which take seconds where there are a thousand.
    format!("c.name IN ({}) AND c.id IN ({})", names(claims), ids(claims))
}

fn names(claims: &[&Claim]) -> String {
    list(claims.iter().map(|claim| bytes(claim.key.as_str().as_bytes())))
}

fn ids(claims: &[&Claim]) -> String {
    list(claims.iter().map(|claim| bytes(claim.id.as_bytes())))
}

async fn say(link: &Link, wire: &mut Wire<'_>, sql: &str, until: Instant) -> Result<Vec<Row>> {
    let said = timeout_at(until, wire.say(&with(&link.target.prefix, sql))).await;
    let said = said.unwrap_or_else(|_| Err(mysql_async::Error::Other("no answer in time".into())));
    // Extended or not: whoever is not sure asks again.
    said.map_err(|cause| {
        if is_missing(&cause) {
            link.forget();
        }
        Stop::after(cause).into_error()
    })
}
