//! From a release to the next holder's hands, beside a bare message from one connection to another, and beside the same
//! message sent by a script that does the least that a release must.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use leasehold_bench::contest::Effort;
use leasehold_bench::handover::{Times, Wake, hand_overs, rest};
use leasehold_bench::subject::Outcome;
use leasehold_core::Options;
use redis::Script;
use tokio::sync::mpsc;

use crate::limits::connect;
use crate::ours;

/// Whose message is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// `PUBLISH`.
    Bare,
    /// A script that names the next holder, draws its token and tells it.
    Script,
}

const RELEASE: &str = "
redis.call('SET', KEYS[1], ARGV[1], 'PX', 30000)
return redis.call('PUBLISH', 'bench/channel', redis.call('INCR', KEYS[2]))";

pub(crate) async fn measure(url: &str, effort: Effort) -> Outcome<Wake> {
    let (one, other) = (ours(url, Options::new()).await?, ours(url, Options::new()).await?);
    let mut wake = Wake::beside(&[
        ("bare publish to receive", Some(1.5)),
        ("publish by a minimal script to receive", None),
    ]);
    for _ in 0..effort.rounds {
        hand_overs([&one, &other], effort.round, &mut wake.grants).await?;
        published(url, Sender::Bare, effort.round, &mut wake.beside[0].times).await?;
        published(url, Sender::Script, effort.round, &mut wake.beside[1].times).await?;
    }
    Ok(wake)
}

/// One connection publishes, another receives and passes it on to a task.
async fn published(url: &str, by: Sender, length: Duration, times: &mut Times) -> Outcome<()> {
    let mut publisher = connect(url).await?;
    let mut subscriber = redis::Client::open(url)?.get_async_pubsub().await?;
    subscriber.subscribe("bench/channel").await?;
    let (heard, mut hears) = mpsc::channel(1);
    let listening = tokio::spawn(async move {
        let mut messages = subscriber.into_on_message();
        while messages.next().await.is_some() {
            if heard.send(Instant::now()).await.is_err() {
                return;
            }
        }
    });
    let (began, release) = (Instant::now(), Script::new(RELEASE));
    while began.elapsed() < length {
        rest().await;
        let sent = Instant::now();
        let _: i64 = match by {
            Sender::Bare => {
                redis::cmd("PUBLISH").arg("bench/channel").arg("x").query_async(&mut publisher).await?
            }
            Sender::Script => {
                let mut call = release.prepare_invoke();
                call.key("bench/held").key("bench/fence").arg("x").invoke_async(&mut publisher).await?
            }
        };
        let at = hears.recv().await.ok_or("the subscriber is gone")?;
        times.add(at - sent);
    }
    listening.abort();
    Ok(())
}
