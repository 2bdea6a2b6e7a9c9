//! `mode=advisory` and `mode=rowlock`: the database's own locks, each on a connection that nobody else uses.
//!
//! `leasehold_sql` says which connection, and for how long; here is what is said on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{join, join3, try_join_all};
use leasehold_core::{Error, ErrorKind, Info, Key, Leases, Result, TokenStrength};
use leasehold_sql::{CAPABILITIES, Carries, Connection, Database, Held, Mode, Pinned, Sharing};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row, Statement};

use crate::ask;
use crate::fault::{Silence, Unreachable, is_missing, is_over};
use crate::link::Link;
use crate::link::dial::{Dialed, Task, Way, late};
use crate::names::encode;
use crate::reply;
use crate::sql::{Verb, inside};

/// What advisory locks are and promise.
pub static ADVISORY: Info = Info {
    name: "postgres",
    capabilities: CAPABILITIES,
    tokens: TokenStrength::Durable,
    leases: Leases::Shared,
    ordered: false,
    pushes: false,
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(20 * 24 * 3600),
    rounding: Duration::from_millis(1),
    // What our side may do first.
    expiry_slack: MARGIN,
    batch: 400,
    checks: Vec::new(),
};

/// How much later than our side the server ends a line that was silent: it is there for when our side is not.
const MARGIN: Duration = Duration::from_millis(250);

/// What row locks are and promise.
pub static ROWLOCK: Info = Info { name: "postgres", checks: Vec::new(), ..ADVISORY };

/// How many locks are given back between two looks for rows that dead clients left, and how many one look removes.
const SWEEP_EVERY: u64 = 32;

pub(crate) fn advisory(link: Link) -> Pinned<Locks> {
    pinned(link, &ADVISORY, Carries::Many)
}

pub(crate) fn rowlock(link: Link) -> Pinned<Locks> {
    pinned(link, &ROWLOCK, Carries::One)
}

fn pinned(link: Link, info: &'static Info, carries: Carries) -> Pinned<Locks> {
    let limit = link.way().target.timeout;
    Pinned::new(Locks { link, given: Arc::default() }, info, carries, limit)
}

/// The locks of a database.
#[derive(Debug)]
pub(crate) struct Locks {
    link: Link,
    given: Arc<AtomicU64>,
}

impl Locks {
    fn way(&self) -> &Arc<Way> {
        self.link.way()
    }

    async fn dial(&self, silence: Duration) -> Result<Line, Unreachable> {
        let way = self.way();
        let Dialed { client, task, is_direct } =
            way.dial_as(&way.target.pinned(silence + MARGIN), None).await?;
        if !is_direct {
            let message = format!(
                "{}: a pooler is in between, and would hand our locks to others: connect past it, or use mode=lease",
                way.target.place()
            );
            return Err(Unreachable::new(ErrorKind::Invalid, message));
        }
        let failed = |error| Unreachable::connecting(&error, &way.target.place());
        let mut said = Said::prepare(&client, way).await;
        if said.as_ref().is_err_and(is_missing) {
            // An older release made the schema.
            client.batch_execute(&way.texts.init).await.map_err(failed)?;
            said = Said::prepare(&client, way).await;
        }
        let said = said.map_err(failed)?;
        let row = client.query_typed_one(NUMBER, &[]).await.map_err(failed)?;
        let number = row.try_get::<_, i32>(0).map_err(failed)?.unsigned_abs();
        let given = self.given.clone();
        Ok(Line { client, task, said, number: number.into(), link: self.link.clone(), given })
    }
}

/// The server's number for this session.
const NUMBER: &str = "SELECT pg_backend_pid()";

impl Database for Locks {
    type Connection = Line;

    async fn check(&self) -> Result<()> {
        self.connect(Duration::from_secs(60)).await.map(drop)
    }

    async fn connect(&self, silence: Duration) -> Result<Line> {
        let target = &self.way().target;
        let made = timeout(target.connect_limit(), self.dial(silence)).await;
        let made = made.unwrap_or_else(|_| Err(late().at(&target.place())));
        made.map_err(|unreachable| unreachable.to_error())
    }

    async fn holders(&self, key: &Key) -> Result<Vec<Held>> {
        let target = &self.way().target;
        let verb = if target.mode == Mode::RowLock { Verb::RowLock } else { Verb::Advisory };
        let rows = self.link.call(ask::holders(verb, hashed(&target.schema, key))).await?;
        let held = |row: &Row| {
            let sharing = if reply::get(row, 1)? { Sharing::Shared } else { Sharing::Exclusive };
            Ok(Held { connection: Some(reply::get::<i32>(row, 0)?.unsigned_abs().into()), sharing })
        };
        rows.iter().map(held).collect()
    }
}

