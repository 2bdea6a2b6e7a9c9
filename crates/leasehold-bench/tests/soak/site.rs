//! A store of any kind in a fresh place, and a look at what is stored that does not ask the library.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Client, Memory, Options};
use leasehold_sqlite::Sqlite;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use crate::Outcome;
use crate::served::Server;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    /// On a server of its own, which this starts.
    Served(fn() -> Box<dyn Server>),
}

#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Memory),
    Sqlite,
    Served(Box<dyn Server>),
}

impl Site {
    pub(crate) fn new(kind: Kind) -> Outcome<Self> {
        let place = match kind {
            Kind::Memory => Place::Memory(Memory::new()),
            Kind::Sqlite => Place::Sqlite,
            Kind::Served(start) => Place::Served(start()),
        };
        Ok(Self { folder: tempfile::tempdir()?, place })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// What `--store` takes.
    pub(crate) fn url(&self) -> String {
        match &self.place {
            Place::Served(server) => server.url(),
            Place::Memory(_) | Place::Sqlite => format!("sqlite://{}", self.file().display()),
        }
    }

    /// Uses the store once, in a runtime that is gone afterwards: what a driver keeps for good since its first use, like a
    /// thread of its own, is not what a trial leaves.
    pub(crate) fn warm_up(&self) -> Outcome<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let client = self.connect().await?;
            client.mutex("soak/warm").acquire().await?.release().await?;
            client.close().await?;
            self.rows().await.map(drop)
        })
    }

    /// A client with short leases and short marks, so that the end of either can be waited for.
    pub(crate) async fn connect(&self) -> Outcome<Client> {
        let lease = Options::new().lease(Duration::from_secs(5));
        let builder = Client::builder().call_timeout(Duration::from_secs(2)).defaults(lease);
        Ok(match &self.place {
            Place::Memory(memory) => builder.connect(memory.clone()).await?,
            Place::Sqlite => builder.connect(Sqlite::from_url(&self.url())?).await?,
            Place::Served(server) => builder.connect(leasehold::open(&server.url())?).await?,
        })
    }

    /// How many claims, keys and marks there are.
    pub(crate) async fn rows(&self) -> Outcome<usize> {
        match &self.place {
            Place::Memory(memory) => Ok(memory.residue()),
            Place::Sqlite => {
                let file = Connection::open_with_flags(self.file(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
                file.busy_timeout(Duration::from_secs(5))?;
                // All rows but the fence, which is the store's own.
                let sql = "SELECT count(*) FROM leasehold WHERE key <> x'' OR id <> x''";
                let count: i64 = file.query_row(sql, [], |row| row.get(0))?;
                Ok(usize::try_from(count)?)
            }
            Place::Served(server) => server.rows().await,
        }
    }

    /// How many sessions of clients there are.
    pub(crate) async fn sessions(&self) -> Outcome<usize> {
        match &self.place {
            Place::Memory(_) | Place::Sqlite => Ok(0),
            Place::Served(server) => server.sessions().await,
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
