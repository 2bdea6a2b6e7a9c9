//! The ZooKeeper store on a single server, before the suite that judges every store.

mod judged;

use std::process::ExitCode;

use judged::{Place, judge};
use leasehold_servers::Proxy;
use leasehold_servers::zookeeper::ZooKeeper;

fn main() -> ExitCode {
    judge::<Single>("zookeeper")
}

/// A server behind a proxy that can cut it off.
#[derive(Debug)]
struct Single {
    server: ZooKeeper,
    proxy: Proxy,
}

impl Place for Single {
    fn start() -> Self {
        let server = ZooKeeper::start();
        let proxy = Proxy::to(server.port());
        Self { server, proxy }
    }

    fn proxies(&self) -> &[Proxy] {
        std::slice::from_ref(&self.proxy)
    }

    fn ports(&mut self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn restart(&mut self) {
        self.server.restart();
    }
}
