//! Records as items of memcached.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use leasehold_core::record::{
    BOUND_MICROS, Keep, Keys, Known, LATEST_SWAP, Loaded, Recent, RecordStore, Records, Sessions, Swap,
    Swapped, Version, key_of,
};
use leasehold_core::{
    BootClock, Capability, Check, Clock, Error, ErrorKind, Fut, Inbox, Info, Key, Leases, Result,
    TokenStrength, Wakes,
};

use crate::link::{Answers, Link, Wire};
use crate::names::{self, BORN, Item};
use crate::protocol::{Flags, Reply, Why};
use crate::url::Target;

/// The longest time that memcached takes for one; what is longer it takes for a date.
const LONGEST_TIME: u64 = 30 * 24 * 3600;

/// What a version has for the server's own number; the rest tells on which connection it was read.
const NUMBER_BITS: u32 = 48;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The largest record: a server takes items up to a megabyte unless told otherwise.
const MAX_BYTES: usize = 512 * 1024;

/// How often those who wait are looked for: a hand-over takes half of it, and a look more at the most.
const LOOKS_EVERY: Duration = Duration::from_millis(30);

/// How many locks a page of a list has.
const PAGE: usize = 500;

/// What memcached can do.
pub static INFO: Info = Info {
    name: "memcached",
    capabilities: Capability::ALL,
    tokens: TokenStrength::ClockBound,
    leases: Leases::PerClaim,
    ordered: true,
    pushes: false,
    min_lease: Duration::from_secs(2),
    max_lease: Duration::from_secs(LONGEST_TIME - 3600),
    // Clients agree on the server's time to a second.
    rounding: Duration::from_secs(1),
    expiry_slack: Duration::from_secs(1),
    batch: 256,
    checks: Vec::new(),
};

/// The store that a URL names: `memcached://host:11211`. Nothing is sent before the first use.
///
/// ```
/// let store = leasehold_memcached::memcached("memcached://localhost")?;
/// assert!(leasehold_memcached::memcached("memcached://a,b").is_err()); // a quorum's members, not one store
/// # Ok::<(), leasehold_core::Error>(())
/// ```
///
/// # Errors
/// `Invalid` when the URL makes no sense.
pub fn memcached(url: &str) -> Result<RecordStore<Memcached>> {
    let (link, recent, info) = (Arc::new(Link::new(Target::parse(url)?)), Arc::default(), Arc::default());
    Ok(RecordStore::with_max_bytes(Memcached { link, recent, info }, MAX_BYTES))
}

/// Records on one memcached server: see [`memcached`].
#[derive(Clone, Debug)]
pub struct Memcached {
    link: Arc<Link>,
    /// With the server's birth, as it was after the record was written.
    recent: Arc<Recent<u64>>,
    /// With what was found in the server's settings, once that is known.
    info: Arc<OnceLock<Info>>,
}

impl Memcached {
    async fn load_item(&self, item: &str) -> Result<Loaded> {
        let first = self.try_load(item).await;
        match first {
            // A read does no harm: once more, on a new connection.
            Err(error) if error.kind() == ErrorKind::Indeterminate => {
                self.try_load(item).await.map_err(harmless)
            }
            result => result,
        }
    }

    async fn try_load(&self, item: &str) -> Result<Loaded> {
        let wire = self.link.wire().await?;
        loop {
            let text = format!("mg {item} v c\r\nmg {BORN} v\r\n").into_bytes();
            let replies = wire.ask(text, Answers::Exactly(2)).await?;
            let Ok([record, born]) = <[Reply; 2]>::try_from(replies) else { return Err(odd("a load")) };
            let (bytes, version) = match record {
                Reply::Value(bytes, flags) => {
                    (Some(bytes), version(&wire, &flags).ok_or_else(|| odd("a load"))?)
                }
                Reply::Not(Why::Missing) => (None, Version::ABSENT),
                reply => return Err(refused(reply)),
            };
            let Some(born) = read_born(born)? else {
                self.be_born(&wire).await?;
                continue;
            };
            wire.was_born(born);
            return Ok(loaded(&wire, bytes, version, born));
        }
    }

    /// Notes when the server has forgotten everything at the latest. Read with every record, so that it is the last
    /// item to be evicted.
    async fn be_born(&self, wire: &Wire) -> Result<()> {
        let now = wire.now().to_string();
        let text = format!("ms {BORN} {} ME T0\r\n{now}\r\n", now.len()).into_bytes();
        match wire.ask(text, Answers::Exactly(1)).await?.pop() {
            Some(Reply::Done(_) | Reply::Not(_)) => Ok(()),
            Some(reply) => Err(refused(reply)),
            None => Err(odd("a birth")),
        }
    }

