//! What things are called on the server.
//!
//! | node | for | kind |
//! |---|---|---|
//! | `BASE/locks/KEY` | a lock that somebody claims | container |
//! | `BASE/locks/KEY/w-…` | a claim that waits; the server appends its place in the queue | ephemeral, sequential |
//! | `BASE/locks/KEY/h-…` | a claim that holds and lives with its session | ephemeral |
//! | `BASE/locks/KEY/p-…` | a claim that holds and lives on a lease of its own, or without one | persistent |
//! | `BASE/locks/KEY/l-…` | a limit that was changed | persistent |
//! | `BASE/clients/…` | a client's session | ephemeral |
//!
//! Everything that the rule needs to know about a claim is in its node's *name*, so that one listing of a lock tells who
//! holds and who is next. What only people and owners want to know is in its data.

use std::fmt;

use leasehold_core::{ClaimId, Key};

/// What kind of node a claim has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Waits, on a session.
    Waiting,
    /// Holds, on a session.
    Held,
    /// Holds, with an end of its own or without one.
    Kept,
}

impl Kind {
    fn letter(self) -> char {
        match self {
            Self::Waiting => 'w',
            Self::Held => 'h',
            Self::Kept => 'p',
        }
    }
}

/// The name of a claim's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) id: ClaimId,
    /// [`leasehold_core::Claim::round`].
    pub(crate) round: u64,
    /// The limit that it declared.
    pub(crate) limit: u64,
    pub(crate) held: u64,
    pub(crate) wanted: u64,
    pub(crate) least: u64,
    /// Its seat and its token; 0 for the number of the write that made this very node.
    pub(crate) seat: u64,
    pub(crate) token: u64,
    /// Where it stands in the queue, if it waits: counts up, and may overflow.
    pub(crate) turn: i32,
}

impl fmt::Display for Name {
    /// Without the turn, which the server appends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, id, round, limit, held, wanted, least, seat, token, .. } = self;
        let (kind, id) = (kind.letter(), u128::from_be_bytes(*id.as_bytes()));
        write!(f, "{kind}-{id:032x}-{round:x}-{limit:x}-{held:x}-{wanted:x}-{least:x}-{seat:x}-{token:x}")?;
        if self.kind == Kind::Waiting { f.write_str("-") } else { Ok(()) }
    }
}

impl Name {
    /// The name, if it is one of ours.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The turn may be negative, so its sign is no dash.
        let mut parts = text.splitn(10, '-');
        let kind = match parts.next()? {
            "w" => Kind::Waiting,
            "h" => Kind::Held,
            "p" => Kind::Kept,
            _ => return None,
        };
        let id = ClaimId::from_bytes(u128::from_str_radix(parts.next()?, 16).ok()?.to_be_bytes());
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (round, limit, held, wanted) = (number()?, number()?, number()?, number()?);
        let (least, seat, token) = (number()?, number()?, number()?);
        let turn = match kind {
            Kind::Waiting => parts.next()?.parse().ok()?,
            _ => 0,
        };
        Some(Self { kind, id, round, limit, held, wanted, least, seat, token, turn })
    }
}

/// The node of a limit that was changed: which was declared, and which is in force.
pub(crate) fn limit(declared: u64, effective: u64) -> String {
    format!("l-{declared:x}-{effective:x}")
}

/// What such a node says.
pub(crate) fn parse_limit(text: &str) -> Option<(u64, u64)> {
    let (declared, effective) = text.strip_prefix("l-")?.split_once('-')?;
    Some((u64::from_str_radix(declared, 16).ok()?, u64::from_str_radix(effective, 16).ok()?))
}

/// A lock's node: its name, with what a path cannot have written as in URLs.
pub(crate) fn encode(key: &Key) -> String {
    let name = key.as_str();
    let only_dots = matches!(name, "." | "..");
    let mut node = String::with_capacity(name.len());
    for c in name.chars() {
        let fits = match c {
            '/' | '%' => false,
            '.' => !only_dots,
            // The server knows characters of 16 bits and refuses those that control, are for private use or no characters.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{d7ff}'..='\u{f8ff}' | '\u{fff0}'.. => false,
            _ => true,
        };
        if fits {
            node.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                node.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    node
}

/// The lock whose node this is.
pub(crate) fn decode(node: &str) -> Option<Key> {
    let name = percent_encoding::percent_decode_str(node).decode_utf8().ok()?;
    // What we would call otherwise is not ours.
    Key::new(name).ok().filter(|key| encode(key) == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_locks_come_back_and_never_collide() {
        let names = [
            "a",
            "a/b",
            "a%2Fb",
            "%",
            ".",
            "..",
            "...",
            "a.b",
            "\0",
            "\u{7f}",
            "\u{e000}",
            "\u{1f512}",
            "zookeeper",
        ];
        let nodes: std::collections::HashSet<_> =
            names.iter().map(|name| encode(&Key::new(name).unwrap())).collect();
        assert_eq!(nodes.len(), names.len());
        assert!(nodes.iter().all(|node| !node.contains('/') && !matches!(node.as_str(), "." | "..")));
        for name in names {
            let key = Key::new(name).unwrap();
            assert_eq!(decode(&encode(&key)), Some(key));
        }
        assert_eq!(decode("a%62"), None);
    }

    #[test]
    fn names_of_claims_come_back() {
        let name = Name {
            kind: Kind::Waiting,
            id: ClaimId::from_bytes([7; 16]),
            round: 3,
            limit: leasehold_core::WHOLE,
            held: 0,
            wanted: 5,
            least: 1,
            seat: 0,
            token: 0,
            turn: -12,
        };
        assert_eq!(Name::parse(&format!("{name}-000000012")), Some(name.clone()));
        let held = Name { kind: Kind::Held, held: 5, seat: 1 << 40, turn: 0, ..name };
        assert_eq!(Name::parse(&held.to_string()), Some(held));
        assert_eq!(Name::parse("lock-0000000001"), None);
        assert_eq!(parse_limit(&limit(5, 3)), Some((5, 3)));
    }
}
