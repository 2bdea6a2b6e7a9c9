//! The wrong kind of server behind every scheme: a typed error in time, whatever it says.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind};
use leasehold_servers::{consul, etcd, free_port, mariadb, memcached, postgres, redis, zookeeper};
use libtest_mimic::{Failed, Trial};

use crate::ear::SECRET;
use crate::schemes::{SCHEMES, Scheme};
use crate::speeches::SPEECHES;

/// The limit of one call.
const CALL: Duration = Duration::from_secs(2);

/// The longest that connecting and asking once may take: a few calls, on a busy machine.
const ENDED: Duration = Duration::from_secs(30);

/// Servers of every kind, each started when the first client comes for it.
static SERVERS: LazyLock<[(&str, Server); 7]> = LazyLock::new(|| {
    [
        ("redis", Server::of(|| kept(redis::Redis::start(), redis::Redis::port))),
        ("postgres", Server::of(|| kept(postgres::Postgres::start(), postgres::Postgres::port))),
        ("memcached", Server::of(|| kept(memcached::Memcached::start(), memcached::Memcached::port))),
        ("mysql", Server::of(|| kept(mariadb::MariaDb::start(), mariadb::MariaDb::port))),
        ("zookeeper", Server::of(|| kept(zookeeper::ZooKeeper::start(), zookeeper::ZooKeeper::port))),
        ("etcd", Server::of(|| kept(etcd::Etcd::start(), etcd::Etcd::port))),
        ("consul", Server::of(|| kept(consul::Consul::start(), consul::Consul::port))),
    ]
});

/// A port, and what keeps it open.
type Open = (u16, Box<dyn std::any::Any + Send>);

struct Server {
    start: fn() -> Open,
    open: Mutex<Option<Open>>,
}

impl Server {
    fn of(start: fn() -> Open) -> Self {
        Self { start, open: Mutex::new(None) }
    }

    fn port(&self) -> u16 {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(self.start).0
    }
}

fn kept<S: Send + 'static>(server: S, port: impl Fn(&S) -> u16) -> Open {
    (port(&server), Box::new(server))
}

/// Stops the servers: what is static is never dropped.
pub(crate) fn go() {
    for (_, server) in &*SERVERS {
        server.open.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The drivers of ZooKeeper and PostgreSQL read an endless answer into memory until their time is over. So only two
/// trials with such a server run at a time, and the peak does not depend on how many happen to meet.
static ENDLESS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

/// Every client against every server that is not its own.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (number, scheme) in SCHEMES.iter().enumerate() {
        let mut add = |stranger: &str, port: Box<dyn FnOnce() -> u16 + Send>| {
            let name = format!("{}::strangers::{stranger}", scheme.name);
            let turn = stranger.starts_with("endless").then(|| &ENDLESS[number % ENDLESS.len()]);
            trials.push(Trial::test(name, move || {
                let _turn = turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
                is_refused(scheme, port())
            }));
        };
        for &(name, speech) in SPEECHES {
            add(name, Box::new(move || listener(name, move || speech.listen())));
        }
        add("nobody", Box::new(free_port));
        for (kind, server) in SERVERS.iter().filter(|(kind, _)| scheme.is_tls || *kind != scheme.server) {
            add(&format!("{kind} server"), Box::new(|| server.port()));
        }
    }
    trials
}

/// One listener of a kind is enough for all.
fn listener(name: &'static str, listen: impl FnOnce() -> u16) -> u16 {
    static PORTS: OnceLock<Mutex<HashMap<&str, u16>>> = OnceLock::new();
    let mut ports = PORTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    *ports.entry(name).or_insert_with(listen)
}

/// The client gives up in time, and its error is one that a program can act on.
fn is_refused(scheme: &Scheme, port: u16) -> Result<(), Failed> {
    let url = scheme.url(&format!("127.0.0.1:{port}"), "timeout=2s");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let start = Instant::now();
    let asked = runtime.block_on(async { tokio::time::timeout(ENDED, ask(&url)).await });
    let asked = asked.map_err(|_| format!("it never ended, after {:?}", start.elapsed()))?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    let error = asked.err().ok_or("it was taken for the right server")?;
    let said = format!("{error} / {error:?}");
    if said.contains(SECRET) {
        return Err("the password is in the error".into());
    }
    if said.len() > 8000 {
        return Err(format!("the error has {} characters", said.len()).into());
    }
    let is_typed = matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Protocol | ErrorKind::Denied
    );
    if is_typed { Ok(()) } else { Err(format!("{}: {said}", error.kind()).into()) }
}

async fn ask(url: &str) -> leasehold::Result<()> {
    let store: Arc<dyn leasehold::Store> = leasehold::open(url)?;
    let client = Client::builder().call_timeout(CALL).connect(store).await?;
    client.mutex("a lock").try_acquire().await?;
    Ok(())
}
