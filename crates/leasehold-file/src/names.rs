//! What records are called: the lock's name, written so that any file system takes it.

use leasehold_core::Key;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The longest name that file systems take, less what an encrypting one needs for itself.
const MOST: usize = 140;

/// What a name starts with that was cut.
const LONG: char = '#';

/// What cannot be part of a file's name, or means something at its beginning.
const ODD: &AsciiSet = &CONTROLS.add(b'/').add(b'%').add(b'#').add(b'.').add(b'\\').add(b':').add(b'~');

/// The file of a lock. A name that does not fit is cut, and its hash added: the record has the whole name, so that two
/// that share a hash are a conflict and never one lock.
pub(crate) fn file(key: &Key) -> String {
    let name = utf8_percent_encode(key.as_str(), ODD).to_string();
    if name.len() <= MOST {
        return name;
    }
    let hash = format!("{LONG}{:032x}", hash(key.as_str().as_bytes()));
    format!("{hash}{LONG}{}", &name[..MOST - hash.len() - 1])
}

/// What a file is to a list of locks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// The lock with this name.
    Lock(Key),
    /// A lock whose record knows its name.
    Long,
    /// No lock.
    Other,
}

/// What a file of this name is.
pub(crate) fn read(name: &str) -> Name {
    if name.starts_with(LONG) {
        return Name::Long;
    }
    let key = percent_decode_str(name).decode_utf8().ok().and_then(|name| Key::new(name).ok());
    // What we would call otherwise is not ours.
    key.filter(|key| file(key) == name).map_or(Name::Other, Name::Lock)
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
        let (long, many) = ("x".repeat(1024), "ü".repeat(20));
        let names = [
            "a",
            "a b",
            "a%20b",
            "a/b",
            ".",
            "..",
            "../../etc/passwd",
            "a\r\nb",
            "\0",
            "#x",
            &many,
            &long,
            &long[1..],
        ];
        let files: std::collections::HashSet<_> =
            names.iter().map(|name| file(&Key::new(*name).unwrap())).collect();
        assert_eq!(files.len(), names.len());
        for file in &files {
            assert!(file.len() <= MOST && !file.contains(['/', '\0', '.']), "{file}");
        }
        for name in &names[..11] {
            let key = Key::new(*name).unwrap();
            assert_eq!(read(&file(&key)), Name::Lock(key));
        }
        assert_eq!(read(&file(&Key::new(long.as_str()).unwrap())), Name::Long);
        assert_eq!((read("a.tmp"), read("%61")), (Name::Other, Name::Other));
    }
}
