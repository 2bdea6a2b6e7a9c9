//! A store whose sessions carry many claims, before the suite that judges every store: the keeper's other kind of lease,
//! and what ZooKeeper, etcd and Consul are held to, without a server.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, run};
use leasehold_core::sessions::Sessions;
use leasehold_core::{BootClock, Fut, Key, Store};

fn main() -> ExitCode {
    run("sessions", || Ok(OnSessions(Sessions::new(Arc::new(BootClock)))))
}

#[derive(Debug)]
struct OnSessions(Sessions);

impl Fixture for OnSessions {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as _) })
    }

    /// Memory has nothing outside of itself to ask; what it remembers in total is counted independently.
    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let residue = self.0.residue();
            Ok(RawState::of_snapshot(self.0.inspect(key).await?.as_ref(), residue))
        })
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn kill_holder<'a>(&'a self, _key: &'a Key, _lease: Duration) -> Hook<'a, Killed> {
        Hook::Cannot("claims in memory end with the process")
    }
}
