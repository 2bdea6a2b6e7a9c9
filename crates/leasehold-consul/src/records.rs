//! The records: one key each, replaced by transactions that also check the session and tell whom it concerns.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::record::{
    Joined, Keep, Keys, Loaded, Message, Records, SMALL, Session, Sessions, Swap, Swapped, Version,
};
use leasehold_core::{Fut, Inbox, Info, Key, Result, Wakes};

use crate::kv::{Op, Outcome};
use crate::recent::Known;
use crate::session::{Doubt, Live};
use crate::store::Shared;

/// How many keys a page has.
const PAGE: usize = 500;

/// How many operations a transaction may have: what the oldest servers take.
const OPERATIONS: usize = 64;

/// Consul's key-value store as records.
#[derive(Clone, Debug)]
pub(crate) struct KeyValue(pub(crate) Arc<Shared>);

/// Where the numbers of a record start that was created at this index. One write draws fewer than [`SMALL`] numbers,
/// so no record's numbers reach those of a later one.
fn origin(index: u64) -> u64 {
    index.saturating_mul(SMALL)
}

fn loaded(known: Option<&Known>) -> Loaded {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    Loaded {
        bytes: known.map(|known| known.bytes.clone()),
        version: known.map_or(Version::ABSENT, |known| Version(known.version)),
        now,
        born: 0,
        // A record that is created counts from its own creation.
        floor: known.map_or(0, |known| origin(known.version)),
        origin: known.map_or(0, |known| origin(known.created)),
    }
}

impl KeyValue {
    async fn swap_on(&self, swap: &Swap<'_>, live: Option<&Live>) -> Result<Swapped> {
        let shared = &self.0;
        let Some(held_by) = shared.recent.held_by(swap.key, swap.seen) else { return Ok(Swapped::Stale) };
        for _ in 0..3 {
            let mut ops = Vec::new();
            if let Some(live) = live {
                ops.push(Op::check(shared.names.alive(live.id()), live.index()));
            }
            let checks = ops.len();
            let Some(held) = write(&mut ops, shared.names.lock(swap.key), swap, held_by.as_deref()) else {
                return Ok(Swapped::Done { origin: 0 });
            };
            let writes = ops.len();
            for news in swap.news.iter().take(OPERATIONS - writes) {
                let message = Message::of(swap.key, news);
                let name = shared.names.news(&news.session.0, message.number());
                ops.push(Op::hold(name, &news.session.0, &message.write()));
            }
            let room = OPERATIONS - ops.len();
            for (session, seat) in swap.settled.iter().take(room) {
                ops.push(Op::delete(shared.names.news(&session.0, *seat)));
            }
            let doubt = Doubt::about(live);
            let outcome = shared.http.transact(ops).await;
            if outcome.as_ref().is_ok_and(|_| true)
                || outcome.as_ref().is_err_and(|e| e.kind() != leasehold_core::ErrorKind::Indeterminate)
            {
                doubt.settle();
            }
            match outcome? {
                Outcome::Done(entries) => {
                    let name = shared.names.lock(swap.key);
                    // Also the check before a removal answers with the entry: as it was.
                    let is_there = !matches!(swap.keep, Keep::Spent(_));
                    let entry = entries.iter().rfind(|entry| is_there && entry.key == name);
                    let known = entry.map(|entry| Known {
                        bytes: swap.next.to_vec(),
                        version: entry.modify_index,
                        created: entry.create_index,
                        held_by: held.map(str::to_owned),
                        ours: true,
                    });
                    let created = known.as_ref().map_or(0, |known| known.created);
                    self.sweep_later(swap, known.as_ref());
                    known.iter().for_each(|known| shared.seen(swap.key, &known.bytes));
                    shared.recent.put(swap.key, known);
                    return Ok(Swapped::Done { origin: origin(created) });
                }
                Outcome::Failed(at) => {
                    if at.iter().any(|at| (checks..writes).contains(at)) {
                        shared.recent.forget(swap.key);
                        return Ok(Swapped::Stale);
                    }
                    if at.iter().any(|at| *at >= writes) {
                        // Whoever was to be told is gone.
                        shared.alive.forget();
                        return Ok(Swapped::Stale);
                    }
                    let Some(live) = live else { return Ok(Swapped::Stale) };
                    if !shared.look_again(live).await? {
                        return Ok(Swapped::Over);
                    }
                }
            }
        }
        Ok(Swapped::Stale)
    }

    /// Removes a record when nothing in it matters any more, if nobody has touched it until then.
    fn sweep_later(&self, swap: &Swap<'_>, known: Option<&Known>) {
        let (Keep::For(length), Some(known)) = (swap.keep, known) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, key, version) = (self.0.clone(), swap.key.clone(), known.version);
        runtime.spawn(async move {
            tokio::time::sleep(length).await;
            let swept = shared.http.transact(vec![Op::delete_cas(shared.names.lock(&key), version)]).await;
            shared.recent.forget(&key);
            if let Err(error) = swept {
                tracing::debug!(%key, %error, "what is left of a lock could not be removed");
            }
        });
    }
}

