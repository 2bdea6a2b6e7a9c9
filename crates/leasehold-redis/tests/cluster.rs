//! The Redis store on a cluster of three primaries and three replicas, before the suite that judges every store.

mod judged;

use std::process::ExitCode;
use std::sync::Arc;

use judged::{Place, judge};
use leasehold_core::{Result, Store};
use leasehold_redis::Redis;
use leasehold_servers::Proxy;
use leasehold_servers::redis::Cluster;

fn main() -> ExitCode {
    judge::<Nodes>("redis+cluster")
}

#[derive(Debug)]
struct Nodes(Cluster);

impl Place for Nodes {
    fn start() -> Self {
        Self(Cluster::start())
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn store(url: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Redis::from_url(url)?))
    }

    fn primaries(&mut self) -> Vec<u16> {
        // Nothing fails over here.
        (0..3).map(|index| self.0.server(index).port()).collect()
    }

    fn restart(&mut self) -> Result<(), &'static str> {
        Err("a cluster's failover is a test of its own")
    }

    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
