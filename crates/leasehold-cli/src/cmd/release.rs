//! `leasehold release`: taking a lock away from its holder, or asking for it.

use leasehold::{Client, Finished, Holder, Snapshot};
use serde_json::json;

use super::show::json;
use crate::args::ReleaseArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Plain, print};
use crate::store::Chosen;

/// What can be ended by its token.
struct Target {
    token: u64,
    label: String,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Hold,
    /// A latch, and what is left to count down.
    Latch(u64),
    /// A job that is not due yet.
    Finished,
}

impl From<Holder> for Target {
    fn from(holder: Holder) -> Self {
        let kind = holder.count.map_or(Kind::Hold, Kind::Latch);
        Self { token: holder.token, label: holder.label, kind }
    }
}

impl From<Finished> for Target {
    fn from(job: Finished) -> Self {
        Self { token: job.token, label: job.label, kind: Kind::Finished }
    }
}

/// Evicts one holder. Nobody there to evict is no failure: the wish is fulfilled.
pub(crate) async fn release(args: ReleaseArgs, store: &Chosen) -> Result<Exit, Failure> {
    let client = store.connect().await?;
    let key = &args.key;
    // The token is read first and named in the request, so that only the holder we have seen is evicted and
    // not one that got the lock meanwhile.
    let target = match client.inspect(key.as_str()).await? {
        Some(snapshot) => choose(snapshot, args.token)?,
        None => None,
    };
    let Some(target) = target else {
        let text = match args.token {
            Some(token) => format!("{key}: nobody holds it with token {token}"),
            None => format!("{key}: nobody holds it"),
        };
        return said(&args, None, text, false);
    };
    let who = format!("{} (token {})", Plain(&target.label), target.token);
    if args.ask {
        return ask(&client, &args, &target, &who).await;
    }
    if !args.force {
        let what = match target.kind {
            Kind::Latch(count) => {
                format!("delete the latch \"{key}\" with {count} left, for which others may wait")
            }
            Kind::Hold => format!("take \"{key}\" from {who}, who may be at work"),
            Kind::Finished => format!("make the job \"{key}\" due, which {who} has finished"),
        };
        return Err(Failure::new(Exit::Usage, format!("this would {what}: say --force to do it")));
    }
    let evicted = client.evict(key.as_str(), target.token).await?;
    let text = match (evicted, target.kind) {
        (true, Kind::Latch(_)) => format!("{key}: deleted"),
        (true, Kind::Hold) => format!("{key}: taken from {who}"),
        (true, Kind::Finished) => format!("{key}: due now"),
        (false, Kind::Latch(_)) => format!("{key}: has just opened"),
        (false, Kind::Hold) => format!("{key}: {who} had just let go"),
        (false, Kind::Finished) => format!("{key}: has just become due"),
    };
    said(&args, Some(&target), text, evicted)
}

/// Says what came of it: in words, or as one object.
fn said(args: &ReleaseArgs, target: Option<&Target>, text: String, done: bool) -> Result<Exit, Failure> {
    if args.json {
        let what = if args.ask { "asked" } else { "released" };
        let (token, label) = (target.map(|target| target.token), target.map(|target| &target.label));
        print(json(&json!({"key": args.key.as_str(), what: done, "token": token, "label": label}))?)?;
    } else {
        print(text)?;
    }
    Ok(Exit::Success)
}

async fn ask(client: &Client, args: &ReleaseArgs, target: &Target, who: &str) -> Result<Exit, Failure> {
    let key = &args.key;
    let why_not = match target.kind {
        Kind::Hold => None,
        Kind::Latch(_) => Some("a latch, which nobody holds: count it down, or delete it"),
        Kind::Finished => Some("a job that has finished: say --force to make it due"),
    };
    if let Some(why_not) = why_not {
        return Err(Failure::new(Exit::Usage, format!("\"{key}\" is {why_not}")));
    }
    let asked = client.ask(key, target.token).await?;
    let text = if asked { format!("{key}: asked {who}") } else { format!("{key}: {who} had let go") };
    said(args, Some(target), text, asked)
}

/// The holder or finished job with the token, or the only one there is.
fn choose(snapshot: Snapshot, token: Option<u64>) -> Result<Option<Target>, Failure> {
    let holders = snapshot.holders.into_iter().map(Target::from);
    let mut targets: Vec<_> = holders.chain(snapshot.finished.into_iter().map(Target::from)).collect();
    if let Some(token) = token {
        return Ok(targets.into_iter().find(|target| target.token == token));
    }
    if targets.len() > 1 {
        let list =
            targets.iter().map(|target| format!("\n  --token {}  {}", target.token, Plain(&target.label)));
        let list: String = list.collect();
        let message = format!("\"{}\" has {} holders, choose one:{list}", snapshot.key, targets.len());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(targets.pop())
}
