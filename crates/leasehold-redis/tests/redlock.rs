//! The quorum of the core on five independent Redis servers, before the suite that judges every store.

mod judged;

use std::process::ExitCode;
use std::sync::Arc;

use judged::{Place, judge, look};
use leasehold_conformance::RawState;
use leasehold_core::{Key, Result, Store};
use leasehold_servers::Proxy;
use leasehold_servers::redis::Redis;

fn main() -> ExitCode {
    judge::<Five>("redlock")
}

#[derive(Debug)]
struct Five(Vec<Redis>);

impl Place for Five {
    fn start() -> Self {
        Self((0..5).map(|_| Redis::start()).collect())
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        // They are new for every trial, and no lease of the suite is too long for them.
        format!(
            "redlock://{}?restart_quarantine=off&max_lease=3600s&member_timeout=5s&connect_timeout=10s",
            hosts.join(",")
        )
    }

    fn store(url: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(leasehold_redis::redlock(url)?))
    }

    fn primaries(&mut self) -> Vec<u16> {
        self.0.iter().map(Redis::port).collect()
    }

    /// What three of them have counts: the others are told in the background.
    fn look(&mut self, key: &Key) -> redis::RedisResult<RawState> {
        let seen: Vec<_> = self.primaries().iter().map(|port| look(*port, key)).collect::<Result<_, _>>()?;
        let middle = |what: fn(&RawState) -> u64| {
            let mut counts: Vec<_> = seen.iter().map(what).collect();
            counts.sort_unstable();
            counts[2]
        };
        let (holders, waiters) = (middle(|seen| seen.holders as u64), middle(|seen| seen.waiters as u64));
        // The last token stays for a while after the last claim, and is none.
        let residue = usize::from(holders + waiters > 0);
        let units = middle(|seen| seen.units);
        Ok(RawState { holders: holders as usize, units, waiters: waiters as usize, residue })
    }

    fn restart(&mut self) -> Result<(), &'static str> {
        Err("a quorum does not mind one server, and more than half of them would forget everything")
    }

    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
