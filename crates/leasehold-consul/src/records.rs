//! The records: one key each, replaced by transactions that also check the session and tell whom it concerns.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_core::record::{
    Joined, Keep, Keys, Known, Loaded, Message, Records, SMALL, Session, Sessions, Swap, Swapped, Version,
};
use leasehold_core::{ErrorKind, Fut, Inbox, Info, Key, Result, Wakes};

use crate::kv::{Entry, Op, Outcome};
use crate::names::Names;
use crate::session::{Doubt, Live};
use crate::store::Shared;

/// How many keys a page has.
const PAGE: usize = 500;

/// How many operations a transaction may have: what the oldest servers take.
const OPERATIONS: usize = 64;

/// Consul's key-value store as records.
#[derive(Clone, Debug)]
pub(crate) struct KeyValue(pub(crate) Arc<Shared>);

/// What else is known of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The index at which it was created.
    created: u64,
    /// The session that takes it with it; without one it is loose.
    bound_to: Option<String>,
}

fn known(entry: &Entry, bytes: Vec<u8>, bound_to: Option<String>) -> Known<About> {
    let about = About { created: entry.create_index, bound_to };
    Known { bytes, version: Version(entry.modify_index), about }
}

/// Where the numbers of a record start that was created at this index. One write draws fewer than [`SMALL`] numbers,
/// so no record's numbers reach those of a later one.
fn origin(index: u64) -> u64 {
    index.saturating_mul(SMALL)
}

fn loaded(known: Option<&Known<About>>) -> Loaded {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    Loaded {
        bytes: known.map(|known| known.bytes.clone()),
        version: known.map_or(Version::ABSENT, |known| known.version),
        now,
        born: 0,
        // A record that is created counts from its own creation.
        floor: known.map_or(0, |known| origin(known.version.0)),
        // Numbers follow the index of the servers, not a clock.
        ceiling: u64::MAX,
        origin: known.map_or(0, |known| origin(known.about.created)),
    }
}

impl Shared {
    /// The record of a lock, as the majority has it.
    pub(crate) async fn record(&self, key: &Key) -> Result<Loaded> {
        Ok(loaded(self.known(key).await?.as_ref()))
    }

    async fn known(&self, key: &Key) -> Result<Option<Known<About>>> {
        match self.looks.get(&self.http, &self.names.lock(key)).await.map_err(|error| error.on(key))? {
            None => Ok(None),
            Some(entry) => Ok(Some(known(&entry, entry.value()?, entry.session.clone()))),
        }
    }
}

impl KeyValue {
    async fn swap_on(&self, swap: &Swap<'_>, live: Option<&Live>) -> Result<Swapped> {
        let shared = &self.0;
        let before = match swap.seen {
            Version::ABSENT => None,
            version => match shared.recent.about(swap.key, version) {
                None => return Ok(Swapped::Stale),
                about => about,
            },
        };
        for _ in 0..3 {
            let mut ops = Vec::new();
            if let Some(live) = live {
                ops.push(Op::check(shared.names.alive(live.id()), live.index()));
            }
            let checks = ops.len();
            write(&mut ops, &shared.names, swap, before.as_ref());
            if ops.len() == checks {
                return Ok(Swapped::Done { origin: 0 });
            }
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
            if !matches!(&outcome, Err(error) if error.kind() == ErrorKind::Indeterminate) {
                doubt.settle();
            }
            match outcome? {
                Outcome::Done(entries) => {
                    let name = shared.names.lock(swap.key);
                    // Also the check before a removal answers with the entry: as it was.
                    let is_there = !matches!(swap.keep, Keep::Spent(_));
                    let entry = entries.iter().rfind(|entry| is_there && entry.key == name);
                    let bound_to = swap.sole.map(|session| session.0.to_string());
                    let known = entry.map(|entry| known(entry, swap.next.to_vec(), bound_to));
                    let created = known.as_ref().map_or(0, |known| known.about.created);
                    self.sweep_later(swap, known.as_ref());
                    known.iter().for_each(|known| shared.seen(swap.key, &known.bytes));
                    shared.recent.wrote(swap.key, known);
                    return Ok(Swapped::Done { origin: origin(created) });
                }
                Outcome::Failed(at) => {
                    // First, as with a session that is over nothing can be bound to it either.
                    if let (Some(live), true) = (live, at.iter().any(|at| *at < checks)) {
                        match shared.look_again(live).await? {
                            true => continue,
                            false => return Ok(Swapped::Over),
                        }
                    }
                    if at.iter().any(|at| *at < writes) {
                        shared.recent.doubt(swap.key);
                    } else {
                        // Whoever was to be told is gone.
                        shared.alive.forget();
                    }
                    return Ok(Swapped::Stale);
                }
            }
        }
        Ok(Swapped::Stale)
    }

