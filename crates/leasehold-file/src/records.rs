//! Records as files of a directory.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::record::{
    BOUND_MICROS, Joined, Keep, Keys, Known, Loaded, Message, Recent, RecordStore, Records, Session,
    Sessions, Swap, Swapped, Version, key_of,
};
use leasehold_core::{Capability, Fut, Inbox, Info, Key, Leases, Result, TokenStrength, Wakes};

use crate::home::Home;
use crate::live::{self, BELIEVED, Guests, Live};
use crate::names::{self, Name};
use crate::office::Office;
use crate::place::Place;
use crate::slip::Slip;
use crate::time::micros;
use crate::url::Target;
use crate::watch::{Watch, watch};

/// The largest record: beyond it more time goes into copying than into work.
const MAX_BYTES: usize = 1024 * 1024;

/// How often those who wait are looked for where nobody can tell them.
const LOOKS_EVERY: Duration = Duration::from_millis(30);

/// How long a session lives before it is watched, unless another process's session makes that urgent. The kernel takes
/// 8 ms to close an inotify descriptor that has ever had a watch, and a short program need not wait for that.
const WATCHED_AFTER: Duration = Duration::from_millis(50);

/// More numbers than one operation draws for a new record.
const DRAWN: u64 = 8;

/// How many locks a page of a list has.
const PAGE: usize = 500;

/// What needs a lease per claim: a claim ends with its giver's session, and a quorum counts on the lease of every claim.
const LACKS: [Capability; 2] = [Capability::Owner, Capability::Member];

static CAPABILITIES: LazyLock<Vec<Capability>> =
    LazyLock::new(|| Capability::ALL.iter().copied().filter(|able| !LACKS.contains(able)).collect());

/// What a directory can do.
pub static INFO: LazyLock<Info> = LazyLock::new(|| Info {
    name: "file",
    capabilities: &CAPABILITIES,
    tokens: TokenStrength::ClockBound,
    leases: Leases::Shared,
    ordered: true,
    pushes: true,
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: BELIEVED,
    batch: 256,
    checks: Vec::new(),
});

/// The store that a URL names: `file:///var/lock/app/`. Nothing is opened before the first use.
///
/// ```
/// let store = leasehold_file::file("file:///var/lock/app/")?;
/// assert!(leasehold_file::file("file://host/locks").is_err()); // two slashes name a host
/// # Ok::<(), leasehold_core::Error>(())
/// ```
///
/// # Errors
/// `Invalid` when the URL makes no sense.
pub fn file(url: &str) -> Result<RecordStore<Directory>> {
    let place = Place::new(Target::parse(url)?);
    let (info, recent, guests, office, inboxes, watch) = Default::default();
    let shared = Shared { place, info, recent, guests, office, inboxes, watch };
    Ok(RecordStore::with_max_bytes(Directory(Arc::new(shared)), MAX_BYTES))
}

/// Records in a directory: see [`file()`].
#[derive(Clone, Debug)]
pub struct Directory(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) place: Place,
    /// Set when the directory is first opened, with what was checked.
    info: OnceLock<Info>,
    /// With the time until when it is kept.
    recent: Recent<u64>,
    pub(crate) guests: Guests,
    office: Office,
    inboxes: Mutex<HashMap<Inbox, Wakes>>,
    watch: OnceLock<Box<dyn Watch>>,
}

/// A swap that another thread can make.
struct Order {
    key: Key,
    name: String,
    seen: Version,
    next: Vec<u8>,
    keep: Keep,
    on: Option<Session>,
    news: Vec<(Session, Vec<u8>)>,
    last: u64,
    lasting: bool,
}

/// What a record is to the adaptor. One that is not kept any more has a version still.
fn loaded(home: &Home, known: Option<Known<u64>>) -> Loaded {
    let now = home.epoch.now();
    let clock = micros();
    let (floor, ceiling) = (clock.max(home.fence_seen() + 1 + DRAWN), clock + BOUND_MICROS);
    let version = known.as_ref().map_or(Version::ABSENT, |known| known.version);
    let bytes = known.filter(|known| known.about == 0 || known.about > now).map(|known| known.bytes);
    Loaded { bytes, version, now, born: 0, floor, ceiling, origin: 0 }
}

