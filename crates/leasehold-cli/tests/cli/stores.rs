//! One server of every kind, for tests that must hold on every store.

use std::any::Any;

use leasehold_servers::consul::Consul;
use leasehold_servers::etcd::Etcd;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::memcached::Memcached;
use leasehold_servers::postgres::Postgres;
use leasehold_servers::redis::Redis;
use leasehold_servers::zookeeper::ZooKeeper;

/// A store, and the URLs by which it is tried: a database has several kinds of locks.
pub(crate) struct Stores {
    pub(crate) urls: Vec<String>,
    /// Dropped last: its servers stop then.
    _servers: Box<dyn Any>,
}

impl Stores {
    fn new(urls: Vec<String>, servers: impl Any) -> Self {
        Self { urls, _servers: Box::new(servers) }
    }

    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::new(vec![format!("sqlite://{}", directory.path().join("locks.db").display())], directory)
    }

    pub(crate) fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::new(vec![format!("file://{}", directory.path().display())], directory)
    }

    pub(crate) fn redis() -> Self {
        let server = Redis::start();
        Self::new(vec![server.url()], server)
    }

    pub(crate) fn postgres() -> Self {
        let server = Postgres::start();
        Self::new(modes(&server.url()), server)
    }

    pub(crate) fn mariadb() -> Self {
        let server = MariaDb::start();
        Self::new(modes(&server.url()), server)
    }

    pub(crate) fn zookeeper() -> Self {
        let server = ZooKeeper::start();
        Self::new(vec![server.url()], server)
    }

    pub(crate) fn etcd() -> Self {
        let server = Etcd::start();
        Self::new(vec![server.url()], server)
    }

    pub(crate) fn consul() -> Self {
        let server = Consul::start();
        Self::new(vec![server.url()], server)
    }

    pub(crate) fn memcached() -> Self {
        let server = Memcached::start();
        Self::new(vec![server.url()], server)
    }

    pub(crate) fn quorums() -> Self {
        let servers = [Redis::start(), Redis::start(), Redis::start()];
        let hosts = servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port())).join(",");
        let members = servers.each_ref().map(|server| format!("{}/1", server.url())).join(",");
        let redlock = format!("redlock://{hosts}?restart_quarantine=off");
        Self::new(vec![redlock, format!("quorum:restart_quarantine=off,{members}")], servers)
    }
}

fn modes(url: &str) -> Vec<String> {
    ["", "?mode=advisory", "?mode=rowlock"].map(|mode| format!("{url}{mode}")).to_vec()
}
