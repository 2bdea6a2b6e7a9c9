//! The store: each verb one call of a script.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::{
    Answer, Capability, Change, Check, Claim, Error, ErrorKind, Fut, Inbox, Info, Key, Leases, Page,
    Released, Result, Snapshot, Store, TokenStrength, Wakes,
};
use redis::Value;

use crate::ask::Fences;
use crate::link::Link;
use crate::names;
use crate::reply::{self, Heard};
use crate::script::Call;
use crate::secret::Secret;
use crate::seen::Seen;
use crate::url::Target;

/// How many locks a page of `list` has.
const PAGE: usize = 500;
/// How many locks the server shows in one answer.
const SEEN: usize = 100;
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
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(100 * 365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::ZERO,
    // About a millisecond of the server's time.
    batch: 400,
    checks: Vec::new(),
};

/// In a cluster every renewal goes to the server of its slot. Each is a call of its own, which the connection to
/// that server sends together with others: a server in trouble then fails only its own.
static CLUSTER: Info = Info { batch: 1, checks: Vec::new(), ..INFO };

/// Claims on a Redis or Valkey server, watched by Sentinel or not, or on a cluster of them. Clones share the
/// connections; the last one closes them.
///
/// ```
/// use leasehold_redis::Redis;
/// let store = Redis::from_url("redis://localhost:6379/2?timeout=500ms")?; // nothing is sent yet
/// assert!(Redis::from_url("redis://localhost/two").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Redis {
    link: Link,
    /// The largest number that came from this store: whatever a server forgets, we do not go below.
    seen: Arc<Seen>,
    /// With what was found in the servers' settings, once that is known.
    info: Arc<OnceLock<Info>>,
}

impl Redis {
    /// The store that a URL names: `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://` or
    /// `redis+cluster://`. Nothing is sent before the first use.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn from_url(url: &str) -> Result<Self> {
        let link = Link::new(Target::parse(url)?, Secret::random()?);
        let seen = if link.is_cluster() { Seen::per_slot() } else { Seen::one() };
        Ok(Self { link, seen: Arc::new(seen), info: Arc::default() })
    }

    /// What the store promises before it knows the servers' settings.
    fn declared(&self) -> &'static Info {
        if self.link.is_cluster() { &CLUSTER } else { &INFO }
    }

    /// Refuses servers whose settings would void what the store promises.
    async fn look_at_settings(&self) -> Result<()> {
        if self.info.get().is_none() {
            let checks = self.link.checks().await?;
            Check::judge(checks, INFO.name)?;
            self.info.get_or_init(|| Info { checks: checks.to_vec(), ..self.declared().clone() });
        }
        Ok(())
    }

    fn fences(&self) -> Fences {
        if self.link.is_cluster() { Fences::PerSlot } else { Fences::One }
    }

    /// Remembers the numbers in an answer. A quorum's are counted per key and say nothing about others.
    fn note(&self, claim: &Claim, answer: Answer) -> Answer {
        let number = match &answer {
            Answer::Granted(grant) => grant.token,
            Answer::Waiting(place) => place.seat,
            _ => 0,
        };
        if claim.quorum.is_none() {
            self.seen.note(&claim.key, number);
        }
        answer
    }

    async fn ask(&self, claim: &Claim) -> Result<Answer> {
        let reply = self.link.call(self.fences().claim(claim, self.seen.on(&claim.key))?).await;
        Ok(self.note(claim, reply::claimed(reply.map_err(|e| e.on(&claim.key))?, claim)?))
    }

    /// Which of these locks can go into one call: all, or those of a slot.
    fn groups<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (place, key) in keys.enumerate() {
            let slot = if self.link.is_cluster() { names::slot(&names::lock(key)) } else { 0 };
            groups.entry(slot).or_default().push(place);
        }
        groups.into_values().collect()
    }

    /// Makes one call per group. The replies are in the order of the locks.
    async fn each(&self, groups: Vec<Vec<usize>>, calls: Vec<Call>) -> Result<Vec<Value>> {
        let mut all = BTreeMap::new();
        for (places, reply) in groups.into_iter().zip(self.link.calls(calls).await) {
            let replies = reply::each(reply?, places.len())?;
            all.extend(places.into_iter().zip(replies));
        }
        Ok(all.into_values().collect())
    }

    async fn extend(&self, claims: &[Claim]) -> Result<Vec<Answer>> {
        let groups = self.groups(claims.iter().map(|claim| &claim.key));
        let renew = |places: &Vec<usize>| self.fences().renew(places.iter().map(|i| &claims[*i]));
        let calls = groups.iter().filter_map(renew).collect();
        let replies = self.each(groups, calls).await?;
        let answer =
            |(claim, reply): (&Claim, Value)| Ok(self.note(claim, reply::answer(reply, &claim.key)?));
        claims.iter().zip(replies).map(answer).collect()
    }

    /// What is stored about these locks, in their order.
    async fn look(&self, keys: &[Key]) -> Result<Vec<Value>> {
        let groups = self.groups(keys.iter());
        let inspect = |places: &Vec<usize>| self.fences().inspect(places.iter().map(|i| &keys[*i]));
        let calls = groups.iter().filter_map(inspect).collect();
        self.each(groups, calls).await
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
        let mut resources = Vec::new();
        for keys in keys.chunks(SEEN) {
            for (key, reply) in keys.iter().zip(self.look(keys).await?) {
                match reply::snapshot(reply, key) {
                    Ok(snapshot) => resources.extend(snapshot),
                    // Something else that only looks like a lock of ours.
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Page { resources, next })
    }

    async fn run(&self, call: Call, key: &Key) -> Result<Value> {
        self.link.call(call).await.map_err(|e| e.on(key))
    }
}

impl Store for Redis {
    fn info(&self) -> &Info {
        self.info.get().unwrap_or(self.declared())
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        // Where replicas must have a grant, a message alone proves none: its renewal will.
        let hear = if self.link.min_replicas() > 0 { hint } else { tell };
        Box::pin(async move {
            self.look_at_settings().await?;
            self.link.open(names::channel(inbox), wakes, hear).await
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(self.ask(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(self.extend(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            let call = self.fences().amend(claim, change, self.seen.on(&claim.key))?;
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
        Box::pin(async move {
            let mut replies = self.look(std::slice::from_ref(key)).await.map_err(|e| e.on(key))?;
            replies.pop().map_or(Ok(None), |reply| reply::snapshot(reply, key))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(self.page(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move { reply::evicted(self.run(self.fences().evict(key, token), key).await?, key) })
    }
}

/// Passes a message on as it is, if it is proven. Whoever may publish can say anything.
fn tell(message: &[u8], secret: &Secret, wakes: &Wakes) {
    match reply::heard(message) {
        Some(Heard::Promoted(promotion)) if secret.proves(message) => wakes.promoted(&promotion),
        Some(Heard::Promoted(promotion)) => {
            // Forged, or by a client that has another secret.
            secret.doubt();
            wakes.look(&promotion.key);
        }
        Some(Heard::Look(key)) => wakes.look(&key),
        None => tracing::debug!("a message that is none of ours"),
    }
}

/// Passes a message on as a hint to ask.
fn hint(message: &[u8], _secret: &Secret, wakes: &Wakes) {
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
