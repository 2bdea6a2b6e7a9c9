//! The store: each verb one call of a script.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{
    Answer, Capability, Change, Claim, Error, ErrorKind, Fut, Inbox, Info, Key, Leases, Page, Released,
    Result, Snapshot, Store, TokenStrength, Wakes,
};
use redis::Value;

use crate::ask::Fences;
use crate::link::Link;
use crate::names;
use crate::reply::{self, Heard};
use crate::url::Target;

/// How many locks a page of `list` has.
const PAGE: usize = 500;
/// How many keys the server looks at for one answer to SCAN.
const SCANNED: usize = 1000;

/// What every Redis store is and promises.
pub static INFO: Info = Info {
    name: "redis",
    capabilities: Capability::ALL,
    tokens: TokenStrength::ClockBound,
    leases: Leases::PerClaim,
    ordered: true,
    pushes: true,
    min_lease: Duration::from_millis(1),
    max_lease: Duration::from_secs(100 * 365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::ZERO,
    // About a millisecond of the server's time.
    batch: 400,
};

/// In a cluster every renewal goes to the server of its slot. Each is a call of its own, which the connection to
/// that server sends together with others: a server in trouble then fails only its own.
static CLUSTER: Info = Info { batch: 1, ..INFO };

/// Claims on a Redis or Valkey server, watched by Sentinel or not, or on a cluster of them. Clones share the
/// connections; the last one closes them.
#[derive(Clone, Debug)]
pub struct Redis {
    link: Link,
    /// The largest number that came from this store: whatever a server forgets, we do not go below.
    seen: Arc<AtomicU64>,
}

impl Redis {
    /// The store that a URL names: `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://` or
    /// `redis+cluster://`. Nothing is sent before the first use.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn from_url(url: &str) -> Result<Self> {
        Ok(Self { link: Link::new(Target::parse(url)?), seen: Arc::default() })
    }

    fn fences(&self) -> Fences {
        if self.link.is_cluster() { Fences::PerSlot } else { Fences::One }
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Remembers the numbers in an answer. A quorum's are counted per key and say nothing about others.
    fn note(&self, claim: &Claim, answer: Answer) -> Answer {
        let number = match &answer {
            Answer::Granted(grant) => grant.token,
            Answer::Waiting(place) => place.seat,
            _ => 0,
        };
        if claim.quorum.is_none() {
            self.seen.fetch_max(number, Ordering::Relaxed);
        }
        answer
    }

    async fn ask(&self, claim: &Claim) -> Result<Answer> {
        let reply = self.link.call(self.fences().claim(claim, self.seen())?).await;
        Ok(self.note(claim, reply::answer(reply.map_err(|e| e.on(&claim.key))?, &claim.key)?))
    }

    async fn extend(&self, claims: &[Claim]) -> Result<Vec<Answer>> {
        let mut places: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (place, claim) in claims.iter().enumerate() {
            let slot = if self.link.is_cluster() { names::slot(&names::lock(&claim.key)) } else { 0 };
            places.entry(slot).or_default().push(place);
        }
        let calls =
            places.values().filter_map(|places| self.fences().renew(places.iter().map(|i| &claims[*i])));
        let replies = self.link.calls(calls.collect()).await;
        let mut answers = vec![Answer::Gone; claims.len()];
        for (places, reply) in places.values().zip(replies) {
            let keys: Vec<&Key> = places.iter().map(|i| &claims[*i].key).collect();
            for (i, answer) in places.iter().zip(reply::answers(reply?, &keys)?) {
                answers[*i] = self.note(&claims[*i], answer);
            }
        }
        Ok(answers)
    }

    async fn look(&self, keys: &[Key]) -> Result<Vec<Snapshot>> {
        let calls = keys.iter().map(|key| self.fences().inspect(key)).collect();
        let mut shown = Vec::new();
        for (key, reply) in keys.iter().zip(self.link.calls(calls).await) {
            match reply::snapshot(reply?, key) {
                Ok(snapshot) => shown.extend(snapshot),
                // Something else that only looks like a lock of ours.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok(shown)
    }

    /// The names of all locks that start with `prefix`. Walks through all keys of all servers.
    async fn scan(&self, prefix: &str) -> Result<BTreeSet<Key>> {
        let mut keys = BTreeSet::new();
        for primary in self.link.primaries().await? {
            let mut cursor = b"0".to_vec();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(names::pattern(prefix)).arg("COUNT").arg(SCANNED);
                let reply = self.link.command(&primary, &scan).await?;
                let (next, names): (Vec<u8>, Vec<Vec<u8>>) =
                    redis::from_redis_value(reply).map_err(strange)?;
                let found = names.iter().filter_map(|name| names::locked(name));
                keys.extend(found.filter(|key| key.as_str().starts_with(prefix)));
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(keys)
    }

    async fn page(&self, prefix: &str, cursor: Option<&str>) -> Result<Page> {
        let keys = self.scan(prefix).await?;
        let rest = keys.into_iter().filter(|key| cursor.is_none_or(|after| key.as_str() > after));
        let mut keys: Vec<Key> = rest.take(PAGE + 1).collect();
        let more = keys.len() > PAGE;
        keys.truncate(PAGE);
        let next = keys.last().filter(|_| more).map(|key| key.as_str().to_owned());
        Ok(Page { resources: self.look(&keys).await?, next })
    }

    async fn run(&self, call: crate::script::Call, key: &Key) -> Result<Value> {
        self.link.call(call).await.map_err(|e| e.on(key))
    }
}

impl Store for Redis {
    fn info(&self) -> &Info {
        if self.link.is_cluster() { &CLUSTER } else { &INFO }
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        // Where replicas must have a grant, a message alone proves none: its renewal will.
        let hear = if self.link.min_replicas() > 0 { hint } else { tell };
        Box::pin(self.link.open(names::channel(inbox), wakes, hear))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(self.ask(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(self.extend(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            let call = self.fences().amend(claim, change, self.seen())?;
            let answer = reply::answer(self.run(call, &claim.key).await?, &claim.key)?;
            Ok(self.note(claim, answer))
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(async move {
            let call = self.fences().release(claim, refuse_for);
            reply::released(self.run(call, &claim.key).await?, &claim.key)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move { reply::snapshot(self.run(self.fences().inspect(key), key).await?, key) })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(self.page(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move { reply::evicted(self.run(self.fences().evict(key, token), key).await?, key) })
    }
}

/// Passes a message on as it is.
fn tell(message: &[u8], wakes: &Wakes) {
    match reply::heard(message) {
        Some(Heard::Promoted(promotion)) => wakes.promoted(&promotion),
        Some(Heard::Look(key)) => wakes.look(&key),
        None => tracing::debug!("a message that is none of ours"),
    }
}

/// Passes a message on as a hint to ask.
fn hint(message: &[u8], wakes: &Wakes) {
    if let Some(Heard::Promoted(leasehold_core::Promotion { key, .. }) | Heard::Look(key)) =
        reply::heard(message)
    {
        wakes.look(&key);
    }
}

fn strange(error: redis::ParsingError) -> Error {
    Error::new(ErrorKind::Protocol, "SCAN answered something else: is there a proxy in between?")
        .because(error)
}
