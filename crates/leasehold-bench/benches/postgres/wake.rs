//! From a release to the next holder's hands, beside a bare message from one connection to another.

use std::fmt;
use std::future::poll_fn;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold_bench::contest::Effort;
use leasehold_bench::subject::Outcome;
use leasehold_core::Options;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::limits::connect;
use crate::ours;

/// Nanoseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Wake {
    grant_p50: u64,
    grant_p99: u64,
    message_p50: u64,
    message_p99: u64,
    durable_p50: u64,
    durable_p99: u64,
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| nanos / 1000;
        let times = |nanos: u64| self.grant_p50 as f64 / nanos as f64;
        write!(
            f,
            "release to grant: p50 {} us, p99 {} us\n\
             bare NOTIFY to receive: p50 {} us, p99 {} us; ours {:.2} x, goal 1.5\n\
             durable delete and NOTIFY to receive: p50 {} us, p99 {} us; ours {:.2} x",
            micros(self.grant_p50),
            micros(self.grant_p99),
            micros(self.message_p50),
            micros(self.message_p99),
            times(self.message_p50),
            micros(self.durable_p50),
            micros(self.durable_p99),
            times(self.durable_p50),
        )
    }
}

pub(crate) async fn measure(url: &str, effort: Effort) -> Outcome<Wake> {
    let (mut grants, mut messages, mut durable) = (histogram()?, histogram()?, histogram()?);
    for _ in 0..effort.rounds {
        hand_overs(url, effort.round, &mut grants).await?;
        published(url, effort.round, NOTIFY, &mut messages).await?;
        published(url, effort.round, DURABLE, &mut durable).await?;
    }
    Ok(Wake {
        grant_p50: grants.value_at_quantile(0.5),
        grant_p99: grants.value_at_quantile(0.99),
        message_p50: messages.value_at_quantile(0.5),
        message_p99: messages.value_at_quantile(0.99),
        durable_p50: durable.value_at_quantile(0.5),
        durable_p99: durable.value_at_quantile(0.99),
    })
}

fn histogram() -> Outcome<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

/// Two clients hand one lock to and fro: each asks again as soon as it has released.
async fn hand_overs(url: &str, length: Duration, times: &mut Histogram<u64>) -> Outcome<()> {
    let (holder, waiter) = (ours(url, Options::new()).await?.0, ours(url, Options::new()).await?.0);
    let began = Instant::now();
    let mut guard = holder.mutex("bench/wake").acquire().await?;
    let (mut next, mut other) = (waiter, holder);
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

/// A message alone is never flushed to the disk. A release is, and its message is sent after that.
const NOTIFY: &str = "NOTIFY bench";
const DURABLE: &str = "DELETE FROM woken; INSERT INTO woken VALUES (1); NOTIFY bench";

/// One connection notifies, another receives and passes it on to a task.
async fn published(url: &str, length: Duration, statement: &str, times: &mut Histogram<u64>) -> Outcome<()> {
    let notifier = connect(url).await?;
    notifier.batch_execute("CREATE TABLE IF NOT EXISTS woken (n bigint)").await?;
    let (subscriber, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let (heard, mut hears) = mpsc::channel(1);
    let listening = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            let is_ours = matches!(message, AsyncMessage::Notification(_));
            if is_ours && heard.send(Instant::now()).await.is_err() {
                return;
            }
        }
    });
    subscriber.batch_execute("LISTEN bench").await?;
    let began = Instant::now();
    while began.elapsed() < length {
        let sent = Instant::now();
        notifier.batch_execute(statement).await?;
        let at = hears.recv().await.ok_or("the subscriber is gone")?;
        times.saturating_record(u64::try_from((at - sent).as_nanos())?);
    }
    listening.abort();
    Ok(())
}
