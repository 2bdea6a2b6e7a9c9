//! Opening the file: is it ours, is it a version that we know, and creating it when it is new.
//!
//! Two releases can run side by side as long as both know the file's version.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Check, Error, ErrorKind, Warnings};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use crate::fault::{Stop, explain};
use crate::location;
use crate::place::Identity;
use crate::settings::{Settings, SyncMode};

/// Marks our files: "Lshd".
const APPLICATION: i64 = 0x4c73_6864;
/// The version of the stored format. Raise it when an older release would misread the file.
const VERSION: i64 = 2;
/// Small pages: what a commit costs is the pages it writes. A claim with an ordinary name and label fits
/// four times.
const PAGE_SIZE: i64 = 2048;
/// The log is cut back to this when it starts again after it grew beyond the usual.
const LOG_BYTES: i64 = 8 << 20;
/// More than we have statements.
const STATEMENTS: usize = 48;

/// Opens the file without looking into it, and says what was checked around it.
pub(crate) fn open(
    path: &Path,
    settings: &Settings,
    warnings: &Warnings,
) -> Result<(Connection, Identity, Vec<Check>), Stop> {
    // Creating a file closes a descriptor of it, which would drop the locks of a connection that another
    // thread opens at this moment.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);

    let (path, checks) = location::prepare(path, settings.network, warnings).map_err(|e| e.at("sqlite"))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(&path, flags)?;
    // Waiting is ours: only the thread may, and with jitter.
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Else SQLite plans a statement anew for every other value of its LIMIT: a sixth of the time of a hand-over.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The schema may be another program's, or be meant to harm: nothing in it runs code of ours that touches the outside.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok((connection, Identity::of(path), checks))
}

/// Checks that the file is ours and creates what it needs. Repeatable: `Busy` means again. Says how SQLite is set.
pub(crate) fn install(connection: &mut Connection, settings: &Settings) -> Result<[Check; 2], Stop> {
    // Before anything is changed: the file may be somebody else's. In a transaction, because another process
    // may be creating it.
    let look = connection.transaction()?;
    is_new(&look)?;
    look.finish()?;
    connection.pragma_update(None, "page_size", PAGE_SIZE)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        let message = "the file system cannot share memory between processes: choose a path on a local disk";
        return Err(Error::new(ErrorKind::Invalid, message).at("sqlite").into());
    }
    // Checkpoints sync: the thread makes them.
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    set_sync(connection, SyncMode::Full)?;
    create(connection, settings)?;
    set_sync(connection, settings.sync)?;
    let sync = match connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0))? {
        0 => "off",
        1 => "normal",
        2 => "full",
        _ => "extra",
    };
    Ok([Check::ok("journal_mode", mode), Check::ok("synchronous", sync)])
}

/// Sets what the next transactions survive.
pub(crate) fn set_sync(connection: &Connection, mode: SyncMode) -> Result<(), Stop> {
    let level = match mode {
        SyncMode::Normal => "NORMAL",
        SyncMode::Full => "FULL",
    };
    Ok(connection.pragma_update(None, "synchronous", level)?)
}

fn create(connection: &mut Connection, settings: &Settings) -> Result<(), Stop> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Asked again: another process may have been first.
    if is_new(&transaction)? {
        transaction.execute_batch(include_str!("schema.sql"))?;
        transaction.execute(
            "INSERT INTO leasehold (key, id, last, ceiling, stamp, refusals, epoch, cursor, born)
             VALUES (x'', x'', 0, 0, 0, 0, ?1, x'', ?2)",
            params![settings.epoch.as_str(), settings.clock.now().as_millis().cast_signed()],
        )?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(transaction.commit()?)
}

/// Whether the file is empty; an error when it is not ours.
fn is_new(connection: &Connection) -> Result<bool, Stop> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let conflict = |message: String| Err(Error::new(ErrorKind::Conflict, message).at("sqlite").into());
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, VERSION) => Ok(false),
        (APPLICATION, version) => conflict(format!(
            "the lock file has format {version}, this release knows {VERSION}: use the newer release everywhere, or another path"
        )),
        (0, 0) if is_empty(connection)? => Ok(true),
        _ => conflict(
            "the file is the database of another program: choose another path for the locks".to_owned(),
        ),
    }
}

fn is_empty(connection: &Connection) -> Result<bool, Stop> {
    let count = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
    Ok(count == 0)
}

/// Moves the log into the file when it has become long, and says whether it did. It syncs.
pub(crate) fn checkpoint(connection: &Connection, longer_than: i64) -> leasehold_core::Result<bool> {
    let pages = |mode: &str| {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        connection.query_row(&sql, [], |row| row.get::<_, i64>(1)).map_err(explain)
    };
    let is_long = pages("NOOP")? > longer_than;
    if is_long {
        pages("PASSIVE")?;
    }
    Ok(is_long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_schema_gets_no_trust() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings::new();
        let (mut connection, _, _) =
            open(&directory.path().join("locks.db"), &settings, &Warnings::default()).unwrap();
        install(&mut connection, &settings).unwrap();
        let trusted: i64 = connection.pragma_query_value(None, "trusted_schema", |row| row.get(0)).unwrap();
        assert_eq!(trusted, 0);
        connection.pragma_update(None, "writable_schema", true).unwrap();
        connection.execute("UPDATE sqlite_schema SET sql = ''", []).unwrap_err();
    }
}
