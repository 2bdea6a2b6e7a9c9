//! The memory store before the suite that judges every store.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, run};
use leasehold_core::{Fut, Key, Memory, Store};

fn main() -> ExitCode {
    run("memory", || Ok(InMemory(Memory::new())))
}

/// A store of its own for every trial: whatever it remembers is the trial's.
#[derive(Debug)]
struct InMemory(Memory);

impl Fixture for InMemory {
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
