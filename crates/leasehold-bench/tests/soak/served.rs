//! Stores on servers: each starts one of its own, and counts what is stored there without the library.

#[path = "served/consul.rs"]
mod consul;
#[path = "served/etcd.rs"]
mod etcd;
#[path = "served/mysql.rs"]
mod mysql;
#[path = "served/postgres.rs"]
mod postgres;
#[path = "served/zookeeper.rs"]
mod zookeeper;

use std::fmt::Debug;
use std::pin::Pin;

use leasehold_servers::consul::Consul;
use leasehold_servers::etcd::Etcd;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::postgres::Postgres;
use leasehold_servers::zookeeper::ZooKeeper;

use crate::Outcome;

/// A look at a server.
pub(crate) type Look<'a> = Pin<Box<dyn Future<Output = Outcome<usize>> + Send + 'a>>;

/// A server with nothing on it. Gone when it is dropped.
pub(crate) trait Server: Debug + Send + Sync {
    /// What `--store` takes.
    fn url(&self) -> String;
    /// How many claims, keys and marks there are.
    fn rows(&self) -> Look<'_>;
    /// How many sessions of clients there are, whatever carries their claims: a client that is connected may have some.
    fn sessions(&self) -> Look<'_>;
}

/// Starts a server of its own.
type Start = fn() -> Box<dyn Server>;

/// All of them, by the names of their stores.
pub(crate) const SERVERS: &[(&str, Start)] = &[
    ("consul", || Box::new(Consul::start())),
    ("etcd", || Box::new(Etcd::start())),
    ("mysql", || Box::new(MariaDb::start())),
    ("postgres", || Box::new(Postgres::start())),
    ("zookeeper", || Box::new(ZooKeeper::start())),
];
