//! What things are called in Consul's key-value store.
//!
//! | key | what |
//! |---|---|
//! | `leasehold/locks/NAME` | the record of a lock |
//! | `leasehold/loose/NAME` | there as long as a lock has a record that no session takes with it |
//! | `leasehold/alive/SESSION` | held by the session, so it is there as long as that; nothing else changes under `alive/` |
//! | `leasehold/beats/SESSION` | held by the session and written with every heartbeat |
//! | `leasehold/clients/SESSION/open` | held by the session: old servers wake whoever waits for keys of which there are none |
//! | `leasehold/clients/SESSION/SEAT` | held by the session: news for its client |
//!
//! `leasehold` stands for the prefix that the URL may choose. In names everything but letters, digits, `-`, `_`, `.`
//! and single slashes is written as `~` and two hexadecimal digits: newer servers refuse or rewrite odd keys.

use leasehold_core::Key;

/// Where everything is.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    root: String,
}

impl Names {
    pub(crate) fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn lock(&self, key: &Key) -> String {
        format!("{}/locks/{}", self.root, encode(key.as_str()))
    }

    /// The lock whose record this is.
    pub(crate) fn locked(&self, name: &str) -> Option<Key> {
        named(name.strip_prefix(&self.locks())?)
    }

    pub(crate) fn loose(&self, key: &Key) -> String {
        self.all_loose() + &encode(key.as_str())
    }

    /// The lock whose record is said to be loose.
    pub(crate) fn loosened(&self, name: &str) -> Option<Key> {
        named(name.strip_prefix(&self.all_loose())?)
    }

    pub(crate) fn all_loose(&self) -> String {
        format!("{}/loose/", self.root)
    }

    fn locks(&self) -> String {
        format!("{}/locks/", self.root)
    }

    /// What the names of all locks start with that start with this: perhaps less, never more.
    pub(crate) fn locks_from(&self, prefix: &str) -> String {
        let plain = prefix.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(prefix.len());
        self.locks() + &prefix[..plain]
    }

    pub(crate) fn all_alive(&self) -> String {
        format!("{}/alive/", self.root)
    }

    pub(crate) fn alive(&self, session: &str) -> String {
        format!("{}/alive/{session}", self.root)
    }

    pub(crate) fn client(&self, session: &str) -> String {
        format!("{}/clients/{session}/", self.root)
    }

    pub(crate) fn beat(&self, session: &str) -> String {
        format!("{}/beats/{session}", self.root)
    }

    pub(crate) fn open(&self, session: &str) -> String {
        self.client(session) + "open"
    }

    pub(crate) fn news(&self, session: &str, seat: u64) -> String {
        format!("{}{seat}", self.client(session))
    }
}

/// The key that is written like this.
fn named(encoded: &str) -> Option<Key> {
    Key::new(decode(encoded)?).ok()
}

fn encode(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let slash = |place: Option<usize>| place.and_then(|at| bytes.get(at)).is_none_or(|b| *b == b'/');
        let before = slash(at.checked_sub(1));
        let plain = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => true,
            // Neither an empty part of a path nor one that means "here" or "up".
            b'/' => !before && at + 1 < bytes.len(),
            b'.' => !before,
            _ => false,
        };
        match plain {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("~{byte:02x}")),
        }
    }
    text
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first == b'~' {
            let digits = str::from_utf8(others.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &others[2..];
        } else {
            bytes.push(*first);
        }
    }
    // What we would call otherwise is not ours.
    String::from_utf8(bytes).ok().filter(|name| encode(name) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_never_collide_and_have_no_odd_parts() {
        let names = [
            "a", "a/b", "a//b", "a/", "/a", "/", ".", "..", "a/..", "a/./b", "a.b", "~", "~2f", "a~2fb", "ä",
            "a b", "%2f", "?x=1", "A", "\0", "...",
        ];
        let known = Names::new("leasehold");
        let mut seen = std::collections::HashSet::new();
        for name in names {
            let key = Key::new(name).unwrap();
            let stored = known.lock(&key);
            assert_eq!(known.locked(&stored), Some(key), "{stored}");
            assert!(
                stored.split('/').all(|part| !part.is_empty() && part != "." && part != ".."),
                "{stored}"
            );
            assert!(stored.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./~".contains(&b)), "{stored}");
            assert!(seen.insert(stored));
        }
        assert_eq!(known.lock(&Key::new("orders/42").unwrap()), "leasehold/locks/orders/42");
    }

    #[test]
    fn a_listing_starts_at_no_more_than_its_prefix() {
        let known = Names::new("leasehold");
        for (prefix, name) in [("a/", "a/b"), ("a/", "a//b"), ("or", "orders"), ("ä", "äb"), ("a.", "a.b")]
        {
            let stored = known.lock(&Key::new(name).unwrap());
            assert!(stored.starts_with(&known.locks_from(prefix)), "{prefix} {stored}");
        }
    }

    #[test]
    fn no_name_makes_us_panic() {
        leasehold_conformance::fuzz::fuzz(&[b"a/b~2f~2e", b"~ff~+f~", "a~c3~a4".as_bytes()], |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Some(name) = decode(&text) {
                assert_eq!(encode(&name), text);
            }
        });
    }
}
