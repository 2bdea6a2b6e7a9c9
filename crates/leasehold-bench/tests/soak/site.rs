//! A store of either kind in a fresh place, and a look at what is stored that does not ask the library.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Client, Memory, Options};
use leasehold_sqlite::Sqlite;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use crate::Outcome;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
}

#[derive(Debug)]
pub(crate) struct Site {
    kind: Kind,
    folder: TempDir,
    memory: Memory,
}

impl Site {
    pub(crate) fn new(kind: Kind) -> Outcome<Self> {
        Ok(Self { kind, folder: tempfile::tempdir()?, memory: Memory::new() })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// What `--store` takes.
    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.file().display())
    }

    /// A client with short leases and short marks, so that the end of either can be waited for.
    pub(crate) async fn connect(&self) -> Outcome<Client> {
        let lease = Options::new().lease(Duration::from_secs(5));
        let builder = Client::builder().call_timeout(Duration::from_secs(2)).defaults(lease);
        Ok(match self.kind {
            Kind::Memory => builder.connect(self.memory.clone()).await?,
            Kind::Sqlite => builder.connect(Sqlite::from_url(&self.url())?).await?,
        })
    }

    /// How many claims, keys and marks there are.
    pub(crate) fn rows(&self) -> Outcome<usize> {
        match self.kind {
            Kind::Memory => Ok(self.memory.residue()),
            Kind::Sqlite => {
                let file = Connection::open_with_flags(self.file(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
                file.busy_timeout(Duration::from_secs(5))?;
                // All rows but the fence, which is the store's own.
                let sql = "SELECT count(*) FROM leasehold WHERE key <> x'' OR id <> x''";
                let count: i64 = file.query_row(sql, [], |row| row.get(0))?;
                Ok(usize::try_from(count)?)
            }
        }
    }
}

/// Some traffic: what nobody touches again is swept by it.
pub(crate) async fn stir(client: &Client) -> Outcome<()> {
    for _ in 0..300 {
        client.mutex("soak/stir").acquire().await?.release().await?;
    }
    Ok(())
}
