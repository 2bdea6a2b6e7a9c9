//! What ten thousand locks cost while nothing happens but their renewal.

use std::fmt;
use std::time::{Duration, Instant};

use leasehold_bench::contest::Effort;
use leasehold_bench::subject::Outcome;
use leasehold_core::Options;
use serde::Serialize;

use crate::ours;

const LOCKS: usize = 10_000;
/// Ticks per second of `/proc/PID/stat`: the same on every Linux that we run on.
const TICKS: f64 = 100.0;

/// Shares of one core.
#[derive(Debug, Serialize)]
pub(crate) struct Holding {
    locks: usize,
    client_cpu: f64,
    server_cpu: f64,
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} locks held, lease 30 s: {:.2} % of a core in the client, {:.2} % in the server",
            self.locks,
            self.client_cpu * 100.0,
            self.server_cpu * 100.0
        )
    }
}

pub(crate) async fn measure(url: &str, server: u32, effort: Effort) -> Outcome<Holding> {
    // Three renewals of each in full; a quick look otherwise.
    let length = if effort.rounds > 3 { Duration::from_secs(30) } else { Duration::from_secs(2) };
    let client = ours(url, Options::new()).await?.0;
    let mut guards = Vec::with_capacity(LOCKS);
    for n in 0..LOCKS {
        guards.push(client.mutex(format!("bench/held-{n}")).acquire().await?);
    }
    let us = std::process::id();
    let (began, before) = (Instant::now(), (ticks(us)?, ticks(server)?));
    tokio::time::sleep(length).await;
    let share = |from: f64, to: f64| (to - from) / TICKS / began.elapsed().as_secs_f64();
    let (client_cpu, server_cpu) = (share(before.0, ticks(us)?), share(before.1, ticks(server)?));
    if !guards.iter().all(leasehold_core::Guard::is_valid) {
        return Err("a lock was lost while it was held".into());
    }
    client.close().await?;
    Ok(Holding { locks: LOCKS, client_cpu, server_cpu })
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
