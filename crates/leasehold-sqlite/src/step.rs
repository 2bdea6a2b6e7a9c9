//! One atomic step on the file: a transaction, the time it happens at, and whom to tell afterwards.

use leasehold_core::rule::{self, Outcome};
use leasehold_core::{Error, ErrorKind, Inbox, Key, Promotion, Result};
use rusqlite::{Connection, params};

use crate::fault::{Stop, explain};
use crate::fence::Fence;
use crate::format;
use crate::ledger::Rows;
use crate::place::Identity;
use crate::settings::{Settings, SyncMode};

/// How many rows one sweep looks at.
const SWEPT: i64 = 500;
/// After how many commits the log should be looked at and dead keys swept.
const TIDY_EVERY: u64 = 256;

/// What a step is allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Look. Never waits for writers.
    Read,
    /// Change, as durably as the settings say.
    Write,
    /// Change, on the disk before it is answered.
    Synced,
}

/// Whom to tell after the commit.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) promoted: Vec<Promotion>,
    pub(crate) look: Vec<(Inbox, Key)>,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) connection: Connection,
    settings: Settings,
    /// Whether the file was once seen under our epoch. If it is under another one later, both are alive.
    joined: bool,
    file: Identity,
    /// When we last looked whether the path leads to it.
    looked: u64,
    /// Since the last tidying.
    commits: u64,
}

impl Desk {
    pub(crate) fn new(connection: Connection, file: Identity, settings: Settings) -> Self {
        Self { connection, settings, joined: false, file, looked: 0, commits: 0 }
    }

    /// Whether the file was seen under our clock.
    pub(crate) fn has_joined(&self) -> bool {
        self.joined
    }

    /// Whether the path leads to another file by now. In ours we are alone.
    pub(crate) fn has_moved(&self) -> bool {
        matches!(self.file.confirm(), Err(Stop::Moved))
    }

    /// Looks whether the path leads to the file, once a millisecond: a system call for every transaction would be a twelfth
    /// of its time, and a transaction takes no less from its look to its commit.
    fn confirm_file(&mut self) -> Result<(), Stop> {
        let now = self.settings.clock.now().as_millis();
        if now != self.looked {
            self.file.confirm()?;
            self.looked = now;
        }
        Ok(())
    }

    pub(crate) fn is_untidy(&self) -> bool {
        self.commits >= TIDY_EVERY
    }

    pub(crate) fn note_tidied(&mut self) {
        self.commits = 0;
    }

    /// Runs `body` in a transaction, completely or not at all.
    pub(crate) fn step<T>(
        &mut self,
        mode: Mode,
        body: impl FnOnce(&mut Step<'_>) -> Result<T>,
    ) -> Result<(T, Notices), Stop> {
        // Whoever was here before may have panicked.
        self.undo()?;
        let extra_sync = mode == Mode::Synced && self.settings.sync == SyncMode::Normal;
        if extra_sync {
            format::set_sync(&self.connection, SyncMode::Full)?;
        }
        let result = self.transact(mode, body);
        self.undo()?;
        if extra_sync {
            format::set_sync(&self.connection, SyncMode::Normal)?;
        }
        result
    }

    /// Undoes a transaction that was not committed.
    fn undo(&self) -> Result<()> {
        match self.connection.is_autocommit() {
            true => Ok(()),
            false => self.connection.execute_batch("ROLLBACK").map_err(explain),
        }
    }

    fn transact<T>(
        &mut self,
        mode: Mode,
        body: impl FnOnce(&mut Step<'_>) -> Result<T>,
    ) -> Result<(T, Notices), Stop> {
        if mode != Mode::Read {
            self.confirm_file()?;
        }
        let begin = if mode == Mode::Read { "BEGIN" } else { "BEGIN IMMEDIATE" };
        self.connection.prepare_cached(begin)?.execute([])?;
        // Read after the lock is ours, so that times in the file never run backwards.
        let now = self.settings.clock.now().as_millis();
        let fence = Fence::read(&self.connection, &self.settings.epoch, now)?;
        let mut step = Step {
            connection: &self.connection,
            settings: &self.settings,
            fence,
            now,
            needs_sync: false,
            notices: Notices::default(),
        };
        self.joined |= step.fence.is_ours;
        if !step.fence.is_ours {
            match mode {
                // Nothing is over by our clock: shown as of the last change.
                Mode::Read => step.now = step.fence.stamp,
                _ if self.joined => return Err(two_clocks().into()),
                _ => step.adopt()?,
            }
        }

        let value = body(&mut step)?;
        let Step { mut fence, now, needs_sync, notices, .. } = step;
        if needs_sync {
            if mode != Mode::Synced && self.settings.sync == SyncMode::Normal {
                return Err(Stop::NeedsSync);
            }
            fence.touch();
        }
        fence.write(&self.connection, now)?;
        self.commit(mode)?;
        Ok((value, notices))
    }

    fn commit(&mut self, mode: Mode) -> Result<(), Stop> {
        self.commits += u64::from(mode != Mode::Read);
        self.connection.prepare_cached("COMMIT")?.execute([]).map(drop).map_err(|error| {
            match error.sqlite_error_code() {
                Some(rusqlite::ErrorCode::SystemIoFailure) => Stop::Unknown(error.to_string()),
                _ => error.into(),
            }
        })
    }
}

/// A transaction in progress.
#[derive(Debug)]
pub(crate) struct Step<'c> {
    pub(crate) connection: &'c Connection,
    settings: &'c Settings,
    pub(crate) fence: Fence,
    now: u64,
    needs_sync: bool,
    notices: Notices,
}

impl Step<'_> {
    /// Applies one operation of the rule to a key.
    pub(crate) fn on<T>(
        &mut self,
        key: &Key,
        operation: impl FnOnce(&mut Rows<'_, '_>, u64) -> Result<Outcome<T>>,
    ) -> Result<T> {
        let now = self.now;
        let outcome = operation(&mut Rows::new(key, self), now).map_err(|e| e.at("sqlite"))?;
        self.notices.promoted.extend(outcome.promoted);
        self.notices.look.extend(outcome.ended.into_iter().map(|inbox| (inbox, key.clone())));
        Ok(outcome.answer)
    }

