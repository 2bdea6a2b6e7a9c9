//! The adaptor for stores that can only compare and swap, before the suite that judges every store: on records whose
//! swaps are often beaten by imaginary rivals.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, run};
use leasehold_core::record::testing::{MapRecords, Trouble};
use leasehold_core::record::{RecordStore, Records};
use leasehold_core::{BootClock, Clock, Fut, Key, Store};
use serde_json::Value;

fn main() -> ExitCode {
    run("records", || {
        let trouble = Trouble { seed: 7, stale: 100, ..Trouble::default() };
        Ok(OnRecords(MapRecords::with(Arc::new(BootClock), trouble)))
    })
}

#[derive(Debug)]
struct OnRecords(MapRecords);

impl OnRecords {
    fn record(&self, key: &Key) -> Value {
        let text = self.0.raw(key).unwrap_or_else(|| "{}".to_owned());
        serde_json::from_str(&text).expect("a record is JSON")
    }

    /// Whether anything in the record matters to anybody: claims, another limit, or refusals that are not over.
    fn is_in_use(&self, key: &Key) -> bool {
        let (record, now) = (self.record(key), BootClock.now().as_millis());
        let refused = record["refused"].as_object().into_iter().flat_map(|refused| refused.values());
        let lasts = |until: &Value| until.as_u64().is_some_and(|until| until > now);
        let is_claimed = record["claims"].as_array().is_some_and(|claims| !claims.is_empty());
        is_claimed || record["effective"].is_u64() || refused.into_iter().any(lasts)
    }
}

impl Fixture for OnRecords {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(RecordStore::new(self.0.clone())) as _) })
    }

    /// Reads the records' text, not the adaptor's word.
    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let claims = self.record(key)["claims"].as_array().cloned().unwrap_or_default();
            let held = |claim: &Value| claim["held"].as_u64().unwrap_or(0);
            let wanted = |claim: &Value| claim["wanted"].as_u64().unwrap_or(0);
            let keys = self.0.keys("", None).await?.keys;
            Ok(RawState {
                holders: claims.iter().filter(|claim| held(claim) > 0).count(),
                units: claims.iter().map(held).sum(),
                waiters: claims.iter().filter(|claim| wanted(claim) > held(claim)).count(),
                residue: keys.iter().filter(|key| self.is_in_use(key)).count(),
            })
        })
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn crowd(&self) -> usize {
        150
    }

    fn kill_holder<'a>(&'a self, _key: &'a Key, _lease: Duration) -> Hook<'a, Killed> {
        Hook::Cannot("claims in memory end with the process")
    }
}
