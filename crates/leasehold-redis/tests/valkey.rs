//! The Redis store on a single Valkey server, before the suite that judges every store.

mod judged;

use std::process::ExitCode;
use std::sync::Arc;

use judged::{Place, judge};
use leasehold_core::{Error, ErrorKind, Result, Store};
use leasehold_servers::Proxy;
use leasehold_servers::redis::{Redis, valkey};

fn main() -> ExitCode {
    judge::<Single>("valkey")
}

/// A server behind a proxy that can cut it off.
#[derive(Debug)]
struct Single {
    server: Redis,
    proxy: Proxy,
}

impl Place for Single {
    fn is_there() -> Result<()> {
        valkey().map(drop).map_err(|missing| Error::new(ErrorKind::Unavailable, missing))
    }

    fn start() -> Self {
        let server = Redis::valkey();
        let proxy = Proxy::to(server.port());
        Self { server, proxy }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.proxy.port())
    }

    fn store(url: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(leasehold_redis::Redis::from_url(url)?))
    }

    fn primaries(&mut self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn restart(&mut self) -> Result<(), &'static str> {
        self.server.restart();
        Ok(())
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }
}