    /// Removes a record when nothing in it matters any more, if nobody has touched it until then.
    fn sweep_later(&self, swap: &Swap<'_>, known: Option<&Known<About>>) {
        let (Keep::For(length), Some(known)) = (swap.keep, known) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, key, version) = (self.0.clone(), swap.key.clone(), known.version);
        runtime.spawn(async move {
            tokio::time::sleep(length).await;
            let name = shared.names.lock(&key);
            let ops = vec![
                Op::check(name.clone(), version.0),
                Op::delete_cas(name, version.0),
                Op::delete(shared.names.loose(&key)),
            ];
            let swept = shared.http.transact(ops).await;
            shared.recent.doubt(&key);
            if let Err(error) = swept {
                tracing::debug!(%key, %error, "what is left of a lock could not be removed");
            }
        });
    }
}

/// The operations that write a record; none when there is nothing to do. A record that one session carries is bound to it,
/// so that the servers remove both together. Any other is loose, and noted as such.
fn write(ops: &mut Vec<Op>, names: &Names, swap: &Swap<'_>, before: Option<&About>) {
    let (name, version) = (names.lock(swap.key), swap.seen.0);
    let was_loose = before.is_some_and(|before| before.bound_to.is_none());
    let was_bound_to = before.and_then(|before| before.bound_to.as_deref());
    let sole = swap.sole.map(|session| &*session.0);
    let is_spent = matches!(swap.keep, Keep::Spent(_));
    match (before, sole) {
        (None, _) if is_spent => return,
        (Some(_), _) if is_spent => {
            // To remove what is not there succeeds whatever the index: whoever removed it first would go unnoticed.
            ops.push(Op::check(name.clone(), version));
            ops.push(Op::delete_cas(name, version));
        }
        (None, Some(sole)) => {
            ops.push(Op::absent(name.clone()));
            ops.push(Op::hold(name, sole, swap.next));
        }
        (_, sole) if sole == was_bound_to => ops.push(Op::cas(name, version, swap.next)),
        (_, sole) => {
            // The value is written by the last of them.
            ops.push(Op::check(name.clone(), version));
            if let Some(holder) = was_bound_to {
                ops.push(Op::free(name.clone(), holder, if sole.is_none() { swap.next } else { b"" }));
            }
            if let Some(sole) = sole {
                ops.push(Op::hold(name, sole, swap.next));
            }
        }
    }
    match (was_loose, !is_spent && sole.is_none()) {
        (false, true) => ops.push(Op::touch(names.loose(swap.key))),
        (true, false) => ops.push(Op::delete(names.loose(swap.key))),
        _ => {}
    }
}

impl Records for KeyValue {
    fn info(&self) -> &Info {
        self.0.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            let (server, settings) = tokio::join!(self.0.check_server(), self.0.check_settings());
            server.and(settings)?;
            self.0.inboxes.put(inbox, wakes);
            Ok(())
        })
    }

    fn load<'a>(&'a self, key: &'a Key) -> Fut<'a, Loaded> {
        Box::pin(async move {
            let found = self.0.known(key).await?;
            let answer = loaded(found.as_ref());
            found.iter().for_each(|found| self.0.seen(key, &found.bytes));
            self.0.recent.saw(key, found);
            Ok(answer)
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
