//! Where the time of an uncontended pair goes: from the bare commands to the library, one layer more each time.
//!
//! Processor time says more than the clock on a machine that is shared: both are told, of this process and of the server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_bench::contest::Effort;
use leasehold_bench::round::{Inside, Load, round};
use leasehold_bench::subject::{Outcome, Subject};
use leasehold_core::{Answer, Claim, Inbox, Key, Options, Promotion, Store, Units, WHOLE, Wake};
use leasehold_redis::Redis;
use serde::Serialize;

use crate::limits::{SetAndDelete, TwoScripts};
use crate::ours;

#[derive(Debug, Serialize)]
struct Layer {
    name: &'static str,
    pairs: u64,
    took: Duration,
    client_cpu: Duration,
    server_cpu: Duration,
}

/// The layers under one load.
#[derive(Debug, Serialize)]
pub(crate) struct Layers {
    tasks: usize,
    layers: Vec<Layer>,
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |layer: &Layer| layer.pairs as f64 / layer.took.as_secs_f64();
        let each = |layer: &Layer, time: Duration| time.as_secs_f64() * 1e6 / layer.pairs as f64;
        write!(f, "layers, {} tasks", self.tasks)?;
        for layer in &self.layers {
            write!(
                f,
                "\n  {:<32}{:>7.0} pairs/s{:>6.2} x; CPU per pair: client {:>5.1} us, server {:>5.1} us",
                layer.name,
                rate(layer),
                rate(layer) / rate(&self.layers[0]),
                each(layer, layer.client_cpu),
                each(layer, layer.server_cpu)
            )?;
        }
        Ok(())
    }
}

/// Measures all layers in turns.
pub(crate) async fn measure(url: &str, server: u32, tasks: usize, effort: Effort) -> Outcome<Layers> {
    let (raw, scripts) = (SetAndDelete::connect(url).await?, TwoScripts::connect(url).await?);
    let (store, client) = (StoreAlone::open(url).await?, ours(url, Options::new()).await?);
    let names = ["SET NX PX + compare-and-delete", "two minimal scripts", "the store alone", "leasehold"];
    let zero = Duration::ZERO;
    let layers = names.map(|name| Layer { name, pairs: 0, took: zero, client_cpu: zero, server_cpu: zero });
    let mut all = Layers { tasks, layers: layers.into() };
    // One round more than is counted: connections and scripts are warm then.
    for turn in 0..=effort.rounds {
        for layer in &mut all.layers {
            let before = (cpu(std::process::id())?, cpu(server)?);
            let sample = match layer.name {
                "leasehold" => round(&client, Load::Apart(tasks), effort.round).await?,
                "the store alone" => round(&store, Load::Apart(tasks), effort.round).await?,
                "two minimal scripts" => round(&scripts, Load::Apart(tasks), effort.round).await?,
                _ => round(&raw, Load::Apart(tasks), effort.round).await?,
            };
            if turn > 0 {
                layer.pairs += sample.pairs;
                layer.took += sample.took;
                layer.client_cpu += cpu(std::process::id())?.saturating_sub(before.0);
                layer.server_cpu += cpu(server)?.saturating_sub(before.1);
            }
        }
    }
    Ok(all)
}

/// The processor time that all threads of a process have had.
pub(crate) fn cpu(pid: u32) -> Outcome<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let line = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += line.split(' ').next().ok_or("an empty schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Nobody waits here, so nobody is told.
#[derive(Debug)]
struct Deaf;

impl Wake for Deaf {
    fn promoted(&self, _: &Promotion) {}
    fn look(&self, _: &Key) {}
    fn look_all(&self) {}
    fn is_gone(&self) -> bool {
        false
    }
}

/// The store without the client runtime.
#[derive(Clone, Debug)]
pub(crate) struct StoreAlone(Redis);

impl StoreAlone {
    pub(crate) async fn open(url: &str) -> Outcome<Self> {
        let store = Redis::from_url(url)?;
        store.open(Inbox(fastrand::u64(..)), Arc::new(Deaf)).await?;
        Ok(Self(store))
    }
}

impl Subject for StoreAlone {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let claim = Claim::new(Key::new(name)?, WHOLE, Units::Exactly(WHOLE))?;
        let Answer::Granted(_) = self.0.claim(&claim).await? else {
            return Err("the lock was not free".into());
        };
        inside.await;
        self.0.release(&claim, None).await?;
        Ok(())
    }
}
