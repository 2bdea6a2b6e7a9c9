//! `leasehold latch`: set, count down, wait, show, delete.

use std::time::{Duration, Instant};

use leasehold::{Client, Latch};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::show::json as line;
use crate::args::{LatchArgs, LatchVerb};
use crate::exit::{Exit, Failure, system};
use crate::job::signals::Incoming;
use crate::output::{Plain, print};
use crate::settings::Wait;
use crate::store::{Chosen, FAREWELL, farewell};

/// Does what the verb says.
pub(crate) async fn latch(verb: LatchVerb, store: &Chosen) -> Result<Exit, Failure> {
    let start = Instant::now();
    let client = &match &verb {
        LatchVerb::Wait { wait, .. } => {
            store.connect_within(wait.map_or(Wait::Forever, Wait::AtMost)).await?
        }
        _ => store.connect().await?,
    };
    match verb {
        LatchVerb::Set { latch, count, lives_for } => {
            let end = set(&latch, count, lives_for, client).await;
            // A request that was not answered is withdrawn. Otherwise it could close the latch later.
            let _ = timeout(FAREWELL, client.close()).await;
            end
        }
        LatchVerb::Down { latch, count } => {
            let left = find(client, &latch).count_down_by(count).await?;
            latch.print_count(left)
        }
        LatchVerb::Wait { latch, wait: limit, must_exist } => {
            let found = find(client, &latch);
            let (found, late) = match must_exist {
                true => (found.must_exist(), "was not set, or is still closed"),
                false => (found, "is still closed"),
            };
            let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
            let end = wait(&latch, &found, left, late).await;
            // A wait that a signal has ended leaves the queue.
            let _ = timeout(farewell(&end), client.close()).await;
            end
        }
        LatchVerb::Show { latch } => {
            let left = find(client, &latch).count().await?;
            latch.print_count(left)
        }
        LatchVerb::Delete { latch } => {
            let deleted = find(client, &latch).delete().await?;
            let text = if deleted { "deleted" } else { "open" };
            latch.print(text, json!({"key": latch.key.as_str(), "deleted": deleted}))
        }
    }
}

fn find(client: &Client, args: &LatchArgs) -> Latch {
    client.latch(args.key.as_str())
}

async fn set(
    args: &LatchArgs,
    count: u64,
    lives_for: Option<Duration>,
    client: &Client,
) -> Result<Exit, Failure> {
    let latch = lives_for.into_iter().fold(find(client, args), Latch::lives_for);
    if latch.set(count).await? {
        return args.print_count(count);
    }
    let message = format!("\"{}\" is set already: delete it first, or count it down", args.key);
    Err(Failure::new(Exit::Busy, message))
}

async fn wait(args: &LatchArgs, latch: &Latch, limit: Option<Duration>, late: &str) -> Result<Exit, Failure> {
    let mut incoming = Incoming::listen().map_err(|error| system("cannot listen to signals", error))?;
    let opened = async {
        match limit {
            Some(limit) => latch.wait_within(limit).await,
            None => latch.wait().await.map(|()| true),
        }
    };
    tokio::select! {
        biased;
        signal = incoming.next() => Ok(Exit::Signal(signal.as_raw())),
        opened = opened => match opened? {
            true => args.print_count(0),
            false => Err(Failure::new(Exit::Busy, format!("\"{}\" {late}", args.key))),
        },
    }
}

impl LatchArgs {
    fn print_count(&self, count: u64) -> Result<Exit, Failure> {
        let text = if count == 0 { "open".to_owned() } else { format!("{count} left") };
        self.print(&text, json!({"key": self.key.as_str(), "count": count}))
    }

    fn print(&self, text: &str, object: Value) -> Result<Exit, Failure> {
        if self.json {
            print(line(&object)?)?;
        } else {
            print(format_args!("{}: {text}", Plain(self.key.as_str())))?;
        }
        Ok(Exit::Success)
    }
}
