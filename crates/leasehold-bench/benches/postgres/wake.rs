//! From a release to the next holder's hands, beside a bare message from one connection to another.

use std::fmt;
use std::future::poll_fn;
use std::time::{Duration, Instant};

use leasehold_bench::contest::Effort;
use leasehold_bench::handover::{Times, hand_overs};
use leasehold_bench::subject::Outcome;
use leasehold_core::Options;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::limits::connect;
use crate::ours;

#[derive(Debug, Default)]
pub(crate) struct Wake {
    grants: Times,
    messages: Times,
    durable: Times,
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, messages, durable } = self;
        let times = |other: &Times| grants.quantile(0.5) as f64 / other.quantile(0.5) as f64;
        write!(
            f,
            "release to grant: {grants}\n\
             bare NOTIFY to receive: {messages}; ours {:.2} x, goal 1.5\n\
             durable write and NOTIFY to receive: {durable}; ours {:.2} x",
            times(messages),
            times(durable),
        )
    }
}

impl Wake {
    /// For machines, in nanoseconds.
    pub(crate) fn json(&self) -> Value {
        let both = |times: &Times| json!({ "p50": times.quantile(0.5), "p99": times.quantile(0.99) });
        json!({
            "release_to_grant": both(&self.grants),
            "notify": both(&self.messages),
            "durable_write_and_notify": both(&self.durable),
        })
    }
}

pub(crate) async fn measure(url: &str, effort: Effort) -> Outcome<Wake> {
    let (one, other) = (ours(url, Options::new()).await?.0, ours(url, Options::new()).await?.0);
    let (mut bare, mut written) = (Wire::connect(url, NOTIFY).await?, Wire::connect(url, DURABLE).await?);
    // The first calls of a connection make its plans.
    hand_overs([&one, &other], effort.round / 5, Duration::ZERO, &mut Times::default()).await?;
    let mut wake = Wake::default();
    for _ in 0..effort.rounds {
        hand_overs([&one, &other], effort.round, Duration::ZERO, &mut wake.grants).await?;
        bare.messages(effort.round, &mut wake.messages).await?;
        written.messages(effort.round, &mut wake.durable).await?;
    }
    Ok(wake)
}

/// A message alone is never flushed to the disk. A release that grants is, and its message is sent after that.
const NOTIFY: &str = "NOTIFY bare";
const DURABLE: &str = "DELETE FROM woken; INSERT INTO woken VALUES (1); NOTIFY written";

/// One connection notifies, another receives and passes it on to a task.
struct Wire {
    notifier: Client,
    statement: &'static str,
    hears: mpsc::Receiver<Instant>,
    _subscriber: Client,
}

impl Wire {
    async fn connect(url: &str, statement: &'static str) -> Outcome<Self> {
        let notifier = connect(url).await?;
        notifier.batch_execute("CREATE TABLE IF NOT EXISTS woken (n bigint)").await?;
        let (subscriber, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        let (heard, hears) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                let is_ours = matches!(message, AsyncMessage::Notification(_));
                if is_ours && heard.send(Instant::now()).await.is_err() {
                    return;
                }
            }
        });
        let channel = statement.rsplit(' ').next().unwrap_or_default();
        subscriber.batch_execute(&format!("LISTEN {channel}")).await?;
        Ok(Self { notifier, statement, hears, _subscriber: subscriber })
    }

    async fn messages(&mut self, length: Duration, times: &mut Times) -> Outcome<()> {
        let began = Instant::now();
        while began.elapsed() < length {
            let sent = Instant::now();
            self.notifier.batch_execute(self.statement).await?;
            let at = self.hears.recv().await.ok_or("the subscriber is gone")?;
            times.add(at - sent);
        }
        Ok(())
    }
}
