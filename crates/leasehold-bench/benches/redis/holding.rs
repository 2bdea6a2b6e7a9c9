//! What locks cost while nothing happens but their renewal, beside the least that their renewal could cost.

use std::fmt;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use leasehold_bench::contest::Effort;
use leasehold_bench::subject::Outcome;
use leasehold_core::{Guard, Options};
use serde::Serialize;

use crate::limits::RawRenewals;
use crate::ours;

/// So many locks are acquired at the same time.
const TASKS: usize = 64;
/// Ticks per second of `/proc/PID/stat`: the same on every Linux that we run on.
const TICKS: f64 = 100.0;

/// How many locks are held, and on which lease.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Locks {
    pub(crate) count: usize,
    pub(crate) lease: Duration,
}

/// Shares of one core.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cpu {
    client: f64,
    server: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Holding {
    locks: Locks,
    ours: Cpu,
    raw: Cpu,
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, lease) = (self.locks.count, self.locks.lease);
        for (name, cpu) in [("leasehold", self.ours), ("compare-and-extend in one script", self.raw)] {
            let (client, server) = (cpu.client * 100.0, cpu.server * 100.0);
            write!(f, "{count:>6} locks held, lease {lease:>3?}: {name:<33} ")?;
            writeln!(f, "{client:5.2} % of a core in the client, {server:5.2} % in the server")?;
        }
        let (client, server) = (self.ours.client / self.raw.client, self.ours.server / self.raw.server);
        write!(f, "  ours {client:.1} x in the client, {server:.1} x in the server")
    }
}

pub(crate) async fn measure(url: &str, server: u32, locks: Locks, effort: Effort) -> Outcome<Holding> {
    // Three renewals of each in full; a quick look otherwise.
    let length = if effort.rounds > 3 { locks.lease.max(Duration::from_secs(15)) } else { locks.lease / 2 };
    let client = ours(url, Options::new().lease(locks.lease)).await?.0;
    let acquire = |n: usize| {
        let lock = client.mutex(format!("bench/held-{n}"));
        async move { lock.acquire().await }
    };
    let acquired = stream::iter(0..locks.count).map(acquire).buffer_unordered(TASKS);
    let guards: Vec<Guard> = acquired.try_collect().await?;
    let ours = cpu_during(server, async {
        tokio::time::sleep(length).await;
        Ok(())
    });
    let ours = ours.await?;
    if !guards.iter().all(Guard::is_valid) {
        return Err("a lock was lost while it was held".into());
    }
    client.close().await?;
    drop(guards);
    let mut raw = RawRenewals::acquire(url, locks.count, locks.lease).await?;
    let raw = cpu_during(server, async move {
        let until = tokio::time::Instant::now() + length;
        tokio::time::timeout_at(until, raw.renew()).await.map_or_else(|_| Ok(()), |ended| ended)
    });
    Ok(Holding { locks, ours, raw: raw.await? })
}

/// The shares of a core that this process and the server use while `work` runs.
async fn cpu_during(server: u32, work: impl Future<Output = Outcome<()>>) -> Outcome<Cpu> {
    let us = std::process::id();
    let (began, before) = (Instant::now(), (ticks(us)?, ticks(server)?));
    work.await?;
    let share = |from: f64, to: f64| (to - from) / TICKS / began.elapsed().as_secs_f64();
    Ok(Cpu { client: share(before.0, ticks(us)?), server: share(before.1, ticks(server)?) })
}

/// The time that a process has spent computing.
fn ticks(pid: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("a strange line in /proc")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok());
    field(11)
        .zip(field(12))
        .map(|(user, system)| user + system)
        .ok_or_else(|| "too few fields in /proc".into())
}
