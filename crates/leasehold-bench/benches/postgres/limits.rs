//! The least that the job could cost with the same client: one durable upsert, one durable delete, by primary key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_bench::round::Inside;
use leasehold_bench::subject::{Outcome, Subject};
use tokio_postgres::{Client, NoTls, Statement};

/// As many as a store of ours makes.
const CONNECTIONS: usize = 8;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, owner bigint NOT NULL, until timestamptz NOT NULL);
CREATE OR REPLACE FUNCTION bare_take(p_name text, p_owner bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bare VALUES (p_name, p_owner, clock_timestamp() + interval '30 s')
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE bare.until < clock_timestamp();
    RETURN CASE WHEN FOUND THEN 1 ELSE 0 END;
END $$;
CREATE OR REPLACE FUNCTION bare_give(p_name text, p_owner bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM bare WHERE name = p_name AND owner = p_owner;
    RETURN CASE WHEN FOUND THEN 1 ELSE 0 END;
END $$";

const TAKE: &str = "INSERT INTO bare VALUES ($1, $2, clock_timestamp() + interval '30 s')
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE bare.until < clock_timestamp()";
const GIVE: &str = "DELETE FROM bare WHERE name = $1 AND owner = $2";

// With a second value, so that all pairs are said alike.
const LOCK: &str = "SELECT 1 FROM pg_advisory_lock(hashtextextended($1, 0)) WHERE $2::bigint IS NOT NULL";
const UNLOCK: &str = "SELECT 1 WHERE $2::bigint IS NOT NULL AND pg_advisory_unlock(hashtextextended($1, 0))";

/// How the pair is said.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pair {
    Statements,
    Functions,
    /// Nothing is stored: both must go over the same connection.
    Advisory,
}

/// Connections without any of ours around them.
#[derive(Clone)]
pub(crate) struct Raw {
    wires: Arc<Vec<Wire>>,
    pinned: bool,
}

struct Wire {
    client: Client,
    take: Statement,
    give: Statement,
    busy: AtomicUsize,
}

/// A connection with the settings that ours has.
pub(crate) async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Raw {
    pub(crate) async fn connect(url: &str, pair: Pair) -> Outcome<Self> {
        let (take, give) = match pair {
            Pair::Statements => (TAKE, GIVE),
            Pair::Functions => ("SELECT bare_take($1, $2)", "SELECT bare_give($1, $2)"),
            Pair::Advisory => (LOCK, UNLOCK),
        };
        let mut wires = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = connect(url).await?;
            client.batch_execute(TABLE).await?;
            let (take, give) = (client.prepare(take).await?, client.prepare(give).await?);
            wires.push(Wire { client, take, give, busy: AtomicUsize::new(0) });
        }
        Ok(Self { wires: Arc::new(wires), pinned: matches!(pair, Pair::Advisory) })
    }

    /// The connection with the least to do.
    fn wire(&self) -> Outcome<&Wire> {
        Ok(self.wires.iter().min_by_key(|wire| wire.busy.load(Ordering::Relaxed)).ok_or("no connection")?)
    }
}

impl Wire {
    async fn say(&self, name: &str, owner: i64, statement: &Statement) -> Outcome<()> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let done = self.client.execute(statement, &[&name, &owner]).await;
        self.busy.fetch_sub(1, Ordering::Relaxed);
        if done? == 1 { Ok(()) } else { Err("the lock was not free".into()) }
    }
}

impl Subject for Raw {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let owner = fastrand::i64(..);
        let wire = self.wire()?;
        wire.say(name, owner, &wire.take).await?;
        inside.await;
        let wire = if self.pinned { wire } else { self.wire()? };
        wire.say(name, owner, &wire.give).await
    }
}
