//! From a release to the next holder's hands, beside a bare watch event that is answered by one write.

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold_bench::contest::Effort;
use leasehold_bench::subject::Outcome;
use zookeeper_client::{Acls, CreateMode};

use crate::{ours, raw};

/// How long both rest before a release. Ours must have its watch by then, which nobody outside can see; and threads that
/// sleep are woken more slowly than those that have just worked, so the bare event gets the same rest.
const REST: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Wake {
    grants: Histogram<u64>,
    events: Histogram<u64>,
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |times: &Histogram<u64>, q| times.value_at_quantile(q) / 1000;
        let ratio = self.grants.value_at_quantile(0.5) as f64 / self.events.value_at_quantile(0.5) as f64;
        write!(
            f,
            "release to grant: p50 {} us, p99 {} us; bare event and a write: p50 {} us, p99 {} us; p50 {ratio:.2} x, goal at most 1.5",
            micros(&self.grants, 0.5),
            micros(&self.grants, 0.99),
            micros(&self.events, 0.5),
            micros(&self.events, 0.99),
        )
    }
}

pub(crate) async fn measure(port: u16, effort: Effort) -> Outcome<Wake> {
    let blank = || Histogram::new_with_bounds(1, 60_000_000_000, 3);
    let mut wake = Wake { grants: blank()?, events: blank()? };
    for _ in 0..effort.rounds {
        hand_overs(port, effort.round, &mut wake.grants).await?;
        events(port, effort.round, &mut wake.events).await?;
    }
    Ok(wake)
}

/// Two clients hand one lock to and fro: each asks again as soon as it has released.
async fn hand_overs(port: u16, length: Duration, times: &mut Histogram<u64>) -> Outcome<()> {
    let (mut other, mut next) = (ours(port).await?.0, ours(port).await?.0);
    let began = Instant::now();
    let mut guard = other.mutex("bench/wake").acquire().await?;
    while began.elapsed() < length {
        let lock = next.mutex("bench/wake");
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().await?;
            Ok::<_, leasehold_core::Error>((guard, Instant::now()))
        });
        // It must be in the queue before the lock comes free.
        while other.inspect("bench/wake").await?.is_none_or(|seen| seen.waiters.is_empty()) {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(REST).await;
        let released = Instant::now();
        guard.release().await?;
        let (granted, at) = waiting.await??;
        times.saturating_record(u64::try_from((at - released).as_nanos())?);
        guard = granted;
        std::mem::swap(&mut next, &mut other);
    }
    guard.release().await?;
    Ok(())
}

/// One session deletes a node, another hears of it and writes.
async fn events(port: u16, length: Duration, times: &mut Histogram<u64>) -> Outcome<()> {
    let (deletes, watches) = (raw::connect(port).await?, raw::connect(port).await?);
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    deletes.mkdir("/bench-wake", &options).await?;
    let began = Instant::now();
    while began.elapsed() < length {
        deletes.create("/bench-node", b"", &options).await?;
        let (_, watcher) = watches.check_and_watch_stat("/bench-node").await?;
        // In a task of its own, as one who waits for a lock is.
        let writer = watches.clone();
        let writes = tokio::spawn(async move {
            watcher.changed().await;
            writer.set_data("/bench-wake", b"", None).await.map(|_| Instant::now())
        });
        tokio::time::sleep(REST).await;
        let sent = Instant::now();
        deletes.delete("/bench-node", None).await?;
        let at = writes.await??;
        times.saturating_record(u64::try_from((at - sent).as_nanos())?);
    }
    Ok(())
}