/// The operations that write a record, and who holds its key then: the session that carries all of it, so that the server
/// removes it when that is over. `None` when there is nothing to do.
fn write<'a>(
    ops: &mut Vec<Op>,
    name: String,
    swap: &Swap<'a>,
    held_by: Option<&str>,
) -> Option<Option<&'a str>> {
    let version = swap.seen.0;
    if matches!(swap.keep, Keep::Spent(_)) {
        if version == Version::ABSENT.0 {
            return None;
        }
        // To remove what is not there succeeds whatever the index: whoever removed it first would go unnoticed.
        ops.push(Op::check(name.clone(), version));
        ops.push(Op::delete_cas(name, version));
        return Some(None);
    }
    let sole = swap.sole.map(|session| &*session.0);
    if sole == held_by {
        ops.push(Op::cas(name, version, swap.next));
        return Some(sole);
    }
    // The value is written by the last of them.
    ops.push(Op::cas(
        name.clone(),
        version,
        if sole.is_none() && held_by.is_none() { swap.next } else { b"" },
    ));
    if let Some(holder) = held_by {
        ops.push(Op::free(name.clone(), holder, swap.next));
    }
    if let Some(sole) = sole {
        ops.push(Op::hold(name, sole, swap.next));
    }
    Some(sole)
}

impl Records for KeyValue {
    fn info(&self) -> &Info {
        &self.0.info
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.0.check_server().await?;
            self.0.inboxes.put(inbox, wakes);
            Ok(())
        })
    }

    fn load<'a>(&'a self, key: &'a Key) -> Fut<'a, Loaded> {
        Box::pin(async move {
            let name = self.0.names.lock(key);
            let known = match self.0.looks.get(&self.0.http, &name).await.map_err(|e| e.on(key))? {
                None => None,
                Some(entry) => Some(Known {
                    bytes: entry.value()?,
                    version: entry.modify_index,
                    created: entry.create_index,
                    held_by: entry.session,
                    ours: false,
                }),
            };
            let found = loaded(known.as_ref());
            known.iter().for_each(|known| self.0.seen(key, &known.bytes));
            self.0.recent.put(key, known);
            Ok(found)
        })
    }

    fn guess(&self, key: &Key) -> Option<Loaded> {
        self.0.recent.guess(key).map(|known| loaded(known.as_ref()))
    }

    fn swap<'a>(&'a self, swap: &'a Swap<'a>) -> Fut<'a, Swapped> {
        Box::pin(async move {
            let live = match swap.on {
                None => None,
                Some(session) => match self.0.sessions.find(session) {
                    Some(live) => Some(live),
                    None => return Ok(Swapped::Over),
                },
            };
            self.swap_on(swap, live.as_deref()).await.map_err(|error| error.on(swap.key))
        })
    }

    fn keys<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Keys> {
        Box::pin(async move {
            let names = self.0.http.keys(&self.0.names.locks_from(prefix)).await?;
            let mut keys: Vec<Key> = names.iter().filter_map(|name| self.0.names.locked(name)).collect();
            keys.retain(|key| key.as_str().starts_with(prefix));
            keys.retain(|key| cursor.is_none_or(|cursor| key.as_str() > cursor));
            keys.sort();
            let more = keys.len() > PAGE;
            keys.truncate(PAGE);
            let next = keys.last().filter(|_| more).map(|key| key.as_str().to_owned());
            Ok(Keys { keys, next })
        })
    }

    fn nudge<'a>(&'a self, _inbox: Inbox, _key: &'a Key) -> Fut<'a, ()> {
        // Everybody was told with the swap.
        Box::pin(std::future::ready(Ok(())))
    }

    fn looks_every(&self) -> Option<Duration> {
        None
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

impl Sessions for KeyValue {
    fn join(&self, inbox: Inbox, lease: Duration) -> Fut<'_, Joined> {
        Box::pin(self.0.join(inbox, lease))
    }

    fn renew<'a>(&'a self, session: &'a Session) -> Fut<'a, Option<Duration>> {
        Box::pin(async move {
            match self.0.sessions.find(session) {
                Some(live) => self.0.renew(&live).await,
                None => Ok(None),
            }
        })
    }

    fn fence<'a>(&'a self, session: &'a Session) -> Fut<'a, ()> {
        Box::pin(async move {
            match self.0.sessions.find(session) {
                Some(live) => self.0.fence(&live).await,
                None => Ok(()),
            }
        })
    }

    fn dead<'a>(&'a self, sessions: &'a [Session]) -> Fut<'a, Vec<Session>> {
        Box::pin(self.0.dead(sessions))
    }

    fn idle(&self, session: &Session) {
        self.0.idle(session);
    }
}
