//! From a release to the next holder's hands, beside a bare message from one connection to another.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use leasehold_bench::contest::Effort;
use leasehold_bench::handover::{Times, Wake, hand_overs, rest};
use leasehold_bench::subject::{Ours, Outcome};
use leasehold_core::Options;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::limits::connect;
use crate::ours;

pub(crate) async fn measure(url: &str, effort: Effort) -> Outcome<Wake> {
    let lease = two(url, "lease").await?;
    let sessions = [two(url, "rowlock").await?, two(url, "advisory").await?];
    let mut bare = [Wire::connect(url, NOTIFY).await?, Wire::connect(url, DURABLE).await?];
    let mut wake = Wake::beside(&[
        ("bare NOTIFY to receive", Some(1.5)),
        ("durable write and NOTIFY to receive", None),
        ("leasehold, rowlock", None),
        ("leasehold, advisory", None),
        #[cfg(peers)]
        ("sqlx 0.8 PgAdvisoryLock", None),
    ]);
    #[cfg(peers)]
    let sqlx = crate::peers::Sqlx::connect(url, 2).await?;
    // The first calls of a connection make its plans.
    hand_overs([&lease[0], &lease[1]], effort.round / 5, &mut Times::default()).await?;
    for _ in 0..effort.rounds {
        hand_overs([&lease[0], &lease[1]], effort.round, &mut wake.grants).await?;
        for (wire, beside) in bare.iter_mut().zip(&mut wake.beside[..2]) {
            wire.messages(effort.round, &mut beside.times).await?;
        }
        for ([one, other], beside) in sessions.iter().zip(&mut wake.beside[2..4]) {
            hand_overs([one, other], effort.round, &mut beside.times).await?;
        }
        #[cfg(peers)]
        hand_overs([&sqlx, &sqlx], effort.round, &mut wake.beside[4].times).await?;
    }
    Ok(wake)
}

/// Two clients that know nothing of each other.
async fn two(url: &str, mode: &str) -> Outcome<[Ours; 2]> {
    let url = format!("{url}?mode={mode}");
    Ok([ours(&url, Options::new()).await?, ours(&url, Options::new()).await?])
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
