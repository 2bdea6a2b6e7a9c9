//! The etcd store on a single server, before the suite that judges every store.

mod judged;

use std::process::ExitCode;
use std::time::Duration;

use judged::{Place, judge};
use leasehold_servers::Proxy;
use leasehold_servers::etcd::Etcd;

fn main() -> ExitCode {
    judge::<Single>("etcd")
}

/// A server behind a proxy that can cut it off.
#[derive(Debug)]
struct Single {
    server: Etcd,
    proxy: Proxy,
}

impl Place for Single {
    const LEASE: Duration = Duration::from_secs(1);
    const CROWD: usize = 300;

    fn start() -> Self {
        let server = Etcd::start();
        let proxy = Proxy::to(server.port());
        Self { server, proxy }
    }

    fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.proxy.port())
    }

    fn ask(&self, path: &str, body: &str) -> Option<String> {
        self.server.ask(path, body)
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn proxies(&self) -> Vec<&Proxy> {
        vec![&self.proxy]
    }
}
