//! The SQLite store before the suite that judges every store.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Error, ErrorKind, Fut, Key, Result, Store};
use leasehold_sqlite::{Settings, Sqlite};
use rusqlite::{Connection, OpenFlags};

fn main() -> ExitCode {
    let part = victim(|path| Ok(Arc::new(Sqlite::open(path, Settings::new())?)));
    part.unwrap_or_else(|| run("sqlite", Database::new))
}

const LEASE: Duration = Duration::from_millis(500);

/// A file of its own for every trial; every connection is another store on it.
#[derive(Debug)]
struct Database(tempfile::TempDir);

impl Database {
    fn new() -> Result<Self> {
        tempfile::tempdir().map(Self).map_err(failed)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }

    /// Reads the file itself, with nothing of the store in between.
    fn read(&self, key: &Key) -> rusqlite::Result<RawState> {
        const CLAIMS: &str =
            "SELECT count(*) FILTER (WHERE held > 0), coalesce(sum(held), 0), count(turn), count(*)
            FROM leasehold WHERE key = ?1 AND id <> x''";
        const HEADS_AND_MARKS: &str = "SELECT count(*) FROM leasehold
            WHERE (key = ?1 AND id = x'') OR (key = x'' AND id <> x'')";
        let file = Connection::open_with_flags(self.path(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        file.busy_timeout(Duration::from_secs(5))?;
        // One snapshot for both, or a release between them would be half seen.
        file.execute_batch("BEGIN")?;
        let key = key.as_str().as_bytes();
        let count = |row: &rusqlite::Row<'_>, column| row.get::<_, u32>(column).map(|n| n as usize);
        let mut state = file.query_row(CLAIMS, [key], |row| {
            let units = row.get::<_, i64>(1)?.unsigned_abs();
            Ok(RawState { holders: count(row, 0)?, units, waiters: count(row, 2)?, residue: count(row, 3)? })
        })?;
        state.residue += file.query_row(HEADS_AND_MARKS, [key], |row| count(row, 0))?;
        Ok(state)
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the test's own look at the file failed").because(error)
}

impl Fixture for Database {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(Sqlite::open(self.path(), Settings::new())?) as _) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move { self.read(key).map_err(failed) })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn kill_holder<'a>(&'a self, key: &'a Key, lease: Duration) -> Hook<'a, Killed> {
        Hook::Does(Box::pin(async move {
            let path = self.path();
            kill_one_that_holds(&path.to_string_lossy(), key, lease).await
        }))
    }
}
