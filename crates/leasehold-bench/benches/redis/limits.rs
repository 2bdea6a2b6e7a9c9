//! The least that the job could cost with the same client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_bench::round::Inside;
use leasehold_bench::subject::{Outcome, Subject};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};

/// The list of [`BlpopLoop`]: not the name of a lock, which others would find taken.
const LIST: &str = "bench/token";
const LEASE_MILLIS: u64 = 30_000;
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// Answers with the number of keys that were extended.
const EXTEND: &str = "local n = 0 for _, key in ipairs(KEYS) do \
                      if redis.call('GET', key) == ARGV[1] then n = n + redis.call('PEXPIRE', key, ARGV[2]) end end return n";
const SET: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";

/// A connection with the settings that ours has.
pub(crate) async fn connect(url: &str) -> Outcome<MultiplexedConnection> {
    let info = url.into_connection_info()?;
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    // A blocked BLPOP is no failure.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(info.set_tcp_settings(tcp))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// What everybody writes first.
#[derive(Clone, Debug)]
pub(crate) struct SetAndDelete {
    connection: MultiplexedConnection,
    delete: Arc<Script>,
}

impl SetAndDelete {
    pub(crate) async fn connect(url: &str) -> Outcome<Self> {
        Ok(Self { connection: connect(url).await?, delete: Arc::new(Script::new(DELETE)) })
    }
}

impl Subject for SetAndDelete {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let (mut connection, secret) = (self.connection.clone(), fastrand::u64(..));
        let mut set = redis::cmd("SET");
        set.arg(name).arg(secret).arg("NX").arg("PX").arg(LEASE_MILLIS);
        let got: Option<String> = set.query_async(&mut connection).await?;
        got.ok_or("the lock was not free")?;
        inside.await;
        let _: i64 = self.delete.key(name).arg(secret).invoke_async(&mut connection).await?;
        Ok(())
    }
}

/// The same as two calls of scripts.
#[derive(Clone, Debug)]
pub(crate) struct TwoScripts {
    connection: MultiplexedConnection,
    set: Arc<Script>,
    delete: Arc<Script>,
}

impl TwoScripts {
    pub(crate) async fn connect(url: &str) -> Outcome<Self> {
        let (set, delete) = (Arc::new(Script::new(SET)), Arc::new(Script::new(DELETE)));
        Ok(Self { connection: connect(url).await?, set, delete })
    }
}

impl Subject for TwoScripts {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let (mut connection, secret) = (self.connection.clone(), fastrand::u64(..));
        let set = self.set.key(name).arg(secret).arg(LEASE_MILLIS).invoke_async(&mut connection).await?;
        let _: String = Option::ok_or(set, "the lock was not free")?;
        inside.await;
        let _: i64 = self.delete.key(name).arg(secret).invoke_async(&mut connection).await?;
        Ok(())
    }
}

/// A token that is pushed from hand to hand: what handing over must cost. A blocked BLPOP blocks its connection, so
/// everybody has one.
#[derive(Clone, Debug)]
pub(crate) struct BlpopLoop(Arc<Mutex<Vec<MultiplexedConnection>>>);

impl BlpopLoop {
    pub(crate) async fn connect(url: &str, tasks: usize) -> Outcome<Self> {
        let mut connections = Vec::new();
        for _ in 0..tasks {
            connections.push(connect(url).await?);
        }
        let _: i64 = redis::cmd("DEL").arg(LIST).query_async(&mut connections[0]).await?;
        let _: i64 = redis::cmd("RPUSH").arg(LIST).arg("x").query_async(&mut connections[0]).await?;
        Ok(Self(Arc::new(Mutex::new(connections))))
    }

    fn free(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for BlpopLoop {
    async fn pair(&self, _name: &str, inside: impl Inside) -> Outcome<()> {
        let mut connection = self.free().pop().ok_or("more tasks than connections")?;
        let _: (String, String) = redis::cmd("BLPOP").arg(LIST).arg(0).query_async(&mut connection).await?;
        inside.await;
        let _: i64 = redis::cmd("RPUSH").arg(LIST).arg("x").query_async(&mut connection).await?;
        self.free().push(connection);
        Ok(())
    }
}

/// Locks that are extended by nothing but a script that compares and extends: as often as ours on average, as many in one
/// call as ours, and at as many points of time.
#[derive(Debug)]
pub(crate) struct RawRenewals {
    connection: MultiplexedConnection,
    extend: Script,
    names: Vec<String>,
    secret: u64,
    lease: Duration,
}

impl RawRenewals {
    /// The keys in one call.
    const BATCH: usize = 400;
    /// How often in a third of the lease some of the locks are extended.
    const POINTS: usize = 20;

    pub(crate) async fn acquire(url: &str, locks: usize, lease: Duration) -> Outcome<Self> {
        let (mut connection, secret) = (connect(url).await?, fastrand::u64(..));
        let names: Vec<String> = (0..locks).map(|n| format!("bench/raw-{n}")).collect();
        let millis = u64::try_from(lease.as_millis())?;
        for names in names.chunks(Self::BATCH) {
            let mut sets = redis::pipe();
            names.iter().for_each(|name| {
                sets.cmd("SET").arg(name).arg(secret).arg("PX").arg(millis).ignore();
            });
            let () = sets.query_async(&mut connection).await?;
        }
        Ok(Self { connection, extend: Script::new(EXTEND), names, secret, lease })
    }

    /// Extends all of them again and again.
    pub(crate) async fn renew(&mut self) -> Outcome<()> {
        let millis = u64::try_from(self.lease.as_millis())?;
        // Ours are extended after 0.85 to 1 of a third.
        let third = (self.lease / 3).mul_f64(0.925);
        let mut ticks = tokio::time::interval(third / u32::try_from(Self::POINTS)?);
        loop {
            for names in self.names.chunks(self.names.len().div_ceil(Self::POINTS)) {
                ticks.tick().await;
                for names in names.chunks(Self::BATCH) {
                    let mut call = self.extend.prepare_invoke();
                    for name in names {
                        call.key(name);
                    }
                    let call = call.arg(self.secret).arg(millis);
                    let extended: usize = call.invoke_async(&mut self.connection).await?;
                    if extended < names.len() {
                        return Err("a lock was lost while it was held".into());
                    }
                }
            }
        }
    }
}
