//! A server for each trial, behind a proxy that can cut it off, in one of the modes.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Error, ErrorKind, Fut, Key, Result, Store};
use leasehold_servers::mariadb::MariaDb as Server;
use leasehold_servers::{Mode, Proxy};
use mysql_async::{Conn, Opts};

/// A look at the server without the library.
pub(crate) type Look =
    for<'a> fn(
        &'a mut Conn,
        &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<RawState, mysql_async::Error>> + Send + 'a>>;

/// What locks are kept as, and how to see them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) name: &'static str,
    pub(crate) look: Look,
}

/// Judges the store in a mode.
pub(crate) fn judge(program: &'static str, mode: Kept) -> ExitCode {
    let pool: Arc<Pool> = Arc::default();
    let part = victim(store);
    part.unwrap_or_else(|| run(program, move || Ok(Judged::new(pool.clone(), mode))))
}

/// Bytes as the server writes them.
pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

/// Short, but long against a call on a busy machine; where connections end with it, against a moment in which nothing runs.
fn lease(mode: Kept) -> Duration {
    Duration::from_millis(if mode.name == "lease" { 1500 } else { 2500 })
}

fn store(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(leasehold_mysql::Mysql::from_url(url)?))
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

const EMPTY: &str = "DELETE FROM test.leasehold_keys; DELETE FROM test.leasehold_claims;
    DELETE FROM test.leasehold_refusals; DELETE FROM test.leasehold_rows";

impl Judged {
    fn new(pool: Arc<Pool>, mode: Kept) -> Self {
        let idle = locked(&pool).pop();
        let place = idle.unwrap_or_else(|| {
            let server = Server::start();
            let tables = leasehold_mysql::init_sql("leasehold_").expect("a plain word");
            server.sql(&format!("USE test; {tables}; SET GLOBAL innodb_status_output_locks = ON"));
            let proxy = Proxy::to(server.port());
            Place { server, proxy }
        });
        place.proxy.set(Mode::Pass);
        place.server.sql(EMPTY);
        let url = format!("mysql://root@127.0.0.1:{}/test?mode={}", place.proxy.port(), mode.name);
        Self { mode, url, direct: place.server.url(), place: Mutex::new(Some(place)), pool }
    }

    fn with<T>(&self, body: impl FnOnce(&mut Place) -> T) -> T {
        body(locked(&self.place).as_mut().expect("it is given back when the trial ends"))
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.with(|place| place.proxy.set(mode));
        Hook::Does(Box::pin(async { Ok(()) }))
    }

    /// What is there of a lock.
    async fn read(&self, key: &Key) -> Result<RawState, mysql_async::Error> {
        let mut conn = Conn::new(Opts::from_url(&self.direct)?).await?;
        let seen = (self.mode.look)(&mut conn, key.as_str()).await;
        conn.disconnect().await?;
        seen
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

    /// More than the store reads of a queue at first.
    fn crowd(&self) -> usize {
        250
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
