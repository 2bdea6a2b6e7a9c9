//! The Consul store on a single server, before the suite that judges every store.

mod judged;

use std::process::ExitCode;

use judged::{Place, judge};
use leasehold_servers::Proxy;
use leasehold_servers::consul::Consul;

fn main() -> ExitCode {
    judge::<Single>("consul")
}

/// A server behind a proxy that can cut it off.
#[derive(Debug)]
struct Single {
    server: Consul,
    proxy: Proxy,
}

impl Place for Single {
    fn start() -> Self {
        let server = Consul::start();
        let proxy = Proxy::to(server.port());
        Self { server, proxy }
    }

    fn url(&self) -> String {
        format!("consul://127.0.0.1:{}?min_lease=1s", self.proxy.port())
    }

    fn ask(&self, method: &str, path: &str) -> (u16, String) {
        self.server.ask(method, path, "")
    }

    fn restart(&mut self) -> Result<(), &'static str> {
        self.server.restart();
        Ok(())
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }
}