/// What is hashed to 64 bits: other programs have advisory locks too.
fn hashed(schema: &str, key: &Key) -> String {
    format!("leasehold/{schema}/{}", encode(key.as_str()))
}

/// A connection that has locks.
#[derive(Debug)]
pub(crate) struct Line {
    client: Client,
    task: Task,
    said: Said,
    number: u64,
    link: Link,
    given: Arc<AtomicU64>,
}

/// The statements, as the server knows them.
enum Said {
    Advisory {
        take: [Statement; 2],
        wait: [Statement; 2],
        give: [Statement; 2],
    },
    RowLock {
        make: Statement,
        take: [Statement; 2],
        wait: [Statement; 2],
        clean: Statement,
        sweep: Statement,
    },
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Advisory { .. } => "Advisory",
            Self::RowLock { .. } => "RowLock",
        })
    }
}

/// First for who shares, then for who is alone. The number is drawn when the lock is there: tokens rise in the order of grants.
/// It is drawn from the sequence that is there then, even if a dump was restored since this session connected.
fn takes(mode: Mode) -> [String; 2] {
    match mode {
        Mode::RowLock => rows(" SKIP LOCKED"),
        _ => ["_shared", ""].map(|how| {
            format!(
                "SELECT CASE WHEN pg_try_advisory_lock{how}(hashtextextended($1, 0)) \
                 THEN CASE WHEN leasehold.follow_1() THEN leasehold.draw_1() END END"
            )
        }),
    }
}

/// The same for who waits until the lock is free, as long as the limit allows.
fn waits(mode: Mode) -> [String; 2] {
    match mode {
        Mode::RowLock => rows(""),
        _ => ["_shared", ""].map(|how| {
            // One in the other, so that one happens after the other.
            format!(
                "SELECT CASE WHEN set_config('lock_timeout', $2, true) IS NOT NULL \
                 THEN CASE WHEN pg_advisory_lock{how}(hashtextextended($1, 0))::text IS NOT NULL \
                 THEN CASE WHEN leasehold.follow_1() THEN leasehold.draw_1() END END END"
            )
        }),
    }
}

fn rows(if_locked: &str) -> [String; 2] {
    ["share", "update"].map(|how| {
            // The row is locked inside; what is outside happens after that. The name of the program ends with the transaction.
            format!(
                "WITH it AS MATERIALIZED (SELECT FROM leasehold.rows r WHERE r.name = $1 FOR {how}{if_locked}) \
                 SELECT leasehold.draw_1(), \
                 set_config('application_name', 'leasehold row {how} ' || to_hex(hashtextextended($2, 0)), true) FROM it"
            )
    })
}

const GIVE: [&str; 2] = [
    "SELECT pg_advisory_unlock_shared(hashtextextended($1, 0))",
    "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
];

/// Before the transaction that keeps the row: one that stays open must not keep others from following the sequence.
const MAKE: &str =
    "INSERT INTO leasehold.rows (name) SELECT $1 WHERE leasehold.follow_1() ON CONFLICT DO NOTHING";

/// Only what nobody has locked, and nobody is about to.
const CLEAN: &str = "DELETE FROM leasehold.rows WHERE name IN \
                     (SELECT r.name FROM leasehold.rows r WHERE r.name = $1 FOR UPDATE SKIP LOCKED)";
const SWEEP: &str = "DELETE FROM leasehold.rows WHERE name IN \
                     (SELECT r.name FROM leasehold.rows r LIMIT 128 FOR UPDATE SKIP LOCKED)";

impl Said {
    async fn prepare(client: &Client, way: &Way) -> Result<Self, tokio_postgres::Error> {
        let mode = way.target.mode;
        let mut texts = [takes(mode), waits(mode)].concat();
        match mode {
            Mode::RowLock => texts.extend([MAKE, CLEAN, SWEEP].map(str::to_owned)),
            _ => texts.extend(GIVE.map(str::to_owned)),
        }
        let texts: Vec<_> = texts.iter().map(|text| inside(&way.target.schema, text)).collect();
        let types = |text: &str| if text.contains("$2") { 2 } else { usize::from(text.contains("$1")) };
        let prepare =
            texts.iter().map(|text| client.prepare_typed(text, &[Type::TEXT, Type::TEXT][..types(text)]));
        let mut all = try_join_all(prepare).await?.into_iter();
        let mut next = || all.next().expect("as many as there are texts");
        let (take, wait) = ([next(), next()], [next(), next()]);
        Ok(match mode {
            Mode::RowLock => Self::RowLock { make: next(), take, wait, clean: next(), sweep: next() },
            _ => Self::Advisory { take, wait, give: [next(), next()] },
        })
    }
}

