//! What things are called in etcd.
//!
//! ```text
//! leasehold/lock/orders%2F42/grow/<id>   holds some units and wants more
//! leasehold/lock/orders%2F42/hold/<id>   holds
//! leasehold/lock/orders%2F42/limit       the limit in force, after a resize
//! leasehold/lock/orders%2F42/wait/<id>   waits
//! leasehold/inbox/<client>/<lease>       what a client is told; it goes with the session
//! leasehold/refused/<id>                 a claim that was withdrawn before it arrived
//! ```
//!
//! The order of these names matters: everything that a decision depends on is in the one range from `grow/` to before
//! `wait/`, so joining and leaving the queue invalidates nobody's decision.

use leasehold_core::rule::Row;
use leasehold_core::{ClaimId, Inbox, Key};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What would make one name part of another, or unreadable.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%').add(b'/');

/// From a name to before another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
}

impl Span {
    /// All names that start with this.
    pub(crate) fn starting_with(start: &str) -> Self {
        let (from, mut to) = (start.as_bytes().to_vec(), start.as_bytes().to_vec());
        while let Some(last) = to.pop() {
            if last < u8::MAX {
                to.push(last + 1);
                break;
            }
        }
        Self { from, to }
    }
}

/// How a claim stands, as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Grow,
    Hold,
    Wait,
}

impl Standing {
    pub(crate) const ALL: [Self; 3] = [Self::Grow, Self::Hold, Self::Wait];

    pub(crate) fn of(row: &Row) -> Self {
        match (row.held, row.waits()) {
            (0, _) => Self::Wait,
            (_, true) => Self::Grow,
            (_, false) => Self::Hold,
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Grow => "grow/",
            Self::Hold => "hold/",
            Self::Wait => "wait/",
        }
    }
}

/// The names of one store.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn lock(&self, key: &Key) -> Lock {
        Lock { base: format!("{}/", self.locks(key.as_str())), key: key.clone() }
    }

    /// What the names of all locks start with that start with this.
    pub(crate) fn locks(&self, start: &str) -> String {
        format!("{}/lock/{}", self.prefix, utf8_percent_encode(start, ENCODED))
    }

    /// What a client is told about claims on one of its sessions.
    pub(crate) fn inbox(&self, inbox: Inbox, lease: i64) -> Vec<u8> {
        format!("{}/inbox/{:016x}/{lease:x}", self.prefix, inbox.0).into_bytes()
    }

    /// All that a client is told.
    pub(crate) fn inboxes(&self, inbox: Inbox) -> Span {
        Span::starting_with(&format!("{}/inbox/{:016x}/", self.prefix, inbox.0))
    }

    pub(crate) fn refused(&self, id: &ClaimId) -> Vec<u8> {
        format!("{}/refused/{}", self.prefix, hex(id)).into_bytes()
    }

    /// The lock that a name belongs to, and what follows its base.
    pub(crate) fn parse<'a>(&self, name: &'a [u8]) -> Option<(Key, &'a str)> {
        let rest = str::from_utf8(name).ok()?.strip_prefix(&self.prefix)?.strip_prefix("/lock/")?;
        let (lock, rest) = rest.split_once('/')?;
        let key = percent_decode_str(lock).decode_utf8().ok()?;
        Some((Key::new(&*key).ok()?, rest))
    }

    /// The claim that a name is of, its lock, and how it stands.
    pub(crate) fn claim(&self, name: &[u8]) -> Option<(ClaimId, (Key, Standing))> {
        let (key, rest) = self.parse(name)?;
        let standing = Standing::ALL.into_iter().find(|standing| rest.starts_with(standing.folder()))?;
        Some((id_of(rest.strip_prefix(standing.folder())?)?, (key, standing)))
    }

    /// Where the names of locks go on after this one.
    pub(crate) fn after(&self, lock: &str) -> Vec<u8> {
        Span::starting_with(&format!("{}/", self.locks(lock))).to
    }
}

/// The names of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    base: String,
    pub(crate) key: Key,
}

impl Lock {
    pub(crate) fn claim(&self, standing: Standing, id: &ClaimId) -> Vec<u8> {
        format!("{}{}{}", self.base, standing.folder(), hex(id)).into_bytes()
    }

    pub(crate) fn limit(&self) -> Vec<u8> {
        format!("{}limit", self.base).into_bytes()
    }

    /// Everything about the lock.
    pub(crate) fn all(&self) -> Span {
        Span::starting_with(&self.base)
    }

    /// All claims that stand so.
    pub(crate) fn standing(&self, standing: Standing) -> Span {
        Span::starting_with(&format!("{}{}", self.base, standing.folder()))
    }

    /// What decisions depend on: who holds, and the limit.
    pub(crate) fn held(&self) -> Span {
        let (grow, wait) = (self.standing(Standing::Grow), self.standing(Standing::Wait));
        Span { from: grow.from, to: wait.from }
    }
}

fn hex(id: &ClaimId) -> String {
    id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id_of(text: &str) -> Option<ClaimId> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(ClaimId::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(key: &str) -> Lock {
        Names::new("leasehold").lock(&Key::new(key).unwrap())
    }

    fn contains(span: &Span, name: &[u8]) -> bool {
        span.from.as_slice() <= name && name < span.to.as_slice()
    }

    #[test]
    fn no_lock_is_inside_another() {
        let id = ClaimId::from_bytes([7; 16]);
        for (outer, inner) in
            [("a", "a/b"), ("a", "a/"), ("a", "a/hold/b"), ("a", "ab"), ("a", "a%2Fb"), ("a/b", "a%2Fb")]
        {
            let name = lock(inner).claim(Standing::Hold, &id);
            assert!(!contains(&lock(outer).all(), &name), "{inner} in {outer}");
        }
    }

    #[test]
    fn who_waits_is_not_in_what_decisions_depend_on() {
        let (lock, id) = (lock("a"), ClaimId::from_bytes([7; 16]));
        assert!(contains(&lock.held(), &lock.claim(Standing::Hold, &id)));
        assert!(contains(&lock.held(), &lock.claim(Standing::Grow, &id)));
        assert!(contains(&lock.held(), &lock.limit()));
        assert!(!contains(&lock.held(), &lock.claim(Standing::Wait, &id)));
        assert!(contains(&lock.all(), &lock.claim(Standing::Wait, &id)));
    }

    #[test]
    fn a_name_leads_back_to_its_claim() {
        let (names, id) = (Names::new("leasehold"), ClaimId::from_bytes([0xa5; 16]));
        for text in ["orders/42", "100%", "tab\there", "größe", "a/hold/b"] {
            let key = Key::new(text).unwrap();
            let name = names.lock(&key).claim(Standing::Wait, &id);
            assert_eq!(names.claim(&name), Some((id, (key, Standing::Wait))), "{text}");
        }
    }
}
