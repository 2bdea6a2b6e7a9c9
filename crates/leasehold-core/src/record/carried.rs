//! A record that is open for one operation, and the sessions that carry its claims.
//!
//! A row on a session has no end of its own, as the rule sees it ([`Claim::on_session`]) and as it is written down. When
//! the session is over its places in queues go at once, and what it held has ended now, by the clock of whoever finds
//! that out first: that is written down for as long as a lock delay runs.
//!
//! [`Claim::on_session`]: crate::Claim::on_session

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::format::{Record, State, Stored};
use super::{Keep, Loaded, News, Session};
use crate::book::{Book, Fence, OpenBook};
use crate::claim::{ClaimId, Inbox};
use crate::key::Key;
use crate::rule::{LATE, Row, millis};
use crate::store::Promotion;

/// Whether the store has sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Leases,
    Sessions,
}

/// A row as it was before the operation.
#[derive(Debug)]
struct Was {
    id: ClaimId,
    seat: u64,
    inbox: Inbox,
    /// It waited before it held, and perhaps was told so.
    promoted: bool,
}

/// Sessions that have ended.
#[derive(Debug, Default)]
pub(super) struct Dead {
    pub(super) sessions: Vec<Session>,
    /// All of them have ended by this time of the store.
    pub(super) by: u64,
}

#[derive(Debug)]
pub(super) struct Carried {
    mode: Mode,
    pub(super) book: Book,
    pub(super) fence: Fence,
    carriers: BTreeMap<ClaimId, Session>,
    /// Claims whose session is over: their end is written down.
    over: BTreeSet<ClaimId>,
    was: Vec<Was>,
    /// The record as it would have been written today, if it looks different.
    before: Option<Vec<u8>>,
}

impl Carried {
    /// Reads what was loaded.
    pub(super) fn read(record: Option<Record>, loaded: &Loaded, dead: &Dead, mode: Mode) -> Self {
        let before = record.as_ref().filter(|record| record.is_relative).map(Record::write);
        let (mut state, mut fence) = match record {
            Some(record) => (record.state.clone(), record.fence()),
            None => (State::default(), Fence::default()),
        };
        fence = fence.born(loaded.born);
        fence.prune(loaded.now);
        let (mut carriers, mut over) = (BTreeMap::new(), BTreeSet::new());
        if mode == Mode::Sessions {
            let now = i64::try_from(loaded.now).unwrap_or(i64::MAX);
            let ended = |claim: &Stored| {
                claim.expires.is_some()
                    || session_of(claim).is_some_and(|session| dead.sessions.contains(&session))
            };
            // A place in the queue is nothing that could be held on to: it goes with its session.
            state.claims.retain(|claim| claim.session.is_none() || claim.held > 0 || !ended(claim));
            for claim in &mut state.claims {
                let Some(session) = session_of(claim) else { continue };
                if ended(claim) {
                    over.insert(claim.id.0);
                    if claim.expires.is_none() && claim.lock_delay > 0 {
                        // The rule finds the claim expired now, but the session may have ended a little later.
                        claim.lock_delay += dead.by.saturating_sub(loaded.now);
                    }
                    claim.expires.get_or_insert(now);
                }
                claim.patience = u64::MAX;
                carriers.insert(claim.id.0, session);
            }
            let frees_at = |row: &Row| row.frees_at().filter(|_| row.held > 0);
            let quiet_until = state.rows(0).iter().filter_map(frees_at).min();
            state.quiet_until = quiet_until.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        }
        let book = state.book(0);
        let was = |row: &Row| Was {
            id: row.id,
            seat: row.seat,
            inbox: row.inbox,
            promoted: row.token != 0 && row.token != row.seat,
        };
        let was = book.rows().map(was).collect();
        Self { mode, book, fence, carriers, over, was, before }
    }

    /// Whether `next`, the record's new text, says the same as the old one.
    pub(super) fn is_unchanged(&self, before: &[u8], next: &[u8]) -> bool {
        before == next || self.before.as_deref() == Some(next)
    }

