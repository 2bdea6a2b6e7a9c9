//! What our claims are called in their locks.
//!
//! Servers remember every name until they compact, which may be in an hour or never, and every range that a dead name
//! is in is read past it. So a lock must not have a new name for every claim: a session's claims on it are numbered, and
//! a number that came free is used again. That must not confuse anybody who was late: a name is used again only when no
//! request of its last owner can still be on the way. After any request without an answer all names are new ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{Claim, ClaimId, ErrorKind, Key, Result};

use crate::names::Label;
use crate::state::State;

/// The claims that were made here and have not ended.
#[derive(Debug, Default)]
pub(crate) struct Labels(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    claims: HashMap<ClaimId, Entry>,
    /// The numbers in use, by session and lock.
    numbers: HashMap<(i64, Key), Numbers>,
    /// The locks that claims of ours have waited for.
    crowded: HashMap<Key, Sight>,
    /// How many requests had no answer.
    doubts: u64,
}

/// The numbers of a session's claims on a lock: all below `next` that are not free.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    free: BTreeSet<u64>,
}

impl Numbers {
    /// The smallest number that is not in use.
    fn take(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// `true` if no number is in use any more.
    fn give_back(&mut self, number: u64) -> bool {
        self.free.insert(number);
        self.free.len() as u64 == self.next
    }
}

/// What is known of a lock.
#[derive(Debug, Default)]
struct Sight {
    /// How many claims of ours have waited for it.
    claims: usize,
    seen: Option<State>,
}

#[derive(Debug)]
struct Entry {
    label: Label,
    session: i64,
    key: Key,
    number: u64,
    /// So that others may wait behind it.
    has_waited: bool,
    /// A request that claims under this name was not answered, so it may still arrive.
    in_doubt: bool,
}

impl Labels {
    /// What a claim on this session is called from now on.
    pub(crate) fn give(&self, claim: &Claim, session: i64) -> Label {
        let mut inner = self.lock();
        match inner.claims.get(&claim.id) {
            Some(entry) if entry.session == session => return entry.label.clone(),
            // Its session ended before it came to be.
            Some(_) => drop(inner.forget(&claim.id)),
            None => {}
        }
        let doubts = inner.doubts;
        let number = inner.numbers.entry((session, claim.key.clone())).or_default().take();
        let label = Label::numbered(session, doubts, number);
        let (has_waited, in_doubt) = (false, false);
        let entry =
            Entry { label: label.clone(), session, key: claim.key.clone(), number, has_waited, in_doubt };
        inner.claims.insert(claim.id, entry);
        label
    }

    /// What a claim is called; `None` when it was not made here.
    pub(crate) fn of(&self, id: &ClaimId) -> Option<Label> {
        self.lock().claims.get(id).map(|entry| entry.label.clone())
    }

    /// It waits.
    pub(crate) fn waits(&self, id: &ClaimId) {
        let mut inner = self.lock();
        let Some(entry) = inner.claims.get_mut(id) else { return };
        if !std::mem::replace(&mut entry.has_waited, true) {
            let key = entry.key.clone();
            inner.crowded.entry(key).or_default().claims += 1;
        }
    }

    /// A lock was seen so. That is remembered for as long as it helps: of a lock that we have waited for.
    pub(crate) fn saw(&self, key: &Key, state: State) {
        if let Some(sight) = self.lock().crowded.get_mut(key)
            && sight.seen.as_ref().is_none_or(|seen| seen.revision < state.revision)
        {
            sight.seen = Some(state);
        }
    }

    /// What was seen of a lock last. It may have changed since.
    pub(crate) fn seen(&self, key: &Key) -> Option<State> {
        self.lock().crowded.get(key)?.seen.clone()
    }

    pub(crate) fn has_waited(&self, id: &ClaimId) -> bool {
        self.lock().claims.get(id).is_some_and(|entry| entry.has_waited)
    }

    /// The store has refused it. Its name is kept if an earlier request may still arrive, because its withdrawal must
    /// know where.
    pub(crate) fn refused(&self, id: &ClaimId) {
        let mut inner = self.lock();
        if inner.claims.get(id).is_some_and(|entry| !entry.in_doubt) {
            inner.forget(id);
        }
    }

    /// It has ended.
    pub(crate) fn forget(&self, id: &ClaimId) {
        self.lock().forget(id);
    }

    /// These sessions have ended, and all claims on them.
    pub(crate) fn forget_sessions(&self, ended: &[i64]) {
        let mut inner = self.lock();
        let gone = |entry: &Entry| ended.contains(&entry.session);
        let gone: Vec<ClaimId> =
            inner.claims.iter().filter(|(_, entry)| gone(entry)).map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| drop(inner.forget(id)));
    }