impl Line {
    fn hashed(&self, key: &Key) -> String {
        hashed(&self.link.way().target.schema, key)
    }

    /// Waits once. Nothing when there was nothing to wait for any more.
    async fn wait_for(
        &self,
        key: &Key,
        sharing: Sharing,
        limit: Duration,
    ) -> Result<Option<Row>, tokio_postgres::Error> {
        // No limit would be 0.
        let limit = limit.as_millis().max(1).to_string();
        let (name, hashed, client) = (encode(key.as_str()), self.hashed(key), &self.client);
        match &self.said {
            Said::Advisory { wait, .. } => client.query_opt(&wait[at(sharing)], &[&hashed, &limit]).await,
            Said::RowLock { make, wait, .. } => {
                let begin = format!("BEGIN; SET LOCAL lock_timeout = {limit}");
                let (made, begun, taken) = join3(
                    client.execute(make, &[&name]),
                    client.batch_execute(&begin),
                    client.query_opt(&wait[at(sharing)], &[&name, &hashed]),
                )
                .await;
                made.map(drop).and(begun).and(taken)
            }
        }
    }

    /// Ends an attempt to get a lock.
    async fn let_go(&self, key: &Key, sharing: Sharing) -> Result<()> {
        match &self.said {
            Said::Advisory { .. } => self.give(key, sharing).await,
            Said::RowLock { .. } => self.client.batch_execute("ROLLBACK").await.map_err(failed),
        }
    }
}

fn failed(error: tokio_postgres::Error) -> Error {
    Silence::Failed(error).into_error()
}

/// Which of two statements.
fn at(sharing: Sharing) -> usize {
    usize::from(sharing == Sharing::Exclusive)
}

impl Connection for Line {
    fn number(&self) -> u64 {
        self.number
    }

    async fn take(&self, key: &Key, sharing: Sharing) -> Result<Option<u64>> {
        let (name, hashed, client) = (encode(key.as_str()), self.hashed(key), &self.client);
        match &self.said {
            Said::Advisory { take, .. } => {
                let row = client.query_one(&take[at(sharing)], &[&hashed]).await.map_err(failed)?;
                Ok(reply::get::<Option<i64>>(&row, 0)?.map(i64::cast_unsigned))
            }
            Said::RowLock { make, take, .. } => {
                let (made, begun, taken) = join3(
                    client.execute(make, &[&name]),
                    client.batch_execute("BEGIN"),
                    client.query_opt(&take[at(sharing)], &[&name, &hashed]),
                )
                .await;
                made.and(begun).map_err(failed)?;
                let Some(row) = taken.map_err(failed)? else {
                    return self.let_go(key, sharing).await.map(|()| None);
                };
                Ok(Some(reply::get::<i64>(&row, 0)?.cast_unsigned()))
            }
        }
    }

    async fn wait(&self, key: &Key, sharing: Sharing, about: Duration) -> Result<Option<u64>> {
        let until = Instant::now() + about;
        loop {
            let row = match self.wait_for(key, sharing, until - Instant::now()).await {
                Err(error) if !is_over(&error) => return Err(failed(error)),
                other => other,
            };
            if let Ok(Some(row)) = row {
                return Ok(Some(reply::get::<i64>(&row, 0)?.cast_unsigned()));
            }
            // What failed may have the lock all the same: a session keeps it.
            self.let_go(key, sharing).await?;
            // Who had a row removes it, and may be quicker than who waited for it: then it is made again.
            if row.is_err() || Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    async fn cancel(&self) {
        let way = self.link.way();
        let asked = timeout(way.target.connect_timeout, way.cancel(&self.client)).await;
        if !matches!(asked, Ok(Ok(()))) {
            tracing::debug!("cannot cancel a wait: it ends by itself");
        }
    }

    async fn give(&self, key: &Key, sharing: Sharing) -> Result<()> {
        let client = &self.client;
        match &self.said {
            Said::Advisory { give, .. } => {
                client.execute(&give[at(sharing)], &[&self.hashed(key)]).await.map(drop)
            }
            Said::RowLock { clean, sweep, .. } => {
                let name = encode(key.as_str());
                let (ended, cleaned) =
                    join(client.batch_execute("COMMIT"), client.execute(clean, &[&name])).await;
                if (self.given.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(SWEEP_EVERY) {
                    client.execute(sweep, &[]).await.map_err(failed)?;
                }
                ended.and(cleaned.map(drop))
            }
        }
        .map_err(failed)
    }

    async fn beat(&self) -> Result<()> {
        self.client.batch_execute("").await.map_err(failed)
    }

    async fn ended(&self) {
        self.task.ended().await;
    }
}