    /// One round trip. The birth is read in it too, after the record was written: what we know of the record from now
    /// on holds for as long as the server has forgotten nothing since.
    async fn swap_item(&self, item: &str, swap: &Swap<'_>) -> Result<Swapped> {
        let Swap { key, seen, next, keep, .. } = *swap;
        let (wire, condition) = if seen == Version::ABSENT {
            (self.link.wire().await?, "ME".to_owned())
        } else {
            let Some(wire) = self.link.same(seen.0 >> NUMBER_BITS).await else { return Ok(Swapped::Stale) };
            (wire, format!("C{}", seen.0 & NUMBER))
        };
        if next.len() > wire.largest() {
            return Err(too_large());
        }
        let mut text = format!("ms {item} {} {condition} T{} c\r\n", next.len(), seconds(keep)).into_bytes();
        text.extend_from_slice(next);
        text.extend_from_slice(format!("\r\nmg {BORN} v\r\n").as_bytes());
        if is_late(swap) {
            return Ok(Swapped::Stale);
        }
        let replies = wire.ask(text, Answers::Exactly(2)).await?;
        let Ok([written, born]) = <[Reply; 2]>::try_from(replies) else { return Err(odd("a swap")) };
        let version = match written {
            Reply::Done(flags) => version(&wire, &flags),
            Reply::Not(_) => return Ok(Swapped::Stale),
            reply => return Err(refused(reply)),
        };
        let (version, born) = (version.ok_or_else(|| odd("a swap"))?, read_born(born).ok().flatten());
        wire.was_born(born.unwrap_or_default());
        // Too late also if this process or the server stood still in between.
        if seen == Version::ABSENT && (born != Some(swap.born) || is_late(swap)) {
            return self.undo(&wire, item, version).await;
        }
        self.recent.wrote(key, born.map(|about| Known { bytes: next.to_vec(), version, about }));
        Ok(Swapped::Done { origin: 0 })
    }

    /// Removes what was just written: the server has, or may have, forgotten what was there before.
    async fn undo(&self, wire: &Wire, item: &str, version: Version) -> Result<Swapped> {
        let text = format!("md {item} C{}\r\n", version.0 & NUMBER).into_bytes();
        match wire.ask(text, Answers::Exactly(1)).await?.pop() {
            Some(Reply::Done(_) | Reply::Not(Why::Missing)) => Ok(Swapped::Stale),
            Some(Reply::Not(_)) => {
                let message = "the server has forgotten everything just now: ask again";
                Err(Error::new(ErrorKind::Indeterminate, message).at("memcached"))
            }
            Some(reply) => Err(refused(reply)),
            None => Err(odd("a removal")),
        }
    }

    /// The names of all items that could be locks. The server walks through everything that it has.
    async fn items(&self) -> Result<Vec<Item>> {
        let wire = self.link.wire().await?;
        let dump = b"lru_crawler metadump all\r\n".to_vec();
        let replies = wire.ask(dump, Answers::UntilEnd).await.map_err(harmless)?;
        let mut items = Vec::new();
        for reply in replies {
            let line = match reply {
                Reply::Line(line) => line,
                reply => return Err(refused(reply)),
            };
            let Some(name) = line.strip_prefix("key=").and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
            match names::read(&name) {
                Item::Long => {
                    let record = self.load_item(&name).await?.bytes;
                    items.extend(record.as_deref().and_then(key_of).map(Item::Lock));
                }
                item => items.push(item),
            }
        }
        Ok(items)
    }
}

impl Records for Memcached {
    fn info(&self) -> &Info {
        self.info.get().unwrap_or(&INFO)
    }

    fn open(&self, _inbox: Inbox, _wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async {
            let wire = self.link.wire().await.map_err(harmless)?;
            if self.info.get().is_none() {
                let checks = vec![eviction(wire.evictions())];
                Check::judge(&checks, INFO.name)?;
                self.info.get_or_init(|| Info { checks, ..INFO.clone() });
            }
            Ok(())
        })
    }

    fn load<'a>(&'a self, key: &'a Key) -> Fut<'a, Loaded> {
        Box::pin(async {
            let loaded = self.load_item(&names::item(key)).await.map_err(|error| error.on(key))?;
            let Loaded { version, born, .. } = loaded;
            let known = loaded.bytes.clone().map(|bytes| Known { bytes, version, about: born });
            self.recent.saw(key, known);
            Ok(loaded)
        })
    }

    fn guess(&self, key: &Key) -> Option<Loaded> {
        let wire = self.link.at_hand()?;
        let (bytes, version, born) = match self.recent.guess(key)? {
            Some(known) => (Some(known.bytes), known.version, known.about),
            None => (None, Version::ABSENT, wire.born()?),
        };
        Some(loaded(&wire, bytes, version, born))
    }

    fn swap<'a>(&'a self, swap: &'a Swap<'a>) -> Fut<'a, Swapped> {
        Box::pin(async move {
            let swapped = self.swap_item(&names::item(swap.key), swap).await;
            if !matches!(swapped, Ok(Swapped::Done { .. })) {
                self.recent.doubt(swap.key);
            }
            swapped.map_err(|error| error.on(swap.key))
        })
    }

    fn looks_every(&self) -> Option<Duration> {
        Some(LOOKS_EVERY)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }

    fn keys<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Keys> {
        Box::pin(async move {
            let wanted =
                |key: &Key| key.as_str().starts_with(prefix) && cursor.is_none_or(|at| key.as_str() > at);
            let items = self.items().await?.into_iter();
            let mut keys: Vec<Key> = items
                .filter_map(|item| if let Item::Lock(key) = item { Some(key) } else { None })
                .filter(wanted)
                .collect();
            keys.sort_unstable();
            keys.dedup();
            let next = keys.get(PAGE).and_then(|_| keys.get(PAGE - 1)).map(|last| last.as_str().to_owned());
            keys.truncate(PAGE);
            Ok(Keys { keys, next })
        })
    }

    fn nudge<'a>(&'a self, _inbox: Inbox, _key: &'a Key) -> Fut<'a, ()> {
        // Nothing in memcached tells anybody anything: they ask.
        Box::pin(async { Ok(()) })
    }
}

