//! `leasehold release`: taking a lock away from its holder, or asking for it.

use leasehold::{Client, Holder, Snapshot};
use serde_json::json;

use super::show::json;
use crate::args::ReleaseArgs;
use crate::exit::{Exit, Failure};
use crate::output::{Plain, print};
use crate::store::Chosen;

/// Evicts one holder. Nobody there to evict is no failure: the wish is fulfilled.
pub(crate) async fn release(args: ReleaseArgs, store: &Chosen) -> Result<Exit, Failure> {
    let client = store.connect().await?;
    let key = &args.key;
    // The token is read first and named in the request, so that only the holder we have seen is evicted and
    // not one that got the lock meanwhile.
    let holder = match client.inspect(key.as_str()).await? {
        Some(snapshot) => choose(snapshot, args.token)?,
        None => None,
    };
    let Some(holder) = holder else {
        let text = match args.token {
            Some(token) => format!("{key}: nobody holds it with token {token}"),
            None => format!("{key}: nobody holds it"),
        };
        return said(&args, None, text, false);
    };
    let who = format!("{} (token {})", Plain(&holder.label), holder.token);
    if args.ask {
        return ask(&client, &args, &holder, &who).await;
    }
    if !args.force {
        let what = match holder.count {
            Some(count) => format!("delete the latch \"{key}\" with {count} left, for which others may wait"),
            None => format!("take \"{key}\" from {who}, who may be at work"),
        };
        return Err(Failure::new(Exit::Usage, format!("this would {what}: say --force to do it")));
    }
    let evicted = client.evict(key.as_str(), holder.token).await?;
    let text = match (evicted, holder.count) {
        (true, Some(_)) => format!("{key}: deleted"),
        (true, None) => format!("{key}: taken from {who}"),
        (false, Some(_)) => format!("{key}: has just opened"),
        (false, None) => format!("{key}: {who} had just let go"),
    };
    said(&args, Some(&holder), text, evicted)
}

/// Says what came of it: in words, or as one object.
fn said(args: &ReleaseArgs, holder: Option<&Holder>, text: String, done: bool) -> Result<Exit, Failure> {
    if args.json {
        let what = if args.ask { "asked" } else { "released" };
        let (token, label) = (holder.map(|holder| holder.token), holder.map(|holder| &holder.label));
        print(json(&json!({"key": args.key.as_str(), what: done, "token": token, "label": label}))?)?;
    } else {
        print(text)?;
    }
    Ok(Exit::Success)
}

async fn ask(client: &Client, args: &ReleaseArgs, holder: &Holder, who: &str) -> Result<Exit, Failure> {
    let key = &args.key;
    if holder.count.is_some() {
        let message = format!("\"{key}\" is a latch, which nobody holds: count it down, or delete it");
        return Err(Failure::new(Exit::Usage, message));
    }
    let asked = client.ask(key, holder.token).await?;
    let text = if asked { format!("{key}: asked {who}") } else { format!("{key}: {who} had let go") };
    said(args, Some(holder), text, asked)
}

/// The holder with the token, or the only one there is.
fn choose(snapshot: Snapshot, token: Option<u64>) -> Result<Option<Holder>, Failure> {
    let mut holders = snapshot.holders;
    if let Some(token) = token {
        return Ok(holders.into_iter().find(|holder| holder.token == token));
    }
    if holders.len() > 1 {
        let list =
            holders.iter().map(|holder| format!("\n  --token {}  {}", holder.token, Plain(&holder.label)));
        let list: String = list.collect();
        let message = format!("\"{}\" has {} holders, choose one:{list}", snapshot.key, holders.len());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(holders.pop())
}
