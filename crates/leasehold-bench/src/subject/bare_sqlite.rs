//! The peer of the SQLite store: two bare write transactions per pair, the least that a lock in a database
//! could cost.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};

use super::{Outcome, Subject};
use crate::round::Inside;

/// One connection behind a `std::sync::Mutex`, used in place by whichever task has the turn.
///
/// The fastest bare arrangement for many tasks of one process: a thread of its own costs a hop per
/// transaction, several connections cost waits in the busy handler. It blocks its worker thread, waits for
/// nobody and gives nothing back after a crash.
#[derive(Clone, Debug)]
pub struct BareSqlite(Arc<Mutex<Connection>>);

impl BareSqlite {
    /// A new database at `path`, with the settings that the store uses.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn create(path: &Path) -> Outcome<Self> {
        Ok(Self(Arc::new(Mutex::new(open(path)?))))
    }
}

impl Subject for BareSqlite {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let turn = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write(&turn(), name, 1)?;
        inside.await;
        write(&turn(), name, 0)
    }
}

/// The same connection behind a `tokio::sync::Mutex` that is the lock as well: waiting costs the database
/// nothing, so what is left is the two transactions of a hand-over.
#[derive(Clone, Debug)]
pub struct QueuedSqlite(Arc<tokio::sync::Mutex<Mutex<Connection>>>);

impl QueuedSqlite {
    /// As [`BareSqlite::create`].
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn create(path: &Path) -> Outcome<Self> {
        Ok(Self(Arc::new(tokio::sync::Mutex::new(Mutex::new(open(path)?)))))
    }
}

impl Subject for QueuedSqlite {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let mut turn = self.0.lock().await;
        write(turn.get_mut().unwrap_or_else(PoisonError::into_inner), name, 1)?;
        inside.await;
        write(turn.get_mut().unwrap_or_else(PoisonError::into_inner), name, 0)
    }
}

fn open(path: &Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    // The store's own settings, down to the length of the log. The store's checkpoints are made by its
    // thread; here they happen inside the commit that finds the log too long.
    connection.execute_batch(
        "PRAGMA page_size = 2048;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = NORMAL;
         PRAGMA wal_autocheckpoint = 2000;
         PRAGMA journal_size_limit = 8388608;
         CREATE TABLE lock (name TEXT PRIMARY KEY, holder INTEGER NOT NULL) WITHOUT ROWID;",
    )?;
    Ok(connection)
}

/// One transaction. The row is made by the first update that misses it, in a transaction of its own.
fn write(connection: &Connection, name: &str, holder: i64) -> Outcome<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut update = connection.prepare_cached("UPDATE lock SET holder = ?1 WHERE name = ?2")?;
    let found = update.execute(params![holder, name])?;
    connection.prepare_cached("COMMIT")?.execute([])?;
    if found == 0 {
        connection.execute("INSERT INTO lock VALUES (?1, ?2)", params![name, holder])?;
    }
    Ok(())
}