/// What a record is to the adaptor. Its numbers follow this machine's wall clock.
fn loaded(wire: &Wire, bytes: Option<Vec<u8>>, version: Version, born: u64) -> Loaded {
    let clock = micros();
    let (floor, ceiling) = (clock, clock + BOUND_MICROS);
    Loaded { bytes, version, now: wire.now(), born, floor, ceiling, origin: 0 }
}

/// Whether the record was read so long ago that another may have come and gone since.
fn is_late(swap: &Swap<'_>) -> bool {
    BootClock.now().since(swap.seen_at) > LATEST_SWAP
}

/// The version of an item, as an answer on this connection tells it.
fn version(wire: &Wire, flags: &Flags) -> Option<Version> {
    let number = flags.number('c').filter(|number| *number <= NUMBER)?;
    Some(Version(wire.generation() << NUMBER_BITS | number))
}

/// What the server's setting means: a cache evicts what it has no room for, unless it is started with -M.
fn eviction(found: Option<&str>) -> Check {
    const NAME: &str = "evictions";
    match found {
        Some("off") => Check::ok(NAME, "off"),
        Some(found) => Check::warning(NAME, found)
            .effect("the server evicts locks when its memory is full, and a lock may be granted twice")
            .remedy("start memcached with -M, or check tokens at the resource"),
        None => Check::ok(NAME, "unknown").effect("the server does not tell whether it evicts locks"),
    }
}

fn read_born(reply: Reply) -> Result<Option<u64>> {
    match reply {
        Reply::Value(bytes, _) => {
            let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
            let message = format!("the item {BORN} was written by somebody else: remove it");
            number.map(Some).ok_or_else(|| Error::new(ErrorKind::Conflict, message).at("memcached"))
        }
        Reply::Not(Why::Missing) => Ok(None),
        reply => Err(refused(reply)),
    }
}

/// For how long the server is told to keep something: a second more than asked for, because it may forget a second
/// early. 0 is for ever.
fn seconds(keep: Keep) -> u64 {
    let (Keep::For(length) | Keep::Spent(length)) = keep else { return 0 };
    let seconds = length.as_secs() + 2;
    if seconds > LONGEST_TIME { 0 } else { seconds }
}

/// The time by our clock: what lets numbers rise although a record was forgotten.
fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Reading changes nothing, whatever became of it.
fn harmless(error: Error) -> Error {
    if error.kind() != ErrorKind::Indeterminate {
        return error;
    }
    Error::new(ErrorKind::Unavailable, "the server does not answer: check that memcached runs").because(error)
}

fn refused(reply: Reply) -> Error {
    let (kind, message) = match reply {
        Reply::Refused(line) if line.starts_with("SERVER_ERROR") && line.contains("too large") => {
            return too_large();
        }
        Reply::Refused(line) if line.starts_with("SERVER_ERROR") => {
            (ErrorKind::Unavailable, format!("the server cannot store it ({line}): give it more memory"))
        }
        Reply::Refused(line) if line.starts_with("BUSY") => {
            (ErrorKind::Unavailable, "somebody else lists the server's items: try again".to_owned())
        }
        Reply::Refused(line) => {
            (ErrorKind::Protocol, format!("the server refused ({line}): use memcached 1.6 or newer"))
        }
        _ => return odd("a request"),
    };
    Error::new(kind, message).at("memcached")
}

fn too_large() -> Error {
    let message = "too many wait for this lock, its record is too large: try again later";
    Error::new(ErrorKind::Unavailable, message).at("memcached")
}

fn odd(what: &str) -> Error {
    let message = format!("an answer to {what} that this version does not know");
    Error::new(ErrorKind::Protocol, message).at("memcached")
}

#[cfg(test)]
mod tests;