impl Shared {
    /// Works with files where that holds up nobody.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.clone();
        self.office.run(move || work(&shared)).await
    }

    fn inboxes(&self) -> MutexGuard<'_, HashMap<Inbox, Wakes>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) -> &dyn Watch {
        &**self.watch.get_or_init(watch)
    }

    /// Watches every session of this process from now on, and delivers what arrived before.
    fn watch_sessions(&self) {
        for live in self.guests.unwatched() {
            self.watch().home(&live.home);
            self.watch().news(&live);
            self.deliver(&live);
        }
    }

    /// Tells a session's client what it was told.
    pub(crate) fn deliver(&self, live: &Live) {
        let Some(wakes) = self.inboxes().get(&live.inbox).cloned() else { return };
        for message in live.news() {
            let promoted = message.promotions(live.inbox);
            promoted.iter().for_each(|promotion| wakes.promoted(promotion));
            if let (true, Some(key)) = (promoted.is_empty(), message.key()) {
                wakes.look(&key);
            }
        }
    }

    pub(crate) fn look_all(&self) {
        let all: Vec<Wakes> = self.inboxes().values().cloned().collect();
        all.iter().for_each(|wakes| wakes.look_all());
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Result<()> {
        let home = self.place.home()?;
        self.info.get_or_init(|| Info { checks: home.checks.clone(), ..INFO.clone() });
        live::sweep(&home)?;
        let mut inboxes = self.inboxes();
        inboxes.retain(|_, wakes| !wakes.is_gone());
        inboxes.insert(inbox, wakes);
        self.guests.close(|inbox| !inboxes.contains_key(&inbox));
        Ok(())
    }

    fn load(&self, key: &Key) -> Result<Loaded> {
        let home = self.place.home()?;
        let slip = home.slip(&names::file(key))?;
        // After the record: what was removed in between is in it.
        home.fence()?;
        let known =
            slip.map(|slip| Known { bytes: slip.record, version: Version(slip.version), about: slip.until });
        self.recent.saw(key, known.clone());
        Ok(loaded(&home, known))
    }

    fn swap(&self, order: &Order) -> Result<Swapped> {
        let home = self.place.home()?;
        let _held = home.lock()?;
        if let Some(session) = &order.on {
            let lives = |live: &Arc<Live>| Arc::ptr_eq(&live.home, &home) && !live.is_over();
            if !self.guests.find(session).as_ref().is_some_and(lives) {
                return Ok(Swapped::Over);
            }
        }
        let version = home.slip(&order.name)?.map_or(0, |slip| slip.version);
        if version != order.seen.0 {
            return Ok(Swapped::Stale);
        }
        let fence = home.fence()?;
        if let Keep::Spent(_) = order.keep {
            home.raise_fence(order.last.max(version))?;
            home.remove(&home.keys, &order.name)?;
            self.recent.wrote(&order.key, None);
        } else {
            // It was not there, but may have been in between: its numbers must be new.
            if version == 0 && order.last > 0 && order.last.saturating_sub(DRAWN) <= fence {
                return Ok(Swapped::Stale);
            }
            let until = match order.keep {
                Keep::For(length) => {
                    home.epoch.now() + u64::try_from(length.as_millis()).unwrap_or(u64::MAX / 2) + 1
                }
                _ => 0,
            };
            // Above all numbers in it too: whoever removes it remembers this one.
            let next = [micros(), version + 1, fence + 1, order.last].into_iter().max().unwrap_or_default();
            let text = Slip::write(next, until, &order.next);
            home.replace(&home.keys, &order.name, &text, order.lasting)?;
            let known = Known { bytes: order.next.clone(), version: Version(next), about: until };
            self.recent.wrote(&order.key, Some(known));
        }
        order.news.iter().for_each(|(session, line)| live::tell(&home, session, line));
        Ok(Swapped::Done { origin: 0 })
    }

    /// Removes a record that is not kept any more, if nobody has touched it.
    fn sweep(&self, name: &str) -> Result<()> {
        let home = self.place.home()?;
        let _held = home.lock()?;
        match home.slip(name)? {
            Some(slip) if slip.until != 0 && slip.until <= home.epoch.now() => {
                home.raise_fence(slip.version)?;
                home.remove(&home.keys, name)
            }
            _ => Ok(()),
        }
    }

    fn keys(&self, prefix: &str, cursor: Option<&str>) -> Result<Keys> {
        let home = self.place.home()?;
        let mut keys = Vec::new();
        for name in home.names(&home.keys)? {
            match names::read(&name) {
                Name::Lock(key) => keys.push(key),
                Name::Long => keys.extend(home.slip(&name)?.and_then(|slip| key_of(&slip.record))),
                Name::Other => {}
            }
        }
        keys.retain(|key| key.as_str().starts_with(prefix) && cursor.is_none_or(|at| key.as_str() > at));
        keys.sort_unstable();
        let next = keys.get(PAGE).and_then(|_| keys.get(PAGE - 1)).map(|last| last.as_str().to_owned());
        keys.truncate(PAGE);
        Ok(Keys { keys, next })
    }
}