    /// Demands that this step is on the disk before it is answered.
    pub(crate) fn needs_sync(&mut self) {
        self.needs_sync = true;
    }

    /// The wall clock in microseconds.
    pub(crate) fn wall(&self) -> u64 {
        self.settings.wall_clock.now().as_micros()
    }

    fn adopt(&mut self) -> Result<()> {
        tracing::info!("the lock file was last used under another boot or clock: translating its leases");
        self.fence.adopt(self.connection, &self.settings.epoch, self.now)?;
        self.needs_sync();
        Ok(())
    }

    /// Drops refusals that are over.
    pub(crate) fn forget_refusals(&mut self) -> Result<()> {
        if self.fence.refusals > 0 {
            let sql = "DELETE FROM leasehold WHERE key = x'' AND id > x'' AND expires <= ?1";
            let mut delete = self.connection.prepare_cached(sql).map_err(explain)?;
            let gone = delete.execute([self.now.cast_signed()]).map_err(explain)?;
            self.fence.refusals = self.fence.refusals.saturating_sub(gone as u64);
            self.fence.touch();
        }
        Ok(())
    }

    /// The keys in use after `after` and below `end`, in order.
    pub(crate) fn keys(&self, after: Bound<'_>, end: Option<&[u8]>, at_most: usize) -> Result<Vec<Key>> {
        let (from, strictly) = match after {
            Bound::At(key) => (key, false),
            Bound::After(key) => (key, true),
        };
        let sql =
            "SELECT key FROM leasehold WHERE key >= ?1 AND (key > ?1 OR NOT ?2) AND (?3 IS NULL OR key < ?3)
            AND id = x'' AND key > x'' ORDER BY key LIMIT ?4";
        let mut query = self.connection.prepare_cached(sql).map_err(explain)?;
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let names = query.query_map(params![from, strictly, end, at_most], |row| row.get::<_, Vec<u8>>(0));
        names.map_err(explain)?.map(|name| key_of(&name.map_err(explain)?)).collect()
    }

    /// Lets time pass for some keys that perhaps nobody will ever touch again, so that the claims of dead
    /// clients do not pile up. The next sweep, of whichever process, goes on where this one ended.
    pub(crate) fn sweep(&mut self) -> Result<()> {
        self.forget_refusals()?;
        let sql = "SELECT key, id = x'' AND (quiet_until <= ?1 OR waiting > 0) FROM leasehold
            WHERE key > (SELECT cursor FROM leasehold WHERE key = x'' AND id = x'') ORDER BY key LIMIT ?2";
        let mut query = self.connection.prepare_cached(sql).map_err(explain)?;
        let seen =
            query.query_map(params![self.now.cast_signed(), SWEPT], |row| Ok((row.get(0)?, row.get(1)?)));
        let seen: Vec<(Vec<u8>, bool)> =
            seen.map_err(explain)?.collect::<rusqlite::Result<_>>().map_err(explain)?;

        for (name, _) in seen.iter().filter(|(_, may_be_over)| *may_be_over) {
            let key = key_of(name)?;
            self.on(&key, |rows, now| rule::pass(rows, now))?;
        }
        let at_the_end = (seen.len() as i64) < SWEPT;
        let cursor = seen.last().filter(|_| !at_the_end).map_or(&b""[..], |(name, _)| name);
        // Most files are small: then there is nothing to write down.
        let sql = "UPDATE leasehold SET cursor = ?1 WHERE key = x'' AND id = x'' AND cursor <> ?1";
        self.connection
            .prepare_cached(sql)
            .and_then(|mut update| update.execute([cursor]))
            .map_err(explain)?;
        Ok(())
    }

    /// How many rows there are besides the fence.
    pub(crate) fn count(&self) -> Result<u64> {
        let count =
            self.connection.query_row("SELECT count(*) - 1 FROM leasehold", [], |row| row.get::<_, i64>(0));
        count.map(i64::cast_unsigned).map_err(explain)
    }
}

/// Where a listing starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound<'a> {
    At(&'a [u8]),
    After(&'a [u8]),
}

fn key_of(name: &[u8]) -> Result<Key> {
    let name = std::str::from_utf8(name).map_err(|_| {
        Error::new(ErrorKind::Protocol, "the lock file has a key that is not UTF-8: move the file away")
            .at("sqlite")
    })?;
    Key::new(name)
}

fn two_clocks() -> Error {
    let message = "the lock file is used under two clocks at once (a container with its own time namespace, a virtual \
        machine or a sandbox shares it): give each its own file, or use a store with a server";
    Error::new(ErrorKind::Conflict, message).at("sqlite")
}
