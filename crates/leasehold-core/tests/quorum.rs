//! A quorum of three different members before the suite that judges every store. It promises no order, so the cases
//! about order are skipped, and so is what its members cannot decide together.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Fixture, Hook, Killed, RawState, run};
use leasehold_core::record::RecordStore;
use leasehold_core::record::testing::{MapRecords, Trouble};
use leasehold_core::{BootClock, Fut, Key, Memory, Quorum, Snapshot, Store};

fn main() -> ExitCode {
    run("quorum", || {
        let trouble = Trouble { seed: 7, stale: 100, ..Trouble::default() };
        Ok(OfThree {
            first: Memory::new(),
            second: MapRecords::with(Arc::new(BootClock), trouble),
            third: Memory::new(),
        })
    })
}

#[derive(Debug)]
struct OfThree {
    first: Memory,
    second: MapRecords,
    third: Memory,
}

impl OfThree {
    /// Everything that each member shows.
    async fn shown(&self) -> leasehold_core::Result<[Vec<Snapshot>; 3]> {
        let second = RecordStore::new(self.second.clone());
        Ok([
            self.first.list("", None).await?.resources,
            second.list("", None).await?.resources,
            self.third.list("", None).await?.resources,
        ])
    }
}

impl Fixture for OfThree {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async {
            let quorum = Quorum::builder()
                .member("first", self.first.clone())
                .member("second", RecordStore::new(self.second.clone()))
                .member("third", self.third.clone())
                .max_lease(Duration::from_secs(3600))
                // Shorter than the patience of every client in the suite: a claim outlasts one slow member.
                .member_timeout(Duration::from_millis(500))
                .without_quarantine();
            Ok(Arc::new(quorum.build()?) as _)
        })
    }

    /// Asks the members, not the quorum: what two of them have counts. The third is told in the background, and that
    /// may be another one for every claim.
    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let all = self.shown().await?;
            let here = || all.iter().flatten().filter(|shown| shown.key == *key);
            let mut by_token: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for shown in here() {
                let holders = shown.holders.iter().map(|holder| (holder.token, holder.units));
                let finished = shown.finished.iter().map(|job| (job.token, job.units));
                holders.chain(finished).for_each(|(token, n)| by_token.entry(token).or_default().push(n));
            }
            let held: Vec<u64> = by_token.values().filter(|units| units.len() >= 2).map(|u| u[0]).collect();
            let mut residue = all.each_ref().map(Vec::len);
            residue.sort_unstable();
            Ok(RawState {
                holders: held.len(),
                units: held.iter().sum(),
                // Nobody may queue on any member.
                waiters: here().map(|shown| shown.waiters.len()).sum(),
                residue: residue[1],
            })
        })
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn crowd(&self) -> usize {
        20
    }

    fn kill_holder<'a>(&'a self, _key: &'a Key, _lease: Duration) -> Hook<'a, Killed> {
        Hook::Cannot("claims in memory end with the process")
    }
}