impl Records for Directory {
    fn info(&self) -> &Info {
        self.0.info.get().unwrap_or(&INFO)
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.0.run(move |shared| shared.open(inbox, wakes)).await?;
            self.0.watch().listen(&self.0);
            Ok(())
        })
    }

    fn load<'a>(&'a self, key: &'a Key) -> Fut<'a, Loaded> {
        let own = key.clone();
        Box::pin(async move { self.0.run(move |shared| shared.load(&own)).await.map_err(|e| e.on(key)) })
    }

    fn guess(&self, key: &Key) -> Option<Loaded> {
        let home = self.0.place.at_hand()?;
        Some(loaded(&home, self.0.recent.guess(key)?))
    }

    fn swap<'a>(&'a self, swap: &'a Swap<'a>) -> Fut<'a, Swapped> {
        let line = |news: &leasehold_core::record::News| Message::of(swap.key, news).write();
        let order = Order {
            key: swap.key.clone(),
            name: names::file(swap.key),
            seen: swap.seen,
            next: swap.next.to_vec(),
            keep: swap.keep,
            on: swap.on.cloned(),
            news: swap.news.iter().map(|news| (news.session.clone(), line(news))).collect(),
            last: swap.last,
            lasting: swap.lasting,
        };
        Box::pin(async move {
            let (name, keep) = (order.name.clone(), order.keep);
            let swapped = self.0.run(move |shared| shared.swap(&order)).await;
            if !matches!(swapped, Ok(Swapped::Done { .. })) {
                self.0.recent.doubt(swap.key);
            }
            let swapped = swapped.map_err(|error| error.on(swap.key))?;
            if let (Swapped::Done { .. }, Keep::For(length)) = (swapped, keep) {
                let shared = Arc::downgrade(&self.0);
                tokio::spawn(async move {
                    tokio::time::sleep(length + Duration::from_millis(2)).await;
                    let Some(shared) = shared.upgrade() else { return };
                    if let Err(error) = shared.run(move |shared| shared.sweep(&name)).await {
                        tracing::debug!(%error, "what is left of a lock could not be removed");
                    }
                });
            }
            Ok(swapped)
        })
    }

    fn keys<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Keys> {
        let (prefix, cursor) = (prefix.to_owned(), cursor.map(str::to_owned));
        Box::pin(self.0.run(move |shared| shared.keys(&prefix, cursor.as_deref())))
    }

    fn nudge<'a>(&'a self, _inbox: Inbox, _key: &'a Key) -> Fut<'a, ()> {
        // Everybody was told with the swap.
        Box::pin(std::future::ready(Ok(())))
    }

    fn looks_every(&self) -> Option<Duration> {
        (!self.0.watch().is_whole()).then_some(LOOKS_EVERY)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

impl Sessions for Directory {
    fn join(&self, inbox: Inbox, lease: Duration) -> Fut<'_, Joined> {
        let home = self.0.place.at_hand();
        if let Some(joined) = home.and_then(|home| self.0.guests.joined(&home, inbox, lease)) {
            return Box::pin(std::future::ready(Ok(joined)));
        }
        Box::pin(async move {
            let join = move |shared: &Arc<Shared>| shared.guests.join(shared.place.home()?, inbox, lease);
            let (joined, is_new) = self.0.run(join).await?;
            if is_new {
                let shared = Arc::downgrade(&self.0);
                tokio::spawn(async move {
                    tokio::time::sleep(WATCHED_AFTER).await;
                    let Some(shared) = shared.upgrade() else { return };
                    let _ = shared.run(|shared| Ok(shared.watch_sessions())).await;
                });
            }
            Ok(joined)
        })
    }

    fn renew<'a>(&'a self, session: &'a Session) -> Fut<'a, Option<Duration>> {
        let session = session.clone();
        Box::pin(self.0.run(move |shared| shared.guests.renew(&session)))
    }

    fn fence<'a>(&'a self, _session: &'a Session) -> Fut<'a, ()> {
        // Every swap has ended when its call has.
        Box::pin(std::future::ready(Ok(())))
    }

    fn dead<'a>(&'a self, sessions: &'a [Session]) -> Fut<'a, Vec<Session>> {
        if self.0.guests.are_ours(sessions) {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        let sessions = sessions.to_vec();
        Box::pin(self.0.run(move |shared| {
            // Before it looks at the sessions of other processes, so that it misses neither their ends nor their news.
            shared.watch_sessions();
            shared.guests.dead(&*shared.place.home()?, &sessions)
        }))
    }

    fn idle(&self, session: &Session) {
        self.0.guests.idle(session);
    }
}
