//! Records in this process's memory, with trouble on demand: what the adaptor is proven on.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{BOUND_MICROS, Keep, Keys, Loaded, Records, Sessions, Swap, Swapped, Version};
use crate::capability::{Capability, Info, Leases, TokenStrength};
use crate::claim::Inbox;
use crate::clock::{BootClock, Clock};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::store::{Fut, Wakes};

/// How many keys a page has: few, so that tests see several.
const PAGE: usize = 100;

static INFO: Info = Info {
    name: "records",
    capabilities: Capability::ALL,
    tokens: TokenStrength::ClockBound,
    leases: Leases::PerClaim,
    ordered: true,
    pushes: true,
    min_lease: Duration::from_millis(10),
    max_lease: Duration::from_secs(365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::ZERO,
    batch: 256,
    checks: Vec::new(),
};

/// How often what goes wrong, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// Where chance starts: the same seed and calls give the same trouble.
    pub seed: u64,
    /// A swap answers `Stale` although nobody was faster.
    pub stale: u32,
    /// A swap is not made, and its caller cannot know.
    pub request_lost: u32,
    /// A swap is made, and its caller cannot know.
    pub reply_lost: u32,
    /// A load fails.
    pub unavailable: u32,
    /// A record is guessed, and every other guess is wrong.
    pub guess: u32,
}

/// A map of versioned records. Clones share it. Versions start again when a record was dropped, which is the
/// worst that [`Records`] allows.
#[derive(Clone, Debug)]
pub struct MapRecords {
    clock: Arc<dyn Clock>,
    trouble: Trouble,
    map: Arc<Mutex<Map>>,
}

#[derive(Debug)]
struct Map {
    records: BTreeMap<Key, Record>,
    inboxes: HashMap<Inbox, Wakes>,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Record {
    bytes: Vec<u8>,
    version: u64,
    /// When it is dropped.
    until: Option<u64>,
    in_use: bool,
}

impl MapRecords {
    /// An empty map on the real clock, without trouble.
    pub fn new() -> Self {
        Self::with(Arc::new(BootClock), Trouble::default())
    }

    /// An empty map on this clock, with this trouble.
    pub fn with(clock: Arc<dyn Clock>, trouble: Trouble) -> Self {
        let random = fastrand::Rng::with_seed(trouble.seed);
        let map = Map { records: BTreeMap::new(), inboxes: HashMap::new(), random };
        Self { clock, trouble, map: Arc::new(Mutex::new(map)) }
    }

    /// The text of a record, whoever wrote it.
    pub fn raw(&self, key: &Key) -> Option<String> {
        self.lock().records.get(key).map(|record| String::from_utf8_lossy(&record.bytes).into_owned())
    }

    /// Writes any text under a key.
    pub fn overwrite(&self, key: &Key, text: &str) {
        let mut map = self.lock();
        let version = map.records.get(key).map_or(1, |record| record.version + 1);
        let record = Record { bytes: text.into(), version, until: None, in_use: true };
        map.records.insert(key.clone(), record);
    }

    /// How many keys somebody claims, or refuses something on.
    pub fn residue(&self) -> usize {
        self.lock().records.values().filter(|record| record.in_use).count()
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().as_millis();
        map.records.retain(|_, record| record.until.is_none_or(|until| until > now));
        map
    }

    fn read(&self, map: &Map, key: &Key) -> Loaded {
        let now = self.clock.now();
        let (bytes, version) = match map.records.get(key) {
            Some(record) => (Some(record.bytes.clone()), Version(record.version)),
            None => (None, Version::ABSENT),
        };
        let (floor, ceiling) = (now.as_micros(), now.as_micros() + BOUND_MICROS);
        Loaded { bytes, version, now: now.as_millis(), born: 0, floor, ceiling, origin: 0 }
    }

    fn happens(map: &mut Map, per_mille: u32) -> bool {
        map.random.u32(0..1000) < per_mille
    }
}

impl Default for MapRecords {
    fn default() -> Self {
        Self::new()
    }
}

fn unknown(key: &Key) -> Error {
    Error::new(ErrorKind::Indeterminate, "the reply was lost: ask again").on(key).at(INFO.name)
}

impl Records for MapRecords {
    fn info(&self) -> &Info {
        &INFO
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        let mut map = self.lock();
        map.inboxes.retain(|_, wakes| !wakes.is_gone());
        map.inboxes.insert(inbox, wakes);
        Box::pin(std::future::ready(Ok(())))
    }

    fn load<'a>(&'a self, key: &'a Key) -> Fut<'a, Loaded> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let mut map = self.lock();
            if Self::happens(&mut map, self.trouble.unavailable) {
                let error = Error::new(ErrorKind::Unavailable, "not reachable: try again");
                return Err(error.on(key).at(INFO.name));
            }
            Ok(self.read(&map, key))
        })
    }

    fn guess(&self, key: &Key) -> Option<Loaded> {
        let mut map = self.lock();
        if !Self::happens(&mut map, self.trouble.guess) {
            return None;
        }
        let is_wrong = Self::happens(&mut map, 500);
        let mut guess = self.read(&map, key);
        match &mut guess {
            // As it was before somebody changed it.
            Loaded { bytes: Some(_), version, .. } if is_wrong => version.0 -= 1,
            Loaded { bytes, version, .. } if is_wrong => {
                (*bytes, *version) = (Some(b"{}".to_vec()), Version(u64::MAX))
            }
            _ => {}
        }
        if guess.version == Version::ABSENT {
            guess.bytes = None;
        }
        Some(guess)
    }

    fn swap<'a>(&'a self, swap: &'a Swap<'a>) -> Fut<'a, Swapped> {
        Box::pin(async move {
            let Swap { key, seen, next, keep, .. } = *swap;
            tokio::task::yield_now().await;
            let mut map = self.lock();
            if Self::happens(&mut map, self.trouble.request_lost) {
                return Err(unknown(key));
            }
            let version = map.records.get(key).map_or(Version::ABSENT.0, |record| record.version);
            if version != seen.0 || Self::happens(&mut map, self.trouble.stale) {
                return Ok(Swapped::Stale);
            }
            let until = match keep {
                Keep::Forever => None,
                Keep::For(length) | Keep::Spent(length) => Some((self.clock.now() + length).as_millis()),
            };
            let in_use = !matches!(keep, Keep::Spent(_));
            map.records
                .insert(key.clone(), Record { bytes: next.into(), version: version + 1, until, in_use });
            if Self::happens(&mut map, self.trouble.reply_lost) {
                return Err(unknown(key));
            }
            Ok(Swapped::Done { origin: 0 })
        })
    }

    fn keys<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Keys> {
        let map = self.lock();
        let after = |key: &&Key| cursor.is_none_or(|cursor| key.as_str() > cursor);
        let found = map.records.keys().filter(|key| key.as_str().starts_with(prefix)).filter(after);
        let mut keys: Vec<Key> = found.take(PAGE + 1).cloned().collect();
        let more = keys.len() > PAGE;
        keys.truncate(PAGE);
        let next = keys.last().filter(|_| more).map(|key| key.as_str().to_owned());
        Box::pin(std::future::ready(Result::Ok(Keys { keys, next })))
    }

    fn nudge<'a>(&'a self, inbox: Inbox, key: &'a Key) -> Fut<'a, ()> {
        let wakes = self.lock().inboxes.get(&inbox).cloned();
        if let Some(wakes) = wakes {
            wakes.look(key);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn looks_every(&self) -> Option<Duration> {
        None
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }
}
