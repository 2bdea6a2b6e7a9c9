//! The records that this process saw or wrote last: a lock that nobody else touches needs no reading.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::Key;
use leasehold_core::record::Version;

/// More than this many are forgotten all at once.
const MOST: usize = 16 * 1024;

/// A record as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) bytes: Vec<u8>,
    pub(crate) version: u64,
    /// The index at which it was created.
    pub(crate) created: u64,
    /// The session that the key is bound to.
    pub(crate) held_by: Option<String>,
    /// We wrote it. What others wrote they are likely to write again.
    pub(crate) ours: bool,
}

/// What is known about records; what is not known is guessed to be absent.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<Key, Known>>);

impl Recent {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the record is now; `None` when there is none.
    pub(crate) fn put(&self, key: &Key, known: Option<Known>) {
        let mut all = self.lock();
        match known {
            None => _ = all.remove(key),
            Some(known) => {
                if all.len() >= MOST {
                    all.clear();
                }
                all.insert(key.clone(), known);
            }
        }
    }

    pub(crate) fn forget(&self, key: &Key) {
        // Somebody else is at it: the next look is a real one.
        if let Some(known) = self.lock().get_mut(key) {
            known.ours = false;
        }
    }

    /// A guess; `None` when it would probably be wrong.
    pub(crate) fn guess(&self, key: &Key) -> Option<Option<Known>> {
        match self.lock().get(key) {
            None => Some(None),
            Some(known) => known.ours.then(|| Some(known.clone())),
        }
    }

    /// Who held the key of a record when it had this version; `None` when that is not known.
    pub(crate) fn held_by(&self, key: &Key, version: Version) -> Option<Option<String>> {
        if version == Version::ABSENT {
            return Some(None);
        }
        let all = self.lock();
        all.get(key).filter(|known| known.version == version.0).map(|known| known.held_by.clone())
    }
}
