//! The records that this process saw or wrote last: a lock that nobody else touches needs no reading.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Version;
use crate::key::Key;

/// More records than this, or more bytes, are forgotten all at once.
const MOST: usize = 16 * 1024;
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// How many guesses are not made after one was wrong: somebody else is at the key.
const WARY: u8 = 4;

/// A record as it was last seen, with what the store knows besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known<T> {
    /// The record.
    pub bytes: Vec<u8>,
    /// Its version.
    pub version: Version,
    /// What else the store has to know about it.
    pub about: T,
}

#[derive(Debug)]
struct Note<T> {
    known: Option<Known<T>>,
    /// We wrote it. What others wrote they are likely to write again.
    is_ours: bool,
    wary: u8,
}

#[derive(Debug)]
struct Notes<T> {
    by_key: HashMap<Key, Note<T>>,
    bytes: usize,
}

/// What is known about records, for [`Records::guess`](super::Records::guess).
///
/// ```
/// use leasehold_core::Key;
/// use leasehold_core::record::{Known, Recent, Version};
/// let (recent, key) = (Recent::default(), Key::new("orders/42")?);
/// assert_eq!(recent.guess(&key), Some(None)); // of what was never seen there is probably none
/// let known = Known { bytes: b"{}".to_vec(), version: Version(7), about: () };
/// recent.wrote(&key, Some(known.clone()));
/// assert_eq!(recent.guess(&key), Some(Some(known.clone())));
/// recent.saw(&key, Some(known));
/// assert_eq!(recent.guess(&key), None); // somebody else's: it has to be read
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Recent<T>(Mutex<Notes<T>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(Notes { by_key: HashMap::new(), bytes: 0 }))
    }
}

impl<T: Clone> Recent<T> {
    fn lock(&self) -> MutexGuard<'_, Notes<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// We wrote a record, or removed it.
    pub fn wrote(&self, key: &Key, known: Option<Known<T>>) {
        self.lock().put(key, known, true);
    }

    /// A record was read; `None` when there was none.
    pub fn saw(&self, key: &Key, known: Option<Known<T>>) {
        self.lock().put(key, known, false);
    }

    /// What is known was not so any more: the next looks are real ones.
    pub fn doubt(&self, key: &Key) {
        let mut notes = self.lock();
        match notes.by_key.get_mut(key) {
            Some(note) => (note.is_ours, note.wary) = (false, WARY),
            None => notes.insert(key, Note { known: None, is_ours: false, wary: WARY }),
        }
    }

    /// What a record probably is, `Some(None)` when there probably is none; `None` when a guess would probably be
    /// wrong.
    pub fn guess(&self, key: &Key) -> Option<Option<Known<T>>> {
        let notes = self.lock();
        let Some(note) = notes.by_key.get(key) else { return Some(None) };
        (note.is_ours && note.wary == 0).then(|| note.known.clone())
    }

    /// What is known about the record of this version, whoever wrote it.
    pub fn about(&self, key: &Key, version: Version) -> Option<T> {
        let notes = self.lock();
        let known = notes.by_key.get(key)?.known.as_ref()?;
        (known.version == version).then(|| known.about.clone())
    }
}

impl<T> Notes<T> {
    fn put(&mut self, key: &Key, known: Option<Known<T>>, is_ours: bool) {
        let wary = self.by_key.remove(key).map_or(0, |before| {
            self.bytes -= before.size();
            before.wary.saturating_sub(u8::from(is_ours))
        });
        // One that is not there is as good as never seen: nothing is left of a key that nobody uses.
        if known.is_some() || wary > 0 {
            self.insert(key, Note { known, is_ours, wary });
        }
    }

    fn insert(&mut self, key: &Key, note: Note<T>) {
        if self.by_key.len() >= MOST || self.bytes + note.size() > MOST_BYTES {
            self.by_key.clear();
            self.bytes = 0;
        }
        self.bytes += note.size();
        self.by_key.insert(key.clone(), note);
    }
}

impl<T> Note<T> {
    fn size(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(format!("orders/{number}")).unwrap()
    }

    fn known(version: u64, length: usize) -> Option<Known<()>> {
        Some(Known { bytes: vec![b'x'; length], version: Version(version), about: () })
    }

    #[test]
    fn what_we_wrote_is_guessed_and_what_others_wrote_is_read() {
        let recent = Recent::default();
        recent.wrote(&key(1), known(5, 3));
        assert_eq!(recent.guess(&key(1)), Some(known(5, 3)));
        recent.saw(&key(1), known(6, 3));
        assert_eq!(recent.guess(&key(1)), None);
        assert_eq!((recent.about(&key(1), Version(6)), recent.about(&key(1), Version(5))), (Some(()), None));
        recent.wrote(&key(1), None);
        assert_eq!(recent.guess(&key(1)), Some(None));
        assert!(recent.lock().by_key.is_empty(), "nothing is left of it");
    }

    #[test]
    fn after_a_wrong_guess_some_are_not_made() {
        let recent = Recent::default();
        for _ in 0..2 {
            recent.doubt(&key(1));
            for version in 0..u64::from(WARY) {
                assert_eq!(recent.guess(&key(1)), None);
                recent.saw(&key(1), known(version, 3));
                recent.wrote(&key(1), known(version + 1, 3));
            }
            assert_eq!(recent.guess(&key(1)), Some(known(u64::from(WARY), 3)));
        }
    }

    #[test]
    fn memory_is_bounded_by_count_and_by_bytes() {
        let recent = Recent::default();
        for number in 0..3 * MOST {
            recent.wrote(&key(number), known(1, 1));
            assert!(recent.lock().by_key.len() <= MOST);
        }
        for number in 0..100 {
            recent.wrote(&key(number), known(1, MOST_BYTES / 10));
            assert!(recent.lock().bytes <= MOST_BYTES);
        }
    }
}
