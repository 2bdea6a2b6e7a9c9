//! The Redis store on a Valkey primary with two replicas, one of which must have every grant, before the suite that judges
//! every store.

mod judged;

use std::process::ExitCode;
use std::sync::Arc;

use judged::{Place, judge};
use leasehold_core::{Error, ErrorKind, Result, Store};
use leasehold_servers::Proxy;
use leasehold_servers::redis::{Redis, valkey};

fn main() -> ExitCode {
    judge::<Followed>("valkey+replicas")
}

#[derive(Debug)]
struct Followed {
    primary: Redis,
    _replicas: [Redis; 2],
}

impl Place for Followed {
    fn is_there() -> Result<()> {
        valkey().map(drop).map_err(|missing| Error::new(ErrorKind::Unavailable, missing))
    }

    fn start() -> Self {
        let primary = Redis::valkey();
        let replicas = [Redis::replica_of(&primary, &[]), Redis::replica_of(&primary, &[])];
        Self { primary, _replicas: replicas }
    }

    fn url(&self) -> String {
        format!("{}?min_replicas=1", self.primary.url())
    }

    fn store(url: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(leasehold_redis::Redis::from_url(url)?))
    }

    fn primaries(&mut self) -> Vec<u16> {
        vec![self.primary.port()]
    }

    fn restart(&mut self) -> Result<(), &'static str> {
        Err("its replicas would have to come back first")
    }

    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
