//! The connections of one store: few, made when they are needed, thrown away when in doubt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use leasehold_core::{Error, ErrorKind, Info, Key, Result, Severity};
use leasehold_sql::{First, Queues};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use crate::dialect::{self, Dialect};
use crate::fault::{connecting, is_denied, is_missing, refusal};
use crate::idle::Idle;
use crate::rows::{get, strange};
use crate::settings::{self, Found};
use crate::sql::{BOUND, bytes, init_sql, with};
use crate::store::declared;
use crate::tls;
use crate::url::Target;

/// The connections of one store.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: Target,
    idle: Arc<Idle>,
    places: Semaphore,
    /// Those who want to do something to the same lock.
    turns: Queues,
    /// Whether the tables were seen.
    is_ready: AtomicBool,
    /// What was seen with them.
    dialect: Mutex<Dialect>,
    /// What the store promises with the settings that the first connection found.
    promise: OnceLock<Info>,
}

/// A connection that one step has for itself.
pub(crate) struct Wire<'a> {
    conn: Conn,
    link: &'a Link,
    _place: SemaphorePermit<'a>,
    _turn: Option<First>,
}

impl Link {
    pub(crate) fn new(target: Target) -> Arc<Self> {
        let places = Semaphore::new(target.connections);
        let (idle, is_ready, dialect) = (Arc::default(), AtomicBool::new(false), Mutex::default());
        let (turns, promise) = (Queues::default(), OnceLock::new());
        Arc::new(Self { target, idle, places, turns, is_ready, dialect, promise })
    }

    /// What the store promises: with the settings of its server, once it has connected.
    pub(crate) fn info(&self) -> &Info {
        self.promise.get().unwrap_or_else(|| declared(self.target.mode))
    }

    /// The statements that make the tables.
    pub(crate) fn init_sql(&self) -> String {
        init_sql(&self.target.prefix).expect("the prefix was checked with the URL")
    }

