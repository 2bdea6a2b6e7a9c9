//! From a release to the next holder's hands, beside a bare watch event that is answered by one write.

use std::time::{Duration, Instant};

use leasehold_bench::contest::Effort;
use leasehold_bench::handover::{Times, Wake, hand_overs, rest};
use leasehold_bench::subject::Outcome;
use zookeeper_client::{Acls, CreateMode};

use crate::{ours, raw};

pub(crate) async fn measure(port: u16, effort: Effort) -> Outcome<Wake> {
    let (one, other) = (ours(port).await?, ours(port).await?);
    let mut wake = Wake::beside(&[("bare event and a write", Some(1.5))]);
    for _ in 0..effort.rounds {
        hand_overs([&one, &other], effort.round, &mut wake.grants).await?;
        events(port, effort.round, &mut wake.beside[0].times).await?;
    }
    Ok(wake)
}

/// One session deletes a node, another hears of it and writes.
async fn events(port: u16, length: Duration, times: &mut Times) -> Outcome<()> {
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
        rest().await;
        let sent = Instant::now();
        deletes.delete("/bench-node", None).await?;
        let at = writes.await??;
        times.add(at - sent);
    }
    Ok(())
}
