//! The Redis store on a primary with two replicas and three sentinels, before the suite that judges every store.

mod judged;

use std::process::ExitCode;
use std::sync::Arc;

use judged::{Place, judge};
use leasehold_core::{Result, Store};
use leasehold_redis::Redis;
use leasehold_servers::Proxy;
use leasehold_servers::redis::Sentinel;

fn main() -> ExitCode {
    judge::<Watched>("redis+sentinel")
}

#[derive(Debug)]
struct Watched(Sentinel);

impl Place for Watched {
    fn start() -> Self {
        Self(Sentinel::start())
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn store(url: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Redis::from_url(url)?))
    }

    fn primaries(&mut self) -> Vec<u16> {
        vec![self.0.primary().port()]
    }

    /// Kills the primary for good: the sentinels choose another one.
    fn restart(&mut self) -> Result<(), &'static str> {
        let old = self.0.primary().port();
        self.0.primary().process().kill();
        self.0.wait_for_another_than(old);
        if let Some(server) = self.0.servers().iter_mut().find(|server| server.port() == old) {
            server.start_again();
        }
        Ok(())
    }

    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
