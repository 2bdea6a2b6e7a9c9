//! The Consul store on a single server, before the suite that judges every store.

mod judged;

use std::process::ExitCode;

use judged::{Place, judge};
use leasehold_servers::Proxy;
use leasehold_servers::consul::Consul;

fn main() -> ExitCode {
    judge::<Single>("consul", None)
}

/// A server behind a proxy that can cut it off.
#[derive(Debug)]
struct Single {
    server: Consul,
    proxies: [Proxy; 1],
}

impl Place for Single {
    fn start() -> Self {
        let server = Consul::start();
        let proxies = [Proxy::to(server.port())];
        Self { server, proxies }
    }

    fn url(&self) -> String {
        format!("consul://127.0.0.1:{}?min_lease=1s", self.proxies[0].port())
    }

    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        self.server.ask(method, path, "")
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }
}
