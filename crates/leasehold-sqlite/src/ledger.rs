//! One key's rows, as the rule asks for them. It fetches and writes; it decides nothing.

use leasehold_core::rule::{Head, Ledger, Row};
use leasehold_core::{ClaimId, Inbox, Key, Result};
use rusqlite::{CachedStatement, OptionalExtension, Params, params};

use crate::fault::explain;
use crate::step::Step;

/// Times at or beyond this are "never": far enough from the end of the range that two can be added.
const NEVER: u64 = i64::MAX.unsigned_abs() / 2;

macro_rules! claims {
    ($rest:literal) => {
        concat!(
            "SELECT id, seat, token, held, wanted, least, since, lease, patience, expires, lock_delay, ",
            "inbox, label, value, count, given, asked FROM leasehold WHERE key = ?1 AND ",
            $rest
        )
    };
}

/// The rows of one key inside a step.
#[derive(Debug)]
pub(crate) struct Rows<'s, 'c> {
    key: &'s Key,
    step: &'s mut Step<'c>,
    /// Whether the operation goes on if no number can be drawn.
    needs_no_number: bool,
    /// The limit that a resize left in force, as last read.
    resized: Option<(u64, u64)>,
}

impl<'s, 'c> Rows<'s, 'c> {
    pub(crate) fn new(key: &'s Key, step: &'s mut Step<'c>) -> Self {
        Self { key, step, needs_no_number: false, resized: None }
    }

    /// Lets the operation go on if no number can be drawn: it grants nothing, and the next number is larger anyway.
    pub(crate) fn needs_no_number(&mut self) {
        self.needs_no_number = true;
    }

    fn name(&self) -> &'s [u8] {
        self.key.as_str().as_bytes()
    }

    fn prepare(&self, sql: &str) -> Result<CachedStatement<'c>> {
        self.step.connection.prepare_cached(sql).map_err(explain)
    }

    fn first(&self, sql: &str, params: impl Params) -> Result<Option<Row>> {
        self.prepare(sql)?.query_row(params, row_of).optional().map_err(explain)
    }

    fn all(&self, sql: &str, params: impl Params) -> Result<Vec<Row>> {
        let mut query = self.prepare(sql)?;
        let rows = query.query_map(params, row_of).map_err(explain)?;
        rows.collect::<rusqlite::Result<_>>().map_err(explain)
    }

    fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.prepare(sql)?.execute(params).map_err(explain)
    }
}

impl Ledger for Rows<'_, '_> {
    fn key(&self) -> &Key {
        self.key
    }

    fn head(&mut self) -> Result<Option<Head>> {
        let mut query = self.prepare(
            "SELECT declared, effective, held, claims, waiting, quiet_until, last, last_until
             FROM leasehold WHERE key = ?1 AND id = x''",
        )?;
        let head = query.query_row([self.name()], head_of).optional().map_err(explain)?;
        self.resized = head.as_ref().and_then(resized);
        Ok(head)
    }