    /// A request about this claim is sent. Unless it is [answered](Asked::heard), it may arrive at any later time.
    pub(crate) fn ask(&self, about: &ClaimId) -> Asked<'_> {
        Asked { labels: self, about: *about, is_answered: false }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn forget(&mut self, id: &ClaimId) -> Option<Entry> {
        let entry = self.claims.remove(id)?;
        let place = (entry.session, entry.key.clone());
        if self.numbers.get_mut(&place).is_some_and(|numbers| numbers.give_back(entry.number)) {
            self.numbers.remove(&place);
        }
        if entry.has_waited
            && let Some(sight) = self.crowded.get_mut(&entry.key)
        {
            sight.claims -= 1;
            if sight.claims == 0 {
                self.crowded.remove(&entry.key);
            }
        }
        Some(entry)
    }
}

/// A request that may have no answer.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    labels: &'a Labels,
    about: ClaimId,
    is_answered: bool,
}

impl Asked<'_> {
    /// How it ended: with an answer, or because it was not sent.
    pub(crate) fn heard<T>(mut self, answer: &Result<T>) {
        self.is_answered = answer.as_ref().map_or_else(|e| e.kind() == ErrorKind::Unavailable, |_| true);
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let mut inner = self.labels.lock();
            inner.doubts += 1;
            inner.claims.get_mut(&self.about).into_iter().for_each(|entry| entry.in_doubt = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Units;

    use super::*;

    fn claim() -> Claim {
        Claim::new(Key::new("orders/42").unwrap(), 1, Units::Exactly(1)).unwrap()
    }

    #[test]
    fn claims_of_one_time_have_names_of_their_own_and_those_after_them_the_same_again() {
        let (labels, one, two, three) = (Labels::default(), claim(), claim(), claim());
        let (first, second) = (labels.give(&one, 7), labels.give(&two, 7));
        assert_ne!(first, second);
        assert_eq!(labels.give(&one, 7), first, "a repeat");
        labels.forget(&one.id);
        assert_eq!(labels.give(&three, 7), first);
        assert_ne!(labels.give(&claim(), 8), first, "another session");
    }

    #[test]
    fn no_name_is_used_again_when_a_request_had_no_answer() {
        let (labels, one, two) = (Labels::default(), claim(), claim());
        let first = labels.give(&one, 7);
        drop(labels.ask(&one.id));
        labels.forget(&one.id);
        let second = labels.give(&two, 7);
        assert_ne!(first, second);
        labels.ask(&two.id).heard(&Ok(()));
        labels.forget(&two.id);
        assert_eq!(labels.give(&claim(), 7), second);
    }

    #[test]
    fn a_refused_claim_keeps_its_name_while_a_request_may_still_arrive() {
        let (labels, one, two) = (Labels::default(), claim(), claim());
        labels.give(&one, 7);
        labels.ask(&one.id).heard(&Ok(()));
        labels.refused(&one.id);
        assert_eq!(labels.of(&one.id), None);
        let name = labels.give(&two, 7);
        drop(labels.ask(&two.id));
        labels.refused(&two.id);
        assert_eq!(labels.of(&two.id), Some(name), "its withdrawal must find it");
    }

    #[test]
    fn smallest_free_number_is_found_without_a_walk_over_all() {
        let mut numbers = Numbers::default();
        let taken: Vec<u64> = std::iter::repeat_with(|| numbers.take()).take(1000).collect();
        assert_eq!(taken, (0..1000).collect::<Vec<_>>());
        assert!(!numbers.give_back(700) && !numbers.give_back(3));
        assert_eq!((numbers.take(), numbers.take(), numbers.take()), (3, 700, 1000));
        assert!((0..1000).all(|number| !numbers.give_back(number)));
        assert!(numbers.give_back(1000));
    }

    #[test]
    fn nothing_is_kept_of_what_has_ended() {
        let (labels, one, two) = (Labels::default(), claim(), claim());
        for (claim, session) in [(&one, 7), (&two, 8)] {
            labels.give(claim, session);
            labels.waits(&claim.id);
        }
        labels.saw(&one.key, State::free());
        labels.forget(&one.id);
        assert!(labels.seen(&one.key).is_some());
        labels.forget_sessions(&[8]);
        let inner = labels.lock();
        assert!(inner.claims.is_empty() && inner.numbers.is_empty() && inner.crowded.is_empty());
    }
}