    /// When a call that begins now is over.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.target.timeout
    }

    /// The turn to do something to a lock, by then. One at a time: they would wait for each other at the server, each on
    /// a connection that others could use for other locks.
    pub(crate) async fn turn(&self, key: &Key, until: Instant) -> Result<First> {
        self.turns.turn(key, until).await.ok_or_else(|| late().on(key))
    }

    /// A connection to do something to a lock, by then, in one's turn.
    pub(crate) async fn connected_for(&self, key: &Key, until: Instant) -> Result<Wire<'_>> {
        let turn = self.turn(key, until).await?;
        Ok(Wire { _turn: Some(turn), ..self.connected(until).await? })
    }

    /// A connection, by then.
    pub(crate) async fn connected(&self, until: Instant) -> Result<Wire<'_>> {
        let place = timeout_at(until, self.places.acquire()).await;
        let place = place.map_err(|_| late())?.map_err(|_| late())?;
        let conn = match self.idle.take() {
            Some(conn) => conn,
            None => self.dial(until).await?,
        };
        Ok(Wire { conn, link: self, _place: place, _turn: None })
    }

    async fn dial(&self, until: Instant) -> Result<Conn> {
        self.dial_as(self.target.opts.clone(), until).await
    }

    /// A connection with these settings, by then, that nobody else uses.
    pub(crate) async fn dial_as(&self, opts: Opts, until: Instant) -> Result<Conn> {
        let limit = self.target.connect_timeout.min(until - Instant::now());
        let opts = match &self.target.tls {
            Some(files) => OptsBuilder::from_opts(opts).ssl_opts(tls::options(files)?).into(),
            None => opts,
        };
        let made = timeout(limit, Conn::new(opts)).await;
        let made = made.map_err(|_| late_at(&self.target.place))?;
        let mut conn = made.map_err(|cause| connecting(cause, &self.target.place))?;
        let greet = async {
            let clock = self.judge(&mut conn).await?;
            self.leap(&mut conn, clock + BOUND).await
        };
        timeout_at(until, greet).await.map_err(|_| late())??;
        Ok(conn)
    }

    /// Looks at the settings, which after a failover may be those of another server, and makes the tables if they are missing.
    /// Returns the server's clock in microseconds.
    async fn judge(&self, conn: &mut Conn) -> Result<u64> {
        let is_first = self.promise.get().is_none();
        let mut ask = format!("{}; {}", settings::ASK, settings::ASK_CLOCK);
        if is_first {
            ask = format!("{ask}; {}", settings::ASK_STATE);
        }
        // Before anything is written: with some settings nothing can be.
        let found = Found::read(&say(conn, &ask).await.map_err(refusal)?)?;
        let mut checks = settings::checks(&found);
        if !is_first {
            // Said already.
            checks.retain(|check| check.severity == Severity::Refused);
        }
        settings::judge(&checks)?;
        if !self.is_ready.load(Ordering::Acquire) {
            self.find_tables(conn).await?;
            let engines = with(&self.target.prefix, settings::ASK_ENGINES);
            let engines = settings::engines(&Found::read(&say(conn, &engines).await.map_err(refusal)?)?);
            settings::judge(&engines)?;
            checks.extend(engines);
            // The first connection's settings are the promise.
            self.promise.get_or_init(|| settings::promise(declared(self.target.mode), checks));
            self.is_ready.store(true, Ordering::Release);
        }
        found.clock().ok_or_else(|| strange("no time"))
    }

    /// Moves the source of numbers to its bound, so that whatever the server has forgotten, every number that this connection
    /// draws is larger than all before.
    async fn leap(&self, conn: &mut Conn, bound: u64) -> Result<()> {
        match say(conn, &with(&self.target.prefix, &self.dialect().leap(bound))).await {
            Ok(_) => Ok(()),
            // A user who may only look draws no numbers.
            Err(cause) if is_denied(&cause) => Ok(()),
            Err(cause) => {
                if is_missing(&cause) {
                    self.forget();
                }
                Err(refusal(cause))
            }
        }
    }

    /// Makes the tables if they are missing, and sees what they are like.
    async fn find_tables(&self, conn: &mut Conn) -> Result<()> {
        let ask = with(&self.target.prefix, "SELECT format FROM leasehold_store");
        let mut seen = conn.query_first::<i64, _>(&ask).await;
        // A table without its row is being made by somebody else at this moment: their turn ends with the lock below.
        if seen.as_ref().map_or_else(is_missing, Option::is_none) {
            tracing::debug!("making the tables");
            let alone = "SELECT GET_LOCK('leasehold init', 10)";
            let made: Result<(), mysql_async::Error> = async {
                conn.query_drop(alone).await?;
                conn.query_drop(self.init_sql()).await?;
                conn.query_drop("SELECT RELEASE_LOCK('leasehold init')").await
            }
            .await;
            made.map_err(|cause| {
                let error = refusal(cause);
                if error.kind() != ErrorKind::Denied {
                    return error;
                }
                let message = "the lock tables are missing and this user may not make them: run the statements of \
                               `leasehold store init --print-sql`, or give it the right";
                Error::new(ErrorKind::Denied, message).at("mysql").because(error)
            })?;
            seen = conn.query_first(&ask).await;
        }
        if seen.map_err(refusal)? != Some(1) {
            let message = "the lock tables were made by another version of leasehold: use another prefix";
            return Err(Error::new(ErrorKind::Conflict, message).at("mysql"));
        }
        let ask = with(&self.target.prefix, dialect::ASK);
        let said: Option<(String, Option<String>)> = conn.query_first(ask).await.map_err(refusal)?;
        let (version, numbers) = said.ok_or_else(|| strange("no version"))?;
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner) =
            Dialect::new(&version, numbers.as_deref());
        Ok(())
    }

    /// How to talk to this server.
    pub(crate) fn dialect(&self) -> Dialect {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables are not there any more: looks again with the next connection.
    pub(crate) fn forget(&self) {
        self.is_ready.store(false, Ordering::Release);
        self.idle.clear();
    }

    /// A number above all that were drawn before, also when the server is killed at this moment.
    pub(crate) async fn draw(&self) -> Result<u64> {
        // A sequence alone is not written to the disk with what it says. A commit that follows takes it along.
        let id = bytes(&fastrand::u128(..).to_le_bytes());
        let rows = self
            .read(&format!(
                "START TRANSACTION; {}; INSERT INTO leasehold_refusals VALUES ({id}, 0); \
                 DELETE FROM leasehold_refusals WHERE id = {id}; COMMIT",
                self.dialect().draw("")
            ))
            .await?;
        let number = rows.first().map(|row| get::<i64>(row, 0)).transpose()?;
        number.map(i64::cast_unsigned).ok_or_else(|| strange("no number"))
    }

    /// The rows that one statement answers, outside of any transaction.
    pub(crate) async fn read(&self, sql: &str) -> Result<Vec<Row>> {
        let until = self.deadline();
        let mut wire = self.connected(until).await?;
        let rows = timeout_at(until, wire.say(&with(&self.target.prefix, sql))).await;
        match rows {
            Ok(Ok(rows)) => {
                wire.give_back();
                Ok(rows)
            }
            Ok(Err(cause)) => {
                if is_missing(&cause) {
                    self.forget();
                }
                Err(refusal(cause))
            }
            Err(_) => Err(late()),
        }
    }
}

