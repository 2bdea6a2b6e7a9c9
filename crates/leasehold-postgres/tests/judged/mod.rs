//! A server for each trial, behind a proxy that can cut it off, in one of the modes.
#![allow(dead_code, reason = "each test program uses some of it")]

#[path = "../recipes/mod.rs"]
mod recipes;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Error, ErrorKind, Fut, Key, Result, Store};
use leasehold_servers::postgres::Postgres as Server;
use leasehold_servers::{Mode, Proxy};
use tokio_postgres::NoTls;

/// What locks are kept as, and how to see them without the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) name: &'static str,
    /// Holders, units, waiters and whatever is stored, of the lock called `$1`.
    pub(crate) count: &'static str,
}

/// Judges the store in a mode.
pub(crate) fn judge(program: &'static str, mode: Kept) -> ExitCode {
    let pool: Arc<Pool> = Arc::default();
    let part = victim(store);
    part.unwrap_or_else(|| run(program, move || Ok(Judged::new(pool.clone(), mode))))
}

/// Short, but long against a call on a busy machine; where connections end with it, against a moment in which nothing runs.
fn lease(mode: Kept) -> Duration {
    Duration::from_millis(if mode.name == "lease" { 1500 } else { 2500 })
}

fn store(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(leasehold_postgres::Postgres::from_url(url)?))
}

/// A server behind a proxy that can cut it off.
#[derive(Debug)]
struct Place {
    server: Server,
    proxy: Proxy,
}

type Pool = Mutex<Vec<Place>>;

/// A server that one trial has for itself.
#[derive(Debug)]
struct Judged {
    mode: Kept,
    place: Mutex<Option<Place>>,
    url: String,
    direct: String,
    pool: Arc<Pool>,
}

const EMPTY: &str = "DO $$ BEGIN IF to_regclass('leasehold.keys') IS NOT NULL THEN
    DELETE FROM leasehold.keys; DELETE FROM leasehold.claims; DELETE FROM leasehold.refusals;
    DELETE FROM leasehold.rows;
END IF; END $$";

impl Judged {
    fn new(pool: Arc<Pool>, mode: Kept) -> Self {
        let idle = locked(&pool).pop();
        let place = idle.unwrap_or_else(|| {
            let server = Server::start();
            server.sql(&leasehold_postgres::init_sql("leasehold").expect("a plain word"));
            server.sql("CREATE EXTENSION pgrowlocks");
            // The suite runs with the least rights, beside functions of another user that must never be called.
            server.sql(&recipes::rights("app"));
            server.sql(recipes::HOSTILE);
            let proxy = Proxy::to(server.port());
            Place { server, proxy }
        });
        place.proxy.set(Mode::Pass);
        place.server.sql(EMPTY);
        let url = format!("postgres://app@127.0.0.1:{}/postgres?mode={}", place.proxy.port(), mode.name);
        Self { mode, url, direct: place.server.url(), place: Mutex::new(Some(place)), pool }
    }

    fn with<T>(&self, body: impl FnOnce(&mut Place) -> T) -> T {
        body(locked(&self.place).as_mut().expect("it is given back when the trial ends"))
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.with(|place| place.proxy.set(mode));
        Hook::Does(Box::pin(async { Ok(()) }))
    }

    /// What is stored about a lock. Every refusal is counted: a trial has its server for itself.
    async fn read(&self, key: &Key) -> Result<RawState, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.direct, NoTls).await?;
        let moves = tokio::spawn(connection);
        let name = key.as_str().replace('\\', "\\\\").replace('\0', "\\0");
        let row = client.query_one(self.mode.count, &[&name]).await?;
        drop(client);
        let _ = moves.await;
        let number = |at| row.get::<_, i64>(at).unsigned_abs();
        let count = |at| usize::try_from(number(at)).expect("a few");
        Ok(RawState { holders: count(0), units: number(1), waiters: count(2), residue: count(3) })
    }
}

impl Drop for Judged {
    fn drop(&mut self) {
        locked(&self.pool).extend(locked(&self.place).take());
    }
}

impl Fixture for Judged {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { store(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move { self.read(key).await.map_err(failed) })
    }

    fn lease(&self) -> Duration {
        lease(self.mode)
    }

    fn kill_holder<'a>(&'a self, key: &'a Key, lease: Duration) -> Hook<'a, Killed> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, lease)))
    }

    fn cut(&self) -> Hook<'_> {
        self.set(Mode::Hold)
    }

    fn heal(&self) -> Hook<'_> {
        self.set(Mode::Pass)
    }

    fn stall(&self) -> Hook<'_> {
        self.set(Mode::Stall)
    }

    fn restart_server(&self) -> Hook<'_> {
        self.with(|place| place.server.restart());
        Hook::Does(Box::pin(async { Ok(()) }))
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "the test's own look at the server failed").because(error)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
