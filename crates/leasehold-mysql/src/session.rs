//! `mode=advisory` and `mode=rowlock`: the database's own locks, each on a connection that nobody else uses.
//!
//! `leasehold_sql` says which connection, and for how long; here is what is said on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Error, Info, Key, Leases, Result, TokenStrength};
use leasehold_sql::{CAPABILITIES, Carries, Connection, Database, Held, Mode, Pinned, Sharing};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as Driver, Row};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::fault::{Stop, is_busy, is_missing, refusal};
use crate::link::{Link, late, say};
use crate::rows::get;
use crate::sql::{bytes, list, with};
use crate::url::Target;

/// What named locks are and promise. Nobody can share them.
pub static ADVISORY: Info = Info {
    name: "mysql",
    capabilities: &[],
    tokens: TokenStrength::Durable,
    leases: Leases::Shared,
    ordered: false,
    pushes: false,
    min_lease: Duration::from_secs(1),
    max_lease: Duration::from_secs(20 * 24 * 3600),
    rounding: Duration::ZERO,
    // The server counts in seconds.
    expiry_slack: Duration::from_secs(1),
    batch: 400,
    checks: Vec::new(),
};

/// What row locks are and promise.
pub static ROWLOCK: Info = Info { capabilities: CAPABILITIES, checks: Vec::new(), ..ADVISORY };

/// How many locks are given back between two looks for rows that dead clients left.
const SWEEP_EVERY: u64 = 32;

/// The server waits for whole seconds: who has less than this asks again and again.
const SHORTEST: Duration = Duration::from_millis(500);
const WAIT: &str = "SET SESSION innodb_lock_wait_timeout = 1";

/// How often a connection is asked whether it is still there: the driver does not look by itself.
const ASK: Duration = Duration::from_secs(1);

pub(crate) fn advisory(link: Arc<Link>) -> Pinned<Locks> {
    pinned(link, &ADVISORY, Carries::Many)
}

pub(crate) fn rowlock(link: Arc<Link>) -> Pinned<Locks> {
    pinned(link, &ROWLOCK, Carries::One)
}

fn pinned(link: Arc<Link>, info: &'static Info, carries: Carries) -> Pinned<Locks> {
    let limit = link.target.timeout;
    Pinned::new(Locks { link, given: Arc::default() }, info, carries, limit)
}

/// The locks of a database.
#[derive(Debug)]
pub(crate) struct Locks {
    link: Arc<Link>,
    given: Arc<AtomicU64>,
}

impl Locks {
    async fn dial(&self, silence: Duration, until: Instant) -> Result<Line> {
        let target = &self.link.target;
        let mut conn = self.link.dial_as(target.pinned(silence), until).await?;
        if target.mode == Mode::RowLock {
            let seen = say(&mut conn, &with(&target.prefix, "SELECT 1 FROM leasehold_rows LIMIT 0")).await;
            match seen {
                // An older release made the tables.
                Err(error) if is_missing(&error) => {
                    say(&mut conn, &self.link.init_sql()).await.map_err(refusal)?;
                }
                other => drop(other.map_err(refusal)?),
            }
        }
        let (number, given) = (conn.id().into(), self.given.clone());
        Ok(Line { conn: Mutex::new(conn), number, link: self.link.clone(), given })
    }
}

impl Database for Locks {
    type Connection = Line;

    async fn check(&self) -> Result<()> {
        self.connect(Duration::from_secs(60)).await.map(drop)
    }