    fn put_head(&mut self, head: Option<&Head>) -> Result<()> {
        // A limit that somebody set outlives all processes, so it must outlive a power cut.
        let resized = head.and_then(resized);
        if resized != self.resized {
            self.step.needs_sync();
            self.resized = resized;
        }
        let Some(head) = head else {
            self.execute("DELETE FROM leasehold WHERE key = ?1 AND id = x''", [self.name()])?;
            return Ok(());
        };
        self.execute(
            "INSERT OR REPLACE INTO leasehold (key, id, declared, effective, held, claims, waiting, quiet_until, last,
                last_until)
             VALUES (?1, x'', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                self.name(),
                number(head.limit),
                number(head.effective),
                number(head.held),
                number(head.claims),
                number(head.waiting),
                time(head.quiet_until),
                (head.last > 0).then(|| number(head.last)),
                (head.last > 0).then(|| time(head.last_until))
            ],
        )?;
        Ok(())
    }

    fn row(&mut self, id: &ClaimId) -> Result<Option<Row>> {
        self.first(claims!("id = ?2"), params![self.name(), id.as_bytes()])
    }

    fn holder(&mut self, token: u64) -> Result<Option<Row>> {
        self.first(claims!("id > x'' AND held > 0 AND token = ?2"), params![self.name(), number(token)])
    }

    fn put(&mut self, row: &Row) -> Result<()> {
        if outlives_its_process(row) {
            self.step.needs_sync();
        }
        let given: Vec<u8> = row.given.iter().flat_map(|op| op.to_le_bytes()).collect();
        self.execute(
            "INSERT OR REPLACE INTO leasehold (key, id, seat, token, held, wanted, least, since, lease, patience,
                expires, lock_delay, inbox, label, value, count, given, turn, asked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
            params![
                self.name(),
                row.id.as_bytes(),
                number(row.seat),
                number(row.token),
                number(row.held),
                number(row.wanted),
                number(row.least),
                time(row.since),
                row.lease.map(time),
                time(row.patience),
                row.expires.map(time),
                time(row.lock_delay),
                row.inbox.0.cast_signed(),
                &*row.label,
                (!row.value.is_empty()).then_some(&*row.value),
                row.count.map(number),
                (!given.is_empty()).then_some(given),
                turn(row),
                row.asked.then_some(1)
            ],
        )?;
        Ok(())
    }

    fn remove(&mut self, row: &Row) -> Result<()> {
        if row.expires.is_none() {
            self.step.needs_sync();
        }
        self.execute(
            "DELETE FROM leasehold WHERE key = ?1 AND id = ?2",
            params![self.name(), row.id.as_bytes()],
        )?;
        Ok(())
    }

    fn front(&mut self, effective: u64, now: u64) -> Result<Option<Row>> {
        if !self.step.fence.has_number(self.step.wall()) {
            // Nobody can be granted anything now. An error would keep holders from releasing.
            return Ok(None);
        }
        self.first(
            claims!("turn IS NOT NULL AND (least <= ?2 OR held = 0 AND expires <= ?3) ORDER BY turn LIMIT 1"),
            params![self.name(), number(effective), time(now)],
        )
    }

    fn ahead(&mut self, row: &Row, at_most: u64) -> Result<u64> {
        let mut query = self.prepare(
            "SELECT count(*) FROM (SELECT 1 FROM leasehold WHERE key = ?1 AND turn IS NOT NULL AND turn < ?2 LIMIT ?3)",
        )?;
        let count =
            query.query_row(params![self.name(), rank(row), number(at_most)], |row| row.get::<_, i64>(0));
        count.map(i64::cast_unsigned).map_err(explain)
    }

    // Holders have no index by their end: it would cost every uncontended claim a page. The head's
    // `quiet_until` keeps these two scans to one per lease.
    fn ended(&mut self, now: u64, at_most: usize) -> Result<Vec<Row>> {
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let sql = claims!(
            "id > x'' AND held > 0 AND expires + lock_delay <= ?2 ORDER BY expires + lock_delay, id LIMIT ?3"
        );
        self.all(sql, params![self.name(), time(now), at_most])
    }

    fn next_end(&mut self) -> Result<Option<u64>> {
        let mut query = self.prepare(
            "SELECT min(expires + lock_delay) FROM leasehold WHERE key = ?1 AND id > x'' AND held > 0",
        )?;
        let at = query.query_row([self.name()], |row| row.get::<_, Option<i64>>(0)).map_err(explain)?;
        Ok(at.map(past))
    }

    fn rows(&mut self) -> Result<Vec<Row>> {
        self.all(claims!("id > x''"), [self.name()])
    }

    fn refuse(&mut self, id: &ClaimId, until: u64) -> Result<()> {
        let sql = "INSERT INTO leasehold (key, id, expires) VALUES (x'', ?1, ?2) ON CONFLICT DO NOTHING";
        let added = self.execute(sql, params![id.as_bytes(), time(until)])?;
        if added == 0 {
            let sql = "UPDATE leasehold SET expires = ?2 WHERE key = x'' AND id = ?1";
            self.execute(sql, params![id.as_bytes(), time(until)])?;
        }
        self.step.fence.refusals += added as u64;
        self.step.fence.touch();
        Ok(())
    }

    fn is_refused(&mut self, id: &ClaimId, now: u64) -> Result<bool> {
        if self.step.fence.refusals == 0 {
            return Ok(false);
        }
        let mut query =
            self.prepare("SELECT 1 FROM leasehold WHERE key = x'' AND id = ?1 AND expires > ?2")?;
        query.exists(params![id.as_bytes(), time(now)]).map_err(explain)
    }

    fn number(&mut self, above: u64) -> Result<u64> {
        let wall = self.step.wall();
        if self.needs_no_number && !self.step.fence.has_number(wall) {
            return Ok(above);
        }
        let (number, needs_sync) =
            self.step.fence.number(above, wall).map_err(|e| e.on(self.key).at("sqlite"))?;
        if needs_sync {
            self.step.needs_sync();
        }
        Ok(number)
    }

    fn born(&mut self) -> Result<u64> {
        Ok(self.step.fence.born)
    }
}

/// Whether nobody is there to miss it when a power cut undoes it: a latch, or the tail of a job.
fn outlives_its_process(row: &Row) -> bool {
    row.expires.is_none() || row.id == ClaimId::ownerless(row.seat)
}

fn resized(head: &Head) -> Option<(u64, u64)> {
    (head.effective != head.limit).then_some((head.limit, head.effective))
}

/// The order of the queue as one number: who holds already and wants more comes first, then by seat.
fn rank(row: &Row) -> i64 {
    let seat = number(row.seat);
    if row.held > 0 { seat + i64::MIN } else { seat }
}

fn turn(row: &Row) -> Option<i64> {
    row.waits().then(|| rank(row))
}

/// A count, token or limit. All that the rule makes are far below the end of the range.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn time(value: u64) -> i64 {
    value.min(NEVER).cast_signed()
}

fn past(stored: i64) -> u64 {
    let value = stored.cast_unsigned();
    if value < NEVER { value } else { u64::MAX }
}

fn head_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Head> {
    let number = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(Head {
        limit: number(0)?,
        effective: number(1)?,
        held: number(2)?,
        claims: number(3)?,
        waiting: number(4)?,
        quiet_until: past(row.get(5)?),
        last: row.get::<_, Option<i64>>(6)?.unwrap_or(0).cast_unsigned(),
        last_until: row.get::<_, Option<i64>>(7)?.map_or(0, past),
    })
}

fn row_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let number = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
    let perhaps = |at| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(i64::cast_unsigned));
    let given = row.get_ref(15)?.as_blob_or_null()?.unwrap_or_default();
    Ok(Row {
        id: ClaimId::from_bytes(row.get(0)?),
        seat: number(1)?,
        token: number(2)?,
        held: number(3)?,
        wanted: number(4)?,
        least: number(5)?,
        since: number(6)?,
        lease: perhaps(7)?,
        patience: number(8)?,
        expires: perhaps(9)?,
        lock_delay: number(10)?,
        inbox: Inbox(number(11)?),
        label: row.get_ref(12)?.as_str()?.into(),
        value: row.get_ref(13)?.as_blob_or_null()?.unwrap_or_default().into(),
        count: perhaps(14)?,
        given: given.as_chunks().0.iter().map(|op| u64::from_le_bytes(*op)).collect(),
        asked: row.get::<_, Option<i64>>(16)?.is_some(),
    })
}

#[cfg(test)]
mod tests;
