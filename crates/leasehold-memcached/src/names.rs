//! What things are called on the server, in 250 bytes without spaces and control characters.

use leasehold_core::Key;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Since when nothing was forgotten.
pub(crate) const BORN: &str = "leasehold.born";

/// What the names of locks start with.
const LOCK: &str = "leasehold:";

/// What the names of locks start with whose own names do not fit.
const LONG: &str = "leasehold#";

/// The longest name.
const MOST: usize = 250;

/// What cannot be written as it is.
const ODD: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// The item of a lock. A name that does not fit is cut, and its hash added: the record has the whole name, so that two
/// that share a hash are a conflict and never one lock.
pub(crate) fn item(key: &Key) -> String {
    let name = utf8_percent_encode(key.as_str(), ODD).to_string();
    if LOCK.len() + name.len() <= MOST {
        return format!("{LOCK}{name}");
    }
    let hash = format!("{:032x}", hash(key.as_str().as_bytes()));
    format!("{LONG}{hash}:{}", &name[..MOST - LONG.len() - hash.len() - 1])
}

/// What an item is to a list of locks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The lock with this name.
    Lock(Key),
    /// A lock whose record knows its name.
    Long,
    /// No lock.
    Other,
}

/// What an item of this name is.
pub(crate) fn read(name: &str) -> Item {
    if name.starts_with(LONG) {
        return Item::Long;
    }
    let Some(rest) = name.strip_prefix(LOCK) else { return Item::Other };
    let key = percent_decode_str(rest).decode_utf8().ok().and_then(|name| Key::new(name).ok());
    // What we would call otherwise is not ours.
    key.filter(|key| item(key) == name).map_or(Item::Other, Item::Lock)
}

/// FNV-1a: the same in every version of every program, which the hashes of the standard library are not.
fn hash(bytes: &[u8]) -> u128 {
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x1000000000000000000013b);
    bytes.iter().fold(0x6c62272e07bb014262b821756295c58d, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_come_back_and_never_collide() {
        let (long, many) = ("x".repeat(1024), "ü".repeat(40));
        let names = ["a", "a b", "a%20b", "a\r\nb", "\0", "ü", many.as_str(), long.as_str(), &long[1..]];
        let items: std::collections::HashSet<_> =
            names.iter().map(|name| item(&Key::new(*name).unwrap())).collect();
        assert_eq!(items.len(), names.len());
        for item in &items {
            assert!(item.len() <= MOST && item.bytes().all(|b| b.is_ascii_graphic()), "{item}");
        }
        for name in &names[..7] {
            let key = Key::new(*name).unwrap();
            assert_eq!(read(&item(&key)), Item::Lock(key));
        }
        assert_eq!(read(&item(&Key::new(long.as_str()).unwrap())), Item::Long);
        assert_eq!((read("session:5"), read("leasehold:%61")), (Item::Other, Item::Other));
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // The published example for this width.
        assert_eq!(hash(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
    }
}
