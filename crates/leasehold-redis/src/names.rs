//! What things are called on the server, and in which hash slot they are.
//!
//! All keys of a lock share a slot: the name as a whole is the hash tag, unless the user put a `{tag}` of their own
//! into it. What kind of key it is stands in front, so that no name can look like another kind of key:
//!
//! | key | for the lock `orders/42` | for the lock `a{b}c` |
//! |---|---|---|
//! | lock | `leasehold{:orders/42}` | `leasehold:a{b}c` |
//! | refused id | `leasehold.refused:ID{:orders/42}` | `leasehold.refused:ID:a{b}c` |
//! | fence | `leasehold.fence`, in a cluster `leasehold.fence{N}` with an N of that slot | the same |
//! | secret | `leasehold.secret` | the same |
//! | channel | `leasehold.inbox:ID` | the same |

use std::sync::OnceLock;

use leasehold_core::{ClaimId, Inbox, Key};

/// Hash slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;
const LOCK: &str = "leasehold";
const REFUSED: &str = "leasehold.refused:";
const FENCE: &str = "leasehold.fence";
const INBOX: &str = "leasehold.inbox:";
/// The key of the secret that proves messages: not one that a role for reading locks can read.
pub(crate) const SECRET: &[u8] = b"leasehold.secret";

/// The key of a lock.
pub(crate) fn lock(key: &Key) -> Vec<u8> {
    tagged(LOCK, &[], key.as_str())
}

/// The lock whose key this is.
pub(crate) fn locked(name: &[u8]) -> Option<Key> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix(LOCK)?;
    let key = match rest.strip_prefix("{:") {
        Some(rest) => rest.strip_suffix('}')?,
        None => rest.strip_prefix(':')?,
    };
    // What we would call otherwise is not ours.
    Key::new(key).ok().filter(|key| lock(key) == name)
}

/// The pattern that the keys of all locks match that start with this.
pub(crate) fn pattern(prefix: &str) -> String {
    let mut pattern = format!("{LOCK}*");
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}

/// The mark that refuses a claim's id.
pub(crate) fn refused(key: &Key, id: &ClaimId) -> Vec<u8> {
    tagged(REFUSED, &hex(id.as_bytes()), key.as_str())
}

/// The channel of a client.
pub(crate) fn channel(inbox: Inbox) -> Vec<u8> {
    format!("{INBOX}{}", address(inbox)).into_bytes()
}

/// An inbox as it is written down.
pub(crate) fn address(inbox: Inbox) -> String {
    format!("{:016x}", inbox.0)
}

/// The fence of a single server.
pub(crate) fn fence() -> Vec<u8> {
    FENCE.as_bytes().to_vec()
}

/// The fence of a slot in a cluster: its tag is the smallest number that belongs there.
pub(crate) fn fence_in(slot: u16) -> Vec<u8> {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; SLOTS];
        let mut missing = SLOTS;
        for number in 0.. {
            let tag = &mut tags[usize::from(crc16(number_text(number).as_bytes())) % SLOTS];
            if tag.is_none() {
                *tag = Some(number);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        tags.into_iter().flatten().collect()
    });
    format!("{FENCE}{{{}}}", tags[usize::from(slot)]).into_bytes()
}

fn number_text(number: u32) -> String {
    number.to_string()
}

/// The hash slot of a key.
pub(crate) fn slot(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % 16_384
}

/// The part of a key that decides its slot, if it is not the whole: between the first `{` and the next `}`.
fn tag(name: &[u8]) -> Option<&[u8]> {
    let start = name.iter().position(|byte| *byte == b'{')? + 1;
    let length = name[start..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &name[start..start + length])
}

/// The key of a kind of things of a lock.
fn tagged(kind: &str, which: &[u8], name: &str) -> Vec<u8> {
    // The colon inside keeps the tag from being empty when the name starts with a brace.
    let (start, end) = if tag(name.as_bytes()).is_some() { (":", "") } else { ("{:", "}") };
    [kind.as_bytes(), which, start.as_bytes(), name.as_bytes(), end.as_bytes()].concat()
}

fn hex(bytes: &[u8; 16]) -> [u8; 32] {
    let digit = |n: usize| {
        let byte = bytes[n / 2];
        b"0123456789abcdef"[usize::from(if n.is_multiple_of(2) { byte >> 4 } else { byte & 15 })]
    };
    std::array::from_fn(digit)
}

/// CRC-16/XMODEM, as the cluster specification says.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC[usize::from((crc >> 8) as u8 ^ byte)])
}

/// What each byte does to the sum.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
    }

    #[test]
    fn names_come_back_and_never_collide() {
        let names = [
            "a",
            "{a}",
            "{:a}",
            ":a",
            "a{b}c",
            "{",
            "}",
            "{}",
            "}{",
            "{}{a}",
            "a}b",
            "\0",
            "leasehold",
            "\u{1f512}",
        ];
        let keys: std::collections::HashSet<_> = names.iter().map(|name| lock(&key(name))).collect();
        assert_eq!(keys.len(), names.len());
        for name in names {
            assert_eq!(locked(&lock(&key(name))), Some(key(name)));
        }
        assert_eq!(locked(b"leasehold.fence"), None);
        assert_eq!(locked(SECRET), None);
        assert_eq!(locked(b"leasehold:a"), None);
    }

    #[test]
    fn all_keys_of_a_lock_share_a_slot_which_a_tag_of_the_user_decides() {
        let id = ClaimId::from_bytes([7; 16]);
        for name in ["a", "a{b}c", "}", "{}", "}{x}"] {
            let key = key(name);
            let place = slot(&lock(&key));
            assert_eq!(slot(&refused(&key, &id)), place, "{name}");
            assert_eq!(slot(&fence_in(place)), place, "{name}");
        }
        assert_eq!(slot(&lock(&key("a{b}c"))), slot(b"b"));
    }

    #[test]
    fn every_slot_has_a_fence() {
        assert!((0..16_384).all(|place| slot(&fence_in(place)) == place));
    }
}
