//! memcached before the suite that judges every store.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, Lent, Pool, RawState, kill_one_that_holds, run, victim};
use leasehold_core::{Fut, Key, Result, Store};
use leasehold_servers::memcached::Memcached;
use leasehold_servers::{Mode, Proxy};
use serde_json::Value;

/// As short as leaves time between what a guard gives away and a busy machine.
const LEASE: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    let pool = Pool::default();
    victim(open).unwrap_or_else(|| run("memcached", move || Ok(Judged::new(&pool))))
}

fn open(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(leasehold_memcached::memcached(url)?))
}

/// A server behind a proxy that can cut it off.
#[derive(Debug)]
struct Server {
    memcached: Memcached,
    proxy: Proxy,
}

/// A server that one trial has for itself.
#[derive(Debug)]
struct Judged {
    server: Lent<Server>,
    url: String,
}

impl Judged {
    fn new(pool: &Pool<Server>) -> Self {
        let server = pool.lend(|| {
            let memcached = Memcached::start();
            let proxy = Proxy::to(memcached.port());
            Server { memcached, proxy }
        });
        let url = server.with(|server| {
            server.proxy.set(Mode::Pass);
            server.memcached.ask("flush_all", "OK");
            format!("memcached://127.0.0.1:{}", server.proxy.port())
        });
        Self { server, url }
    }

    fn set(&self, mode: Mode) -> Hook<'_> {
        self.server.with(|server| server.proxy.set(mode));
        Hook::Does(Box::pin(async { Ok(()) }))
    }
}

/// The records on the server, as it tells them to anybody.
fn records(server: &Memcached) -> Vec<Value> {
    let lines = server.ask("lru_crawler metadump all", "END");
    let names = lines.iter().filter_map(|line| line.strip_prefix("key=")?.split(' ').next());
    let names = names.map(|name| percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned());
    let names = names.filter(|name| name.starts_with("leasehold:") || name.starts_with("leasehold#"));
    let record = |name: String| server.ask(&format!("get {name}"), "END").into_iter().nth(1);
    names.filter_map(record).map(|text| serde_json::from_str(&text).expect("a record is JSON")).collect()
}

/// The record of a key whose name is written as it is: a list of all items may leave out one that is just written.
fn named(server: &Memcached, key: &Key) -> Option<Value> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/.".contains(&byte);
    if key.as_str().len() > 200 || !key.as_str().bytes().all(plain) {
        return None;
    }
    let text = server.ask(&format!("get leasehold:{}", key.as_str()), "END").into_iter().nth(1)?;
    Some(serde_json::from_str(&text).expect("a record is JSON"))
}

fn now(server: &Memcached) -> u64 {
    let statistics = server.ask("stats", "END");
    let seconds = statistics.iter().find_map(|line| line.strip_prefix("STAT time ")?.parse::<u64>().ok());
    seconds.expect("it tells the time") * 1000
}

impl Fixture for Judged {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { open(&self.url) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let (mut records, now) =
                self.server.with(|server| (records(&server.memcached), now(&server.memcached)));
            let is_of_key = |record: &Value| record["key"].as_str() == Some(key.as_str());
            if let Some(record) = self.server.with(|server| named(&server.memcached, key)) {
                records.retain(|other| !is_of_key(other));
                records.push(record);
            }
            Ok(RawState::of_records(&records, key, now))
        })
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn crowd(&self) -> usize {
        150
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
        self.server.with(|server| server.memcached.restart());
        Hook::Does(Box::pin(async { Ok(()) }))
    }
}
