//! The least that the job could cost with the same client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_bench::handover::{Times, rest};
use leasehold_bench::round::Inside;
use leasehold_bench::subject::{Outcome, Subject};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS bare (name VARBINARY(1024) NOT NULL PRIMARY KEY, owner BIGINT NOT NULL,
    until DATETIME(3) NOT NULL) ENGINE = InnoDB";
const TAKE: &str = "INSERT INTO bare VALUES (?, ?, NOW(3) + INTERVAL 30 SECOND)
    ON DUPLICATE KEY UPDATE owner = IF(until < NOW(3), VALUES(owner), owner)";
const GIVE: &str = "DELETE FROM bare WHERE name = ? AND owner = ?";

/// Connections without any of ours around them, each for one at a time.
#[derive(Clone)]
struct Connections(Arc<(Semaphore, Mutex<Vec<Conn>>)>);

impl Connections {
    async fn make(url: &str, count: usize) -> Outcome<Self> {
        let mut all = Vec::new();
        for _ in 0..count {
            let mut conn = Conn::new(Opts::from_url(url)?).await?;
            conn.query_drop(TABLE).await?;
            all.push(conn);
        }
        Ok(Self(Arc::new((Semaphore::new(count), Mutex::new(all)))))
    }

    /// One of them, until it is put back.
    async fn one(&self) -> Outcome<(SemaphorePermit<'_>, Conn)> {
        let place = self.0.0.acquire().await?;
        let conn = self.0.1.lock().await.pop().ok_or("fewer connections than places")?;
        Ok((place, conn))
    }

    async fn put_back(&self, conn: Conn) {
        self.0.1.lock().await.push(conn);
    }
}

/// One durable upsert, one durable delete, by primary key.
#[derive(Clone)]
pub(crate) struct Raw(Connections);

impl Raw {
    pub(crate) async fn connect(url: &str, connections: usize) -> Outcome<Self> {
        Ok(Self(Connections::make(url, connections).await?))
    }

    async fn say(&self, statement: &'static str, name: &str, owner: i64) -> Outcome<()> {
        let (_place, mut conn) = self.0.one().await?;
        conn.exec_drop(statement, (name, owner)).await?;
        let changed = conn.affected_rows();
        self.0.put_back(conn).await;
        if changed == 1 { Ok(()) } else { Err("the lock was not free".into()) }
    }
}

impl Subject for Raw {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let owner = fastrand::i64(..);
        self.say(TAKE, name, owner).await?;
        inside.await;
        self.say(GIVE, name, owner).await
    }
}

/// The server's named locks, which write nothing and have no tokens. A lock is the connection's, so who holds keeps it.
#[derive(Clone)]
pub(crate) struct Named(Connections);

impl Named {
    pub(crate) async fn connect(url: &str, connections: usize) -> Outcome<Self> {
        Ok(Self(Connections::make(url, connections).await?))
    }
}

impl Subject for Named {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let (_place, mut conn) = self.0.one().await?;
        take(&mut conn, name).await?;
        inside.await;
        conn.exec_drop("DO RELEASE_LOCK(?)", (name,)).await?;
        self.0.put_back(conn).await;
        Ok(())
    }
}

async fn take(conn: &mut Conn, name: &str) -> Outcome<()> {
    let taken: Option<Option<i64>> = conn.exec_first("SELECT GET_LOCK(?, 30)", (name,)).await?;
    if taken.flatten() == Some(1) { Ok(()) } else { Err("the lock was not to be had".into()) }
}

/// Two connections hand a named lock to and fro, the next one waiting at the server.
pub(crate) async fn waited(url: &str, length: Duration, times: &mut Times) -> Outcome<()> {
    let mut holder = Conn::new(Opts::from_url(url)?).await?;
    let mut next = Conn::new(Opts::from_url(url)?).await?;
    take(&mut holder, "wake").await?;
    let began = Instant::now();
    while began.elapsed() < length {
        let waiting = tokio::spawn(async move {
            take(&mut next, "wake").await?;
            Outcome::Ok((next, Instant::now()))
        });
        rest().await;
        let released = Instant::now();
        holder.exec_drop("DO RELEASE_LOCK(?)", ("wake",)).await?;
        let (granted, at) = waiting.await??;
        times.add(at - released);
        next = std::mem::replace(&mut holder, granted);
    }
    Ok(())
}
