//! What nearly all calls are, in one round trip: the claim of a lock that nobody uses, and the release of one that nobody else
//! uses. Whatever else is found is for [`step`](crate::step).

use leasehold_core::{ClaimId, Key, Result};
use tokio::time::{Instant, timeout_at};

use crate::crowd::Said;
use crate::dialect::Numbers;
use crate::fault::{Stop, is_null};
use crate::link::Link;
use crate::rows::{self, CLAIM, get};
use crate::sketch::Sketch;
use crate::sql::{NOW, bytes, with};

/// Claims a lock if nobody uses it.
pub(crate) async fn claim(link: &Link, sketch: &Sketch, until: Instant) -> Result<Said> {
    let mut wire = link.connected(until).await?;
    if link.dialect().numbers != Numbers::Sequence {
        wire.give_back();
        return Ok(Said::NotSo);
    }
    let said = timeout_at(until, wire.say(&with(&link.target.prefix, &statements(sketch)))).await;
    let stop = match said {
        Ok(Ok(rows)) => {
            wire.give_back();
            let Some(row) = rows.first() else { return Ok(Said::NotSo) };
            return Ok(Said::Granted(sketch.granted(get::<i64>(row, 0)?.cast_unsigned())));
        }
        // It was refused, or its number was too small.
        Ok(Err(cause)) if is_null(&cause) => return Ok(Said::NotSo),
        Ok(Err(cause)) => Stop::after(cause),
        Err(_) => Stop::Unknown("no answer in time".to_owned()),
    };
    after(stop, &sketch.key)
}

/// The statements that claim a lock which nobody uses. The database puts the time and the number in.
fn statements(sketch: &Sketch) -> String {
    let (name, id) = (sketch.name(), bytes(sketch.id().as_bytes()));
    // Nothing is written before it is known that the row was made here; and an error ends everything: no name may be null.
    format!(
        "START TRANSACTION; \
         INSERT INTO leasehold_keys VALUES ({name}, {}) ON DUPLICATE KEY UPDATE held = held; \
         INSERT INTO leasehold_claims (name, {CLAIM}, turn) SELECT \
         IF(EXISTS (SELECT 1 FROM leasehold_refusals WHERE id = {id}) OR NEXT VALUE FOR leasehold_numbers <= {}, NULL, {name}), \
         {} FROM leasehold_store WHERE format = 1 AND ROW_COUNT() = 1 RETURNING token; \
         COMMIT",
        sketch.head(),
        rows::number(sketch.above),
        sketch.row("LASTVAL(leasehold_numbers)"),
    )
}

/// Releases a lock if this claim holds it and nobody else uses it.
pub(crate) async fn release(link: &Link, key: &Key, id: &ClaimId, until: Instant) -> Result<Said> {
    let mut wire = link.connected(until).await?;
    let (name, id) = (bytes(key.as_str().as_bytes()), bytes(id.as_bytes()));
    let sql = format!("DELETE k, c {}", lonely(&name, &id));
    let said = timeout_at(until, wire.say(&with(&link.target.prefix, &sql))).await;
    let stop = match said {
        Ok(Ok(_)) => {
            let removed = wire.affected();
            wire.give_back();
            return Ok(if removed == 2 { Said::Released } else { Said::NotSo });
        }
        Ok(Err(cause)) => Stop::after(cause),
        Err(_) => Stop::Unknown("no answer in time".to_owned()),
    };
    after(stop, key)
}

fn after(stop: Stop, key: &Key) -> Result<Said> {
    match stop {
        // It did not happen, and who asks again sees why.
        Stop::Again(_) | Stop::Failed(_) => Ok(Said::NotSo),
        unknown => Err(unknown.into_error().on(key)),
    }
}

/// Locks and their claims, by name. Where few are left the server would rather read all of them, and lock those of others.
pub(crate) const BOTH: &str = "FROM leasehold_keys k FORCE INDEX (PRIMARY) \
                               STRAIGHT_JOIN leasehold_claims c FORCE INDEX (PRIMARY) ON c.name = k.name";

/// From these locks and claims those that hold and are the only ones of their lock: nothing is left when both are removed. What
/// is over is for the rule, which knows of delays; so is what a quorum remembers.
pub(crate) fn lonely(names: &str, ids: &str) -> String {
    format!(
        "{BOTH} \
         WHERE k.name IN ({names}) AND k.claims = 1 AND k.waiting = 0 AND k.effective = k.declared AND k.agreed_until = 0 \
         AND c.id IN ({ids}) AND c.held > 0 AND (c.expires IS NULL OR c.expires > {NOW})"
    )
}
