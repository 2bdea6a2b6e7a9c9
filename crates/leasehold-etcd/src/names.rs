//! What things are called in etcd.
//!
//! ```text
//! leasehold/lock/orders%2F42/hold/<label>   holds
//! leasehold/lock/orders%2F42/limit          the limit in force, after a resize
//! leasehold/lock/orders%2F42/more/<label>   holds some units and wants more
//! leasehold/lock/orders%2F42/wait/<label>   waits
//! leasehold/inbox/<client>/<lease>          what a client is told; it goes with the session
//! leasehold/refused/<id>                    a claim that was withdrawn before it arrived
//! ```
//!
//! The order of these names matters: everything that a decision depends on is in the one range from `hold/` to before
//! `wait/`, so joining and leaving the queue invalidates nobody's decision; and everybody who wants something is
//! in the one from `more/` on.

use std::sync::Arc;

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
    Hold,
    Grow,
    Wait,
}

impl Standing {
    pub(crate) const ALL: [Self; 3] = [Self::Hold, Self::Grow, Self::Wait];

    pub(crate) fn of(row: &Row) -> Self {
        match (row.held, row.waits()) {
            (0, _) => Self::Wait,
            (_, true) => Self::Grow,
            (_, false) => Self::Hold,
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Hold => "hold/",
            Self::Grow => "more/",
            Self::Wait => "wait/",
        }
    }
}

/// What a claim is called in its lock, however it stands. Who it is says the value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label(Arc<str>);

impl Label {
    /// That of a claim on a session: see `labels.rs`.
    pub(crate) fn numbered(session: i64, doubts: u64, number: u64) -> Self {
        Self(format!("{session:x}.{doubts:x}.{number:x}").into())
    }

    /// That of a claim that no session carries.
    pub(crate) fn of_id(id: &ClaimId) -> Self {
        Self(hex(id).into())
    }

    /// The end of a claim's name.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        Self(String::from_utf8_lossy(last).into())
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

    /// What a name says of a claim: its lock, what it is called there, and how it stands.
    pub(crate) fn claim(&self, name: &[u8]) -> Option<((Key, Label), Standing)> {
        let (key, rest) = self.parse(name)?;
        let standing = Standing::ALL.into_iter().find(|standing| rest.starts_with(standing.folder()))?;
        let label = rest.strip_prefix(standing.folder()).filter(|label| !label.is_empty())?;
        Some(((key, Label(label.into())), standing))
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
    pub(crate) fn claim(&self, standing: Standing, label: &Label) -> Vec<u8> {
        format!("{}{}{}", self.base, standing.folder(), label.0).into_bytes()
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
        let (hold, wait) = (self.standing(Standing::Hold), self.standing(Standing::Wait));
        Span { from: hold.from, to: wait.from }
    }

    /// Everybody who wants something.
    pub(crate) fn wanting(&self) -> Span {
        let (grow, wait) = (self.standing(Standing::Grow), self.standing(Standing::Wait));
        Span { from: grow.from, to: wait.to }
    }
}

fn hex(id: &ClaimId) -> String {
    id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
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
        let label = Label::of_id(&ClaimId::from_bytes([7; 16]));
        for (outer, inner) in
            [("a", "a/b"), ("a", "a/"), ("a", "a/hold/b"), ("a", "ab"), ("a", "a%2Fb"), ("a/b", "a%2Fb")]
        {
            let name = lock(inner).claim(Standing::Hold, &label);
            assert!(!contains(&lock(outer).all(), &name), "{inner} in {outer}");
        }
    }

    #[test]
    fn who_waits_is_not_in_what_decisions_depend_on() {
        let (lock, label) = (lock("a"), Label::numbered(7, 0, 1));
        assert!(contains(&lock.held(), &lock.claim(Standing::Hold, &label)));
        assert!(contains(&lock.held(), &lock.claim(Standing::Grow, &label)));
        assert!(contains(&lock.held(), &lock.limit()));
        assert!(!contains(&lock.held(), &lock.claim(Standing::Wait, &label)));
        assert!(contains(&lock.all(), &lock.claim(Standing::Wait, &label)));
    }

    #[test]
    fn who_only_holds_is_not_in_what_a_release_depends_on() {
        let (lock, label) = (lock("a"), Label::numbered(7, 0, 1));
        assert!(contains(&lock.wanting(), &lock.claim(Standing::Grow, &label)));
        assert!(contains(&lock.wanting(), &lock.claim(Standing::Wait, &label)));
        assert!(!contains(&lock.wanting(), &lock.claim(Standing::Hold, &label)));
        assert!(!contains(&lock.wanting(), &lock.limit()));
    }

    #[test]
    fn a_name_leads_back_to_its_claim() {
        let (names, label) = (Names::new("leasehold"), Label::numbered(-7, 1, 2));
        for text in ["orders/42", "100%", "tab\there", "größe", "a/hold/b"] {
            let key = Key::new(text).unwrap();
            let name = names.lock(&key).claim(Standing::Wait, &label);
            assert_eq!(names.claim(&name), Some(((key, label.clone()), Standing::Wait)), "{text}");
            assert_eq!(Label::of_name(&name), label);
        }
    }
}
