//! The MySQL store on MariaDB before the suite that judges every store.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Error, ErrorKind, Fut, Key, Result, Store};
use leasehold_servers::mariadb::MariaDb as Server;
use leasehold_servers::{Mode, Proxy};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

fn main() -> ExitCode {
    let pool: Arc<Pool> = Arc::default();
    let part = victim(store);
    part.unwrap_or_else(|| run("mysql", move || Ok(Judged::new(pool.clone()))))
}

/// Short, but long against a call on a busy machine.
const LEASE: Duration = Duration::from_millis(800);

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
    place: Mutex<Option<Place>>,
    url: String,
    direct: String,
    pool: Arc<Pool>,
}

const EMPTY: &str = "DELETE FROM test.leasehold_keys; DELETE FROM test.leasehold_claims;
    DELETE FROM test.leasehold_refusals";

impl Judged {
    fn new(pool: Arc<Pool>) -> Self {
        let idle = locked(&pool).pop();
        let place = idle.unwrap_or_else(|| {
            let server = Server::start();
            let tables = leasehold_mysql::init_sql("leasehold_").expect("a plain word");
            server.sql(&format!("USE test; {tables}"));
            let proxy = Proxy::to(server.port());
            Place { server, proxy }
        });
        place.proxy.set(Mode::Pass);
        place.server.sql(EMPTY);
        let url = format!("mysql://root@127.0.0.1:{}/test", place.proxy.port());
        Self { url, direct: place.server.url(), place: Mutex::new(Some(place)), pool }
    }

    fn with<T>(&self, body: impl FnOnce(&mut Place) -> T) -> T {
        body(locked(&self.place).as_mut().expect("it is given back when the trial ends"))
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.with(|place| place.proxy.set(mode));
        Hook::Does(Box::pin(async { Ok(()) }))
    }

    /// What is stored about a lock. Every refusal is counted: a trial has its server for itself.
    async fn read(&self, key: &Key) -> Result<RawState, mysql_async::Error> {
        const COUNT: &str = "SELECT
            (SELECT count(*) FROM leasehold_claims WHERE name = ?1 AND held > 0),
            (SELECT CAST(coalesce(sum(held), 0) AS SIGNED) FROM leasehold_claims WHERE name = ?1),
            (SELECT count(*) FROM leasehold_claims WHERE name = ?1 AND held < wanted),
            (SELECT count(*) FROM leasehold_claims WHERE name = ?1)
                + (SELECT count(*) FROM leasehold_keys WHERE name = ?1) + (SELECT count(*) FROM leasehold_refusals)";
        let mut conn = Conn::new(Opts::from_url(&self.direct)?).await?;
        let name: String = key.as_str().bytes().map(|b| format!("{b:02x}")).collect();
        let counts = conn.query_first(COUNT.replace("?1", &format!("x'{name}'"))).await?;
        conn.disconnect().await?;
        let (holders, units, waiters, residue): (u32, u64, u32, u32) = counts.unwrap_or_default();
        Ok(RawState {
            holders: holders as usize,
            units,
            waiters: waiters as usize,
            residue: residue as usize,
        })
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
        LEASE
    }

    fn kill_holder<'a>(&'a self, key: &'a Key) -> Hook<'a> {
        Hook::Does(Box::pin(kill_one_that_holds(&self.url, key, LEASE)))
    }

    fn cut(&self) -> Hook<'_> {
        self.set(Mode::Hold)
    }

    fn heal(&self) -> Hook<'_> {
        self.set(Mode::Pass)
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