    async fn connect(&self, silence: Duration) -> Result<Line> {
        let until = Instant::now() + self.link.target.connect_timeout;
        timeout_at(until, self.dial(silence, until)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn holders(&self, key: &Key) -> Result<Vec<Held>> {
        let target = &self.link.target;
        if target.mode == Mode::Advisory {
            let rows = self.link.read(&format!("SELECT IS_USED_LOCK({})", named(target, key))).await?;
            let number = rows.first().map(|row| get::<Option<u64>>(row, 0)).transpose()?.flatten();
            return Ok(number
                .map(|n| Held { connection: Some(n), sharing: Sharing::Exclusive })
                .into_iter()
                .collect());
        }
        // The server says whether a row can be locked, and no more. To ask is to lock it for that moment.
        let name = bytes(key.as_str().as_bytes());
        let one = format!("FROM leasehold_rows WHERE name = {name}");
        let rows = self
            .link
            .read(&format!(
                "SELECT 'r' {one}; SELECT 'x' {one} FOR UPDATE SKIP LOCKED; SELECT 's' {one} {} SKIP LOCKED",
                self.link.dialect().share()
            ))
            .await?;
        let said = rows.iter().map(|row| get::<String>(row, 0)).collect::<Result<Vec<_>>>()?.concat();
        let held = |sharing| vec![Held { connection: None, sharing }];
        Ok(match said.as_str() {
            "r" => held(Sharing::Exclusive),
            "rs" => held(Sharing::Shared),
            _ => Vec::new(),
        })
    }
}

/// A lock's name to the server, which has 64 characters, folds case, and has the same names for all databases.
fn named(target: &Target, key: &Key) -> String {
    let full = format!("{}/{}/{key}", target.opts.db_name().unwrap_or_default(), target.prefix);
    format!("CONCAT('leasehold.', LEFT(SHA2({}, 256), 54))", bytes(full.as_bytes()))
}

/// A connection that has locks.
#[derive(Debug)]
pub(crate) struct Line {
    conn: Mutex<Conn>,
    number: u64,
    link: Arc<Link>,
    given: Arc<AtomicU64>,
}

impl Line {
    fn target(&self) -> &Target {
        &self.link.target
    }

    async fn say(&self, sql: &str) -> Result<Vec<Row>, Driver> {
        say(&mut *self.conn.lock().await, &with(&self.target().prefix, sql)).await
    }

    async fn lock_name(&self, key: &Key, waits: bool) -> Result<bool> {
        let lock = format!("SELECT GET_LOCK({}, {})", named(self.target(), key), u8::from(waits));
        let rows = self.say(&lock).await.map_err(failed)?;
        let taken = rows.first().map(|row| get::<Option<i64>>(row, 0)).transpose()?.flatten();
        Ok(taken == Some(1))
    }

    /// Takes the row of a lock. Who does not wait passes over what is locked.
    async fn lock_row(&self, key: &Key, sharing: Sharing, waits: bool) -> Result<bool, Driver> {
        let of_name = format!("FROM leasehold_rows WHERE name = {}", bytes(key.as_str().as_bytes()));
        let how = match sharing {
            Sharing::Exclusive => "FOR UPDATE",
            Sharing::Shared => self.link.dialect().share(),
        };
        if waits {
            let lock = format!("{WAIT}; START TRANSACTION; SELECT 'locked' {of_name} {how}");
            if !self.say(&lock).await?.is_empty() {
                return Ok(true);
            }
            // Who had it has removed it.
            self.say("ROLLBACK").await?;
        }
        let lock = format!("START TRANSACTION; SELECT 'locked' {of_name} {how} SKIP LOCKED");
        // A plain read sees also what others have locked.
        let mut seen = self.say(&format!("{lock}; SELECT 'there' {of_name}")).await?;
        if seen.is_empty() {
            // It is made in a transaction of its own: what is only being made is nobody's.
            let name = bytes(key.as_str().as_bytes());
            seen = self
                .say(&format!("ROLLBACK; INSERT IGNORE INTO leasehold_rows VALUES ({name}); {lock}"))
                .await?;
        }
        let locked =
            seen.first().and_then(|row| get::<String>(row, 0).ok()).is_some_and(|word| word == "locked");
        if !locked {
            self.say("ROLLBACK").await?;
        }
        Ok(locked)
    }

    /// Takes a lock that is free, or waits for it.
    async fn take_within(&self, key: &Key, sharing: Sharing, waits: bool) -> Result<Option<u64>> {
        let taken = match self.target().mode {
            Mode::RowLock => match self.lock_row(key, sharing, waits).await {
                // Whoever was in the way has it, or wants it.
                Err(error) if is_busy(&error) => {
                    self.say("ROLLBACK").await.map_err(failed)?;
                    false
                }
                other => other.map_err(failed)?,
            },
            _ => self.lock_name(key, waits).await?,
        };
        if !taken {
            return Ok(None);
        }
        // The number is drawn when the lock is there: tokens rise in the order of grants.
        let token = self.link.draw().await?;
        // The draw is on another connection. If this one ended meanwhile, another client may hold already, with a smaller
        // token. If it still answers, it had the lock all the while.
        self.beat().await?;
        Ok(Some(token))
    }

    /// Ends the transaction, and removes the row unless somebody has it locked by now.
    async fn unlock_row(&self, key: &Key, sharing: Sharing) -> Result<(), Driver> {
        let name = bytes(key.as_str().as_bytes());
        match sharing {
            Sharing::Exclusive => {
                self.say(&format!("DELETE FROM leasehold_rows WHERE name = {name}; COMMIT")).await?;
            }
            Sharing::Shared => {
                self.say("COMMIT").await?;
                self.clean(&format!("WHERE name = {name}")).await?;
            }
        }
        if (self.given.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(SWEEP_EVERY) {
            // Of clients that died.
            self.clean("LIMIT 128").await?;
        }
        Ok(())
    }

    /// Removes rows that nobody has locked.
    async fn clean(&self, which: &str) -> Result<(), Driver> {
        let free =
            format!("START TRANSACTION; SELECT name FROM leasehold_rows {which} FOR UPDATE SKIP LOCKED");
        let free = self.say(&free).await?;
        let names = list(free.iter().filter_map(|row| get::<Vec<u8>>(row, 0).ok()).map(|name| bytes(&name)));
        if !names.is_empty() {
            self.say(&format!("DELETE FROM leasehold_rows WHERE name IN ({names})")).await?;
        }
        self.say("COMMIT").await.map(drop)
    }
}

fn failed(error: Driver) -> Error {
    Stop::after(error).into_error()
}

impl Connection for Line {
    fn number(&self) -> u64 {
        self.number
    }

    async fn take(&self, key: &Key, sharing: Sharing) -> Result<Option<u64>> {
        self.take_within(key, sharing, false).await
    }

    async fn wait(&self, key: &Key, sharing: Sharing, about: Duration) -> Result<Option<u64>> {
        self.take_within(key, sharing, about >= SHORTEST).await
    }

    async fn cancel(&self) {
        if let Err(error) = self.link.read(&format!("KILL QUERY {}", self.number)).await {
            tracing::debug!(%error, "cannot cancel a wait: it ends by itself");
        }
    }

    async fn give(&self, key: &Key, sharing: Sharing) -> Result<()> {
        match self.target().mode {
            Mode::RowLock => self.unlock_row(key, sharing).await,
            _ => self.say(&format!("DO RELEASE_LOCK({})", named(self.target(), key))).await.map(drop),
        }
        .map_err(failed)
    }

    async fn beat(&self) -> Result<()> {
        self.conn.lock().await.ping().await.map_err(failed)
    }

    async fn ended(&self) {
        loop {
            sleep(ASK).await;
            if self.beat().await.is_err() {
                return;
            }
        }
    }
}