impl Wire<'_> {
    pub(crate) async fn say(&mut self, sql: &str) -> Result<Vec<Row>, mysql_async::Error> {
        say(&mut self.conn, sql).await
    }

    /// How many rows the last statement changed.
    pub(crate) fn affected(&self) -> u64 {
        self.conn.affected_rows()
    }

    /// It is in order, and nothing is open on it: others may use it.
    pub(crate) fn give_back(self) {
        self.link.idle.put(self.conn);
    }

    /// Undoes what is open on it, so that others may use it.
    pub(crate) async fn undo(mut self, until: Instant) {
        if let Ok(Ok(_)) = timeout_at(until, self.say("ROLLBACK")).await {
            self.give_back();
        }
    }
}

/// Lets work go on though its caller does not wait for it any more: a connection whose statement is left alone half-way is of
/// no use.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Indeterminate, "the runtime that the store worked on is gone").at("mysql"))
    })
}

/// All rows of all statements.
pub(crate) async fn say(conn: &mut Conn, sql: &str) -> Result<Vec<Row>, mysql_async::Error> {
    let mut result = conn.query_iter(sql).await?;
    let mut all = Vec::new();
    while !result.is_empty() {
        all.extend(result.collect::<Row>().await?);
    }
    // An error of any statement but the first is kept by the driver for whoever asks next.
    result.drop_result().await?;
    Ok(all)
}

/// Nothing was committed by then.
pub(crate) fn late() -> Error {
    Error::new(ErrorKind::Unavailable, LATE).at("mysql")
}

fn late_at(place: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{place}: {LATE}")).at("mysql")
}

const LATE: &str = "no answer in time: check that the server runs and can be reached";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_servers::mariadb::MariaDb;

    use super::*;

    #[tokio::test]
    async fn who_stops_half_way_through_a_transaction_gives_its_rows_back() {
        let server = MariaDb::start();
        let link = Link::new(Target::parse(&format!("{}?timeout=1s", server.url())).unwrap());
        let soon = || Instant::now() + Duration::from_secs(30);
        let keep = "START TRANSACTION; SELECT format FROM leasehold_store FOR UPDATE";
        let mut stopped = link.connected(soon()).await.unwrap();
        stopped.say(keep).await.unwrap();
        let mut next = link.connected(soon()).await.unwrap();
        // A row is waited for for a second.
        let mut tries = 0;
        while next.say(keep).await.is_err() {
            tries += 1;
            assert!(tries < 10, "the row is kept for ever");
        }
    }
}
