//! Renewing many at once: holders of locks that nobody waits for, which is most of them, in two round trips.
//!
//! Nobody is waited for: a row that others have their hands on is passed over, and is for the rule, so that it costs the other
//! claims nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Extend, Grant, Place, Result};
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
    /// It is for the rule. If that cannot decide in time, this is how the claim stood, and nothing was extended.
    Left(Answer),
}

/// Extends what can be extended like this.
pub(crate) async fn extend(link: &Link, claims: &[Claim]) -> Result<Vec<Extended>> {
    let mut groups: BTreeMap<u128, Vec<&Claim>> = BTreeMap::new();
    // What is only polled is for the rule, which extends nothing then.
    let is_plain = |claim: &&Claim| claim.quorum.is_none() && claim.extend == Extend::Lease;
    for claim in claims.iter().filter(is_plain) {
        if let Some(lease) = claim.lease {
            groups.entry(lease.as_nanos().div_ceil(1_000_000)).or_default().push(claim);
        }
    }
    let mut known = HashMap::new();
    for (lease, claims) in groups {
        extend_alike(link, lease, &claims, &mut known).await?;
    }
    let missed: Vec<&Claim> =
        claims.iter().filter(|claim| !known.contains_key(&claim.id.as_bytes()[..])).collect();
    if !missed.is_empty() {
        for row in link.read(&as_they_stand(&missed)).await? {
            known.insert(get(&row, 1)?, Extended::Left(stands(&row)?));
        }
    }
    // A renewal creates no claim: one that is not there is gone. A claim may be named twice.
    let gone = Extended::Done(Answer::Gone);
    let said = |claim: &Claim| known.get(&claim.id.as_bytes()[..]).unwrap_or(&gone).clone();
    Ok(claims.iter().map(said).collect())
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
        known.insert(get(row, 1)?, Extended::Done(Answer::Granted(grant(row)?)));
    }
    let taken: Vec<&Claim> =
        claims.iter().copied().filter(|claim| known.contains_key(&claim.id.as_bytes()[..])).collect();
    let mut sql = String::new();
    if let Some(now) = now {
        let those = those(&taken);
        sql += &format!(
            "UPDATE leasehold_claims c SET lease = GREATEST({lease}, expires - {now}), \
             expires = GREATEST(expires, {now} + {lease}) WHERE {those}; "
        );
    }
    sql += "COMMIT";
    say(link, &mut wire, &sql, until).await?;
    wire.give_back();
    Ok(())
}

/// What was committed last of these, without waiting for anybody.
fn as_they_stand(claims: &[&Claim]) -> String {
    format!(
        "SELECT {NOW} AS now, {COLUMNS}, c.expires - {NOW}, c.asked, c.held < c.wanted FROM leasehold_claims c \
         WHERE {}",
        those(claims)
    )
}

/// How one of them stands.
fn stands(row: &Row) -> Result<Answer> {
    let (grant, waits) = (grant(row)?, get::<i64>(row, 7)? > 0);
    let is_over = get::<Option<i64>>(row, 5)?.is_some_and(|left| left <= 0);
    Ok(match grant {
        Grant { units: 1.., .. } if is_over => Answer::Gone,
        // It has its place, though it may hold already and want more, or be late. Whether a late one keeps its place is for
        // the rule to say, as soon as it has the row.
        Grant { seat, units: held, .. } if waits => {
            Answer::Waiting(Place { seat, ahead: 1, look_in: LOOK_IN, held, lease: None })
        }
        grant => Answer::Granted(Grant { lease: None, ..grant }),
    })
}

/// When to ask again about a place that could not be extended.
const LOOK_IN: Duration = Duration::from_secs(1);

/// What a grant is made of, before the length of its lease.
const COLUMNS: &str = "c.id, c.seat, c.token, c.held";

fn grant(row: &Row) -> Result<Grant> {
    let number = |at| get::<i64>(row, at).map(i64::cast_unsigned);
    let lease = get::<Option<i64>>(row, 5)?.map(|left| Duration::from_millis(left.max(0).cast_unsigned()));
    let [seat, token, units] = [number(2)?, number(3)?, number(4)?];
    Ok(Grant { seat, token, units, lease, asked: number(6)? > 0 })
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