    /// The sessions in a record that are not known to be over.
    pub(super) fn sessions(record: &Record) -> Vec<Session> {
        let all = record.state.claims.iter().filter(|claim| claim.expires.is_none()).filter_map(session_of);
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Those of them that hold.
    pub(super) fn holding(record: &Record) -> Vec<Session> {
        let all = record.state.claims.iter().filter(|claim| claim.expires.is_none() && claim.held > 0);
        all.filter_map(session_of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn ledger<'a>(&'a mut self, key: &'a Key, floor: u64) -> OpenBook<'a> {
        OpenBook::new(key, &mut self.book, &mut self.fence, floor)
    }

    /// A claim that has another seat than before is another claim, although it has the same id: what carried the one
    /// before does not carry it.
    pub(super) fn part(&mut self) {
        for row in self.book.rows() {
            if self.was.iter().any(|was| was.id == row.id && was.seat != row.seat) {
                self.carriers.remove(&row.id);
                self.over.remove(&row.id);
            }
        }
    }

    /// From now on this session carries the claim, if it is there and none does.
    pub(super) fn carry(&mut self, id: &ClaimId, session: &Session) {
        if self.book.rows().any(|row| row.id == *id) && !self.over.contains(id) {
            self.carriers.entry(*id).or_insert_with(|| session.clone());
        }
    }

    /// The record's new text.
    pub(super) fn write(&self, key: &Key) -> Vec<u8> {
        let mut state = State::of(&self.book, &self.fence, 0);
        if self.mode == Mode::Sessions {
            state.quiet_until = None;
            for claim in &mut state.claims {
                let Some(session) = self.carriers.get(&claim.id.0) else { continue };
                claim.session = Some(session.0.to_string());
                claim.patience = 0;
                if !self.over.contains(&claim.id.0) {
                    claim.expires = None;
                }
            }
        }
        Record::new(key, self.fence.last(), state).write()
    }

    /// How long what was written must be kept.
    pub(super) fn keep(&self, now: u64, afterlife: Duration) -> Keep {
        let is_resized = self.book.head().is_some_and(|head| head.effective != head.limit);
        let lives = |row: &Row| row.expires.is_none() || self.carriers.contains_key(&row.id);
        if is_resized || self.book.rows().any(lives) {
            return Keep::Forever;
        }
        // A latch is kept until no copy of its request can arrive any more: it is found to be over and not set again.
        let late = |row: &Row| if row.count.is_some() { millis(LATE) } else { 0 };
        let ends = self.book.rows().filter_map(|row| Some(row.frees_at()?.saturating_add(late(row))));
        let ends = ends.chain(self.fence.refused().map(|(_, until)| until));
        let remembered = self.book.head().map(|head| head.last_until).filter(|until| *until > now);
        match ends.chain(remembered).max() {
            None => Keep::Spent(afterlife),
            Some(at) => {
                let left = Duration::from_millis(at.saturating_sub(now));
                Keep::For(left.saturating_add(afterlife))
            }
        }
    }

    /// Whether anything in it is carried by no session.
    pub(super) fn is_lasting(&self) -> bool {
        let is_resized = self.book.head().is_some_and(|head| head.effective != head.limit);
        is_resized || self.book.rows().any(|row| !self.carriers.contains_key(&row.id))
    }

    /// The one session that carries everything in the record, if that is so.
    pub(super) fn sole(&self) -> Option<&Session> {
        let is_resized = self.book.head().is_some_and(|head| head.effective != head.limit);
        let first = self.carriers.get(&self.book.rows().next()?.id)?;
        let goes_with_it = |row: &Row| row.lock_delay == 0 && self.carriers.get(&row.id) == Some(first);
        let all = !is_resized && self.fence.refused().next().is_none() && self.book.rows().all(goes_with_it);
        all.then_some(first)
    }

    /// Whom to tell what, by session.
    pub(super) fn news(&self, promoted: &[Promotion], ended: &[Inbox]) -> Vec<News> {
        let mut news: BTreeMap<&Session, News> = BTreeMap::new();
        fn of<'a, 'b>(news: &'b mut BTreeMap<&'a Session, News>, session: &'a Session) -> &'b mut News {
            let none = || News { session: session.clone(), promoted: Vec::new(), look: false };
            news.entry(session).or_insert_with(none)
        }
        for promotion in promoted {
            let row = self.book.rows().find(|row| row.seat == promotion.seat);
            if let Some(session) = row.and_then(|row| self.carriers.get(&row.id)) {
                of(&mut news, session).promoted.push(promotion.clone());
            }
        }
        for was in self.was.iter().filter(|was| ended.contains(&was.inbox)) {
            if let Some(session) = self.carriers.get(&was.id) {
                of(&mut news, session).look = true;
            }
        }
        news.into_values().collect()
    }

    /// Claims that were told of their promotion and are gone now.
    pub(super) fn settled(&self) -> Vec<(Session, u64)> {
        let left: BTreeSet<ClaimId> = self.book.rows().map(|row| row.id).collect();
        let gone = self.was.iter().filter(|was| was.promoted && !left.contains(&was.id));
        gone.filter_map(|was| Some((self.carriers.get(&was.id)?.clone(), was.seat))).collect()
    }
}

fn session_of(claim: &Stored) -> Option<Session> {
    claim.session.as_deref().map(|name| Session(Arc::from(name)))
}
