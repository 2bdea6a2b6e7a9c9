//! From a release to the next holder's hands, beside a bare message from one connection to another.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use leasehold_bench::contest::Effort;
use leasehold_bench::handover::{Times, Wake, hand_overs, rest};
use leasehold_bench::subject::Outcome;
use leasehold_core::Options;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::limits::connect;
use crate::ours;

pub(crate) async fn measure(url: &str, effort: Effort) -> Outcome<Wake> {
    let (one, other) = (ours(url, Options::new()).await?.0, ours(url, Options::new()).await?.0);
    let (mut bare, mut written) = (Wire::connect(url, NOTIFY).await?, Wire::connect(url, DURABLE).await?);
    // The first calls of a connection make its plans.
    hand_overs([&one, &other], effort.round / 5, &mut Times::default()).await?;
    let mut wake =
        Wake::beside(&[("bare NOTIFY to receive", Some(1.5)), ("durable write and NOTIFY to receive", None)]);
    for _ in 0..effort.rounds {
        hand_overs([&one, &other], effort.round, &mut wake.grants).await?;
        bare.messages(effort.round, &mut wake.beside[0].times).await?;
        written.messages(effort.round, &mut wake.beside[1].times).await?;
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
            rest().await;
            let sent = Instant::now();
            self.notifier.batch_execute(self.statement).await?;
            let at = self.hears.recv().await.ok_or("the subscriber is gone")?;
            times.add(at - sent);
        }
        Ok(())
    }
}
