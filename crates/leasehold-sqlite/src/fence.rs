//! The fence: the one row that all keys share, and the numbers drawn from it.
//!
//! Numbers are hybrid: above the last one, and at least the wall clock in microseconds. A power cut may undo the last
//! commits of the default mode, so numbers are also reserved: those up to `ceiling` belong to this boot, the ceiling is
//! raised by a synced commit, and the next boot starts above it.
//!
//! The ceiling is never raised further than [`BOUND`] ahead of the wall clock, no matter how often the machine boots, and
//! a new file starts there. So tokens rise even if the file is lost. If the next number would pass the bound, because the
//! clock was set back, there is none until the clock has caught up. Until then no claim is granted. Holders renew and
//! release as usual.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Clock, Error, ErrorKind, Moment, Result};
use rusqlite::{Connection, params};

use crate::epoch::Epoch;
use crate::fault::explain;

/// How far numbers may be ahead of the wall clock, in microseconds. A synced commit reserves them up to here, so a clock
/// that is right owes at most one such commit a minute. After a boot the ceiling is reached sooner: each synced commit
/// then reserves as many numbers as microseconds have passed since the last one, which soon is more than anyone draws.
const BOUND: u64 = 60_000_000;

/// The fence as read at the start of a step.
#[derive(Debug)]
pub(crate) struct Fence {
    last: u64,
    ceiling: u64,
    /// When it was last written, by the clock of its epoch.
    pub(crate) stamp: u64,
    /// Since when the file has forgotten nothing: a power cut may undo the last commits.
    pub(crate) born: u64,
    pub(crate) refusals: u64,
    /// Whether its times are by our clock.
    pub(crate) is_ours: bool,
    is_changed: bool,
}

impl Fence {
    pub(crate) fn read(connection: &Connection, epoch: &Epoch, now: u64) -> rusqlite::Result<Self> {
        let mut query = connection.prepare_cached(
            "SELECT last, ceiling, stamp, refusals, epoch, born FROM leasehold WHERE key = x'' AND id = x''",
        )?;
        query.query_row([], |row| {
            let number = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
            let stamp = number(2)?;
            Ok(Self {
                last: number(0)?,
                ceiling: number(1)?,
                stamp,
                refusals: number(3)?,
                is_ours: epoch.covers(row.get_ref(4)?.as_str()?, stamp, now),
                born: number(5)?,
                is_changed: false,
            })
        })
    }

    /// The next number above `above` when the wall clock shows `wall`, or how long to wait until there is one.
    fn next(&self, above: u64, wall: u64) -> Result<u64, Duration> {
        let most = wall.saturating_add(BOUND);
        // Without a record of the last number, one may have been given out up to the bound.
        let least = if self.last == 0 { most } else { wall };
        let next = self.last.max(above).saturating_add(1).max(least);
        match next <= self.ceiling.max(most) {
            true => Ok(next),
            false => Err(Duration::from_millis((next - most).div_ceil(1_000))),
        }
    }

    /// Whether a number can be drawn when the wall clock shows `wall`.
    pub(crate) fn has_number(&self, wall: u64) -> bool {
        self.next(0, wall).is_ok()
    }

    /// Draws the next number when the wall clock shows `wall`. `true` when the step must be synced for it.
    pub(crate) fn number(&mut self, above: u64, wall: u64) -> Result<(u64, bool)> {
        let next = self.next(above, wall).map_err(|wait| {
            let message = format!(
                "the next token would be more than 60 s ahead of the wall clock, which was perhaps set back: \
                 set the clock right, or wait {wait:?}"
            );
            Error::new(ErrorKind::Unavailable, message)
        })?;
        self.last = next;
        self.is_changed = true;
        let beyond = next > self.ceiling;
        if beyond {
            self.ceiling = wall.saturating_add(BOUND);
        }
        Ok((next, beyond))
    }

    /// Makes sure that the row is written at the end of the step, with its stamp.
    pub(crate) fn touch(&mut self) {
        self.is_changed = true;
    }

    /// Writes it back if anything changed.
    pub(crate) fn write(&self, connection: &Connection, now: u64) -> Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let mut update = connection
            .prepare_cached(
                "UPDATE leasehold SET last = ?1, ceiling = ?2, stamp = ?3, refusals = ?4 WHERE key = x'' AND id = x''",
            )
            .map_err(explain)?;
        let numbers = [self.last, self.ceiling, now, self.refusals].map(u64::cast_signed);
        update.execute(params![numbers[0], numbers[1], numbers[2], numbers[3]]).map_err(explain)?;
        Ok(())
    }

    /// Translates everything in the file to our clock.
    ///
    /// The owners may be dead (the machine was rebooted) or alive (another clock on the same file), so
    /// nothing is over: what was left of each lease when the file last changed is left of it now. Never
    /// early, because at least that long a time has passed for its owner; and an owner that still lives
    /// meets a foreign epoch at its next renewal.
    pub(crate) fn adopt(&mut self, connection: &Connection, epoch: &Epoch, now: u64) -> Result<()> {
        // An owner's lease is also never longer than itself: the stamp can be older than the last renewal.
        // A tail (its id starts with eight zeros) has no lease of its own any more.
        connection
            .execute(
                "UPDATE leasehold SET
                    since = max(0, since + ?1 - ?2),
                    quiet_until = 0,
                    last_until = max(0, last_until + ?1 - ?2),
                    expires = max(0, ?1 + CASE
                        WHEN key = x'' OR substr(id, 1, 8) = zeroblob(8) THEN expires - ?2
                        WHEN held > 0 THEN min(expires - ?2, lease)
                        ELSE min(expires - ?2, patience) END)
                 WHERE NOT (key = x'' AND id = x'')",
                params![now.cast_signed(), self.stamp.cast_signed()],
            )
            .map_err(explain)?;
        connection
            .execute(
                "UPDATE leasehold SET epoch = ?1, born = ?2 WHERE key = x'' AND id = x''",
                params![epoch.as_str(), now.cast_signed()],
            )
            .map_err(explain)?;
        self.born = now;
        // What was given out after the last synced commit may be forgotten; what was reserved is not.
        self.last = self.last.max(self.ceiling);
        self.is_ours = true;
        self.is_changed = true;
        Ok(())
    }
}

/// The machine's wall clock. Unlike other clocks it can be set back.
#[derive(Debug)]
pub(crate) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
