//! Locks that several claims of one session are on: what one gives back, the next gets in the same transaction.
//!
//! A session that holds a lock alone and has the head of its queue knows all that must be known: nobody comes to stand
//! before that head, and who takes units otherwise raises the version of the lock's node. So nobody has to look, to watch
//! or to be woken. Between sessions this cannot be done: a claim is marked by its own session and by nobody else.
//!
//! This is only what is known; what is done with it is in `pass`. A lane that is wrong costs time and nothing else:
//! whatever is written because of it is written only if it is right.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{Claim, ClaimId, IfBusy, Key, Order, Place};

use crate::view::{Node, View};

/// How many of our last writes are remembered: answers may be looked at in another order than they came in.
const WRITES: usize = 16;

/// What a session knows of the locks that it holds alone while others of its claims are next.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    lanes: HashMap<Key, Lane>,
    /// Claims that were asked for and not answered yet: they may be there already.
    unanswered: HashSet<ClaimId>,
}

/// One of these locks.
#[derive(Debug)]
struct Lane {
    /// The node of the claim that holds; `None` while it is on its way to the next.
    holder: Option<String>,
    limit: u64,
    version: i32,
    /// The numbers of the writes that took units. When the last of all is one of these, nobody else took any.
    writes: VecDeque<u64>,
    /// The head of the queue and who is behind it, as far as somebody looked.
    queue: Queue,
    /// The place of the last one that was ever seen in the queue.
    seen_to: i32,
    /// Claims of this session that are behind all of those, by seat.
    later: BTreeMap<u64, (i32, ClaimId)>,
    /// The seats of the claims in `later`.
    seats: BTreeSet<(ClaimId, u64)>,
}

/// Nodes in the order of the queue. A claim leaves it without a walk over the others.
#[derive(Debug, Default)]
struct Queue {
    nodes: BTreeMap<u64, Node>,
    /// The numbers of the claims in `nodes`.
    numbers: BTreeSet<(ClaimId, u64)>,
    last: u64,
}

impl Queue {
    fn push(&mut self, node: Node) {
        self.last += 1;
        self.numbers.insert((node.name.id, self.last));
        self.nodes.insert(self.last, node);
    }

    fn pop(&mut self) -> Option<Node> {
        let (number, node) = self.nodes.pop_first()?;
        self.numbers.remove(&(node.name.id, number));
        Some(node)
    }

    fn remove(&mut self, id: &ClaimId) {
        while let Some(number) = number_of(&self.numbers, id) {
            self.numbers.remove(&(*id, number));
            self.nodes.remove(&number);
        }
    }

    fn back(&self) -> Option<ClaimId> {
        self.nodes.last_key_value().map(|(_, node)| node.name.id)
    }
}

/// The smallest number of a claim.
fn number_of(numbers: &BTreeSet<(ClaimId, u64)>, id: &ClaimId) -> Option<u64> {
    numbers.range((*id, 0)..=(*id, u64::MAX)).next().map(|(_, number)| *number)
}

/// What is to be passed on.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) to: Node,
    pub(crate) version: i32,
    /// Whether it is time to see who came since.
    pub(crate) looks: bool,
}

impl Lanes {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a claim is asked for. `true` when it is so for the first time and surely has to queue.
    pub(crate) fn queues(&self, claim: &Claim) -> bool {
        let mut known = self.known();
        let is_new = known.unanswered.insert(claim.id);
        let is_plain = claim.order == Order::Fair && claim.if_busy == IfBusy::Queue && claim.count.is_none();
        is_new && is_plain && known.lanes.get(&claim.key).is_some_and(|lane| lane.limit == claim.limit)
    }

    /// Notes that a claim was answered, or will not be asked for again.
    pub(crate) fn answered(&self, id: &ClaimId) {
        self.known().unanswered.remove(id);
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.known().lanes.remove(key);
    }

    /// A claim has left the queue.
    pub(crate) fn left(&self, key: &Key, id: &ClaimId) {
        if let Some(lane) = self.known().lanes.get_mut(key) {
            lane.queue.remove(id);
            while let Some(seat) = number_of(&lane.seats, id) {
                lane.seats.remove(&(*id, seat));
                lane.later.remove(&seat);
            }
        }
    }

    /// Whether somebody is known to be next: then who comes need not look.
    pub(crate) fn has_next(&self, key: &Key) -> bool {
        self.known().lanes.get(key).is_some_and(|lane| !lane.queue.nodes.is_empty())
    }

    /// The node of the claim of this session that holds a lock alone: `Some(None)` while the lock is on its way to the
    /// next claim, `None` when nothing is known of it.
    pub(crate) fn holder(&self, key: &Key) -> Option<Option<String>> {
        self.known().lanes.get(key).map(|lane| lane.holder.clone())
    }

    /// How many claims wait before this one, where that is known; counted to [`Place::COUNTED`] and no further.
    pub(crate) fn ahead(&self, claim: &Claim) -> Option<u64> {
        let known = self.known();
        let lane = known.lanes.get(&claim.key)?;
        let count = |claims: usize| u64::try_from(claims).map_or(Place::COUNTED, |n| n.min(Place::COUNTED));
        let counted = usize::try_from(Place::COUNTED).ok()?;
        if let Some(number) = number_of(&lane.queue.numbers, &claim.id) {
            return Some(count(lane.queue.nodes.range(..number).take(counted).count()));
        }
        let seat = number_of(&lane.seats, &claim.id)?;
        Some(count(lane.queue.nodes.len() + lane.later.range(..seat).take(counted).count()))
    }

    /// Notes that a claim of ours has queued at this place when this was the last write that took units. Answers a
    /// claim of ours that is before it, or `None` when that is not known.
    pub(crate) fn joins(&self, claim: &Claim, seat: u64, turn: i32, write: u64) -> Option<ClaimId> {
        let mut known = self.known();
        let lane = known.lanes.get_mut(&claim.key)?;
        if !lane.writes.contains(&write) || turn.wrapping_sub(lane.seen_to) <= 0 {
            return None;
        }
        let before = lane.later.range(..seat).next_back().map(|(_, (_, id))| *id);
        let before = before.or_else(|| lane.queue.back())?;
        lane.later.insert(seat, (turn, claim.id));
        lane.seats.insert((claim.id, seat));
        Some(before)
    }

    /// Takes the next out of the queue, if this is the node of who holds. Otherwise nothing is known any more.
    pub(crate) fn pass(&self, key: &Key, from: &str) -> Option<Pass> {
        let mut known = self.known();
        let pass = known.lanes.get_mut(key).and_then(|lane| {
            lane.holder.take_if(|holder| holder == from)?;
            let to = lane.queue.pop()?;
            let looks = !lane.later.is_empty() && lane.later.len() >= lane.queue.nodes.len();
            Some(Pass { to, version: lane.version, looks })
        });
        if pass.is_none() {
            known.lanes.remove(key);
        }
        pass
    }

    /// It was passed on, to this node, by the write with this number. `true` when nobody is known to be behind it.
    pub(crate) fn passed(&self, key: &Key, to: String, write: u64) -> bool {
        let mut known = self.known();
        let Some(lane) = known.lanes.get_mut(key) else { return false };
        lane.version = lane.version.wrapping_add(1);
        lane.holder = Some(to);
        lane.writes.push_back(write);
        if lane.writes.len() > WRITES {
            lane.writes.pop_front();
        }
        lane.queue.nodes.is_empty() && lane.later.is_empty()
    }

    /// Learns from a look at a lock, which may be older than what is known. `is_ours` says so of the one who holds alone and
    /// of the next.
    pub(crate) fn learn(&self, key: &Key, view: &View, is_ours: bool) {
        let mut known = self.known();
        if let Some(lane) = known.lanes.get_mut(key) {
            let is_known = |last: &u64| view.write <= *last || lane.holder.is_none();
            if lane.writes.back().is_some_and(is_known) {
                lane.extend(view);
                return;
            }
            // Somebody else took units.
            known.lanes.remove(key);
        }
        let holder = view.only_holder(None).filter(|_| is_ours && view.is_plain());
        if let (Some(holder), Some(version)) = (holder, view.version) {
            let mut lane = Lane {
                holder: Some(holder.path.clone()),
                limit: holder.name.limit,
                version,
                writes: VecDeque::from([view.write]),
                queue: Queue::default(),
                seen_to: view.first_turn().wrapping_sub(1),
                later: BTreeMap::new(),
                seats: BTreeSet::new(),
            };
            lane.extend(view);
            known.lanes.insert(key.clone(), lane);
        }
    }
}

impl Lane {
    fn extend(&mut self, view: &View) {
        for node in view.nodes.iter().filter(|node| node.is_queued()) {
            if node.name.turn.wrapping_sub(self.seen_to) > 0 {
                self.seen_to = node.name.turn;
                self.queue.push(node.clone());
            }
        }
        let seen_to = self.seen_to;
        let (later, seats) = (&mut self.later, &mut self.seats);
        later.retain(|seat, (turn, id)| {
            let is_later = turn.wrapping_sub(seen_to) > 0;
            if !is_later {
                seats.remove(&(*id, *seat));
            }
            is_later
        });
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Units;

    use super::*;
    use crate::names::{Kind, Name};

    fn claim(n: u8) -> Claim {
        let key = Key::new("k").unwrap();
        Claim { id: ClaimId::from_bytes([n; 16]), ..Claim::new(key, 1, Units::Exactly(1)).unwrap() }
    }

    fn node(n: u8, kind: Kind, turn: i32) -> Node {
        let Claim { id, round, limit, .. } = claim(n);
        let held = u64::from(kind == Kind::Held);
        let name = Name { kind, id, round, limit, held, wanted: 1, least: 1, seat: 0, token: 0, turn };
        Node { name, path: format!("/k/{n}"), read: None }
    }

    /// The first holds, the others wait, at turns from this on.
    fn view(write: u64, claims: &[u8], from: i32) -> View {
        let kind = |n: usize| if n == 0 { Kind::Held } else { Kind::Waiting };
        let turn = |n: usize| from.wrapping_add(i32::try_from(n).unwrap());
        let nodes = claims.iter().enumerate().map(|(n, claim)| node(*claim, kind(n), turn(n))).collect();
        View { nodes, version: Some(7), write, ..View::absent("/k".to_owned()) }
    }

    fn lanes(claims: &[u8], from: i32) -> (Lanes, Key) {
        let (lanes, key) = (Lanes::default(), claim(0).key);
        lanes.learn(&key, &view(100, claims, from), true);
        (lanes, key)
    }

    fn passes(lanes: &Lanes, key: &Key, from: u8) -> Option<(ClaimId, i32)> {
        lanes.pass(key, &format!("/k/{from}")).map(|pass| (pass.to.name.id, pass.version))
    }

    #[test]
    fn what_is_held_is_passed_on_in_the_order_of_the_queue() {
        for from in [0, i32::MAX - 1] {
            let (lanes, key) = lanes(&[1, 2, 3], from);
            assert_eq!(passes(&lanes, &key, 1), Some((claim(2).id, 7)));
            assert!(!lanes.passed(&key, "/k/2".to_owned(), 101));
            assert_eq!(passes(&lanes, &key, 2), Some((claim(3).id, 8)));
            assert!(lanes.passed(&key, "/k/3".to_owned(), 102));
            assert_eq!(passes(&lanes, &key, 3), None);
        }
    }

    #[test]
    fn who_came_since_is_not_passed_anything_before_somebody_looked() {
        let (lanes, key) = lanes(&[1, 2], 0);
        assert_eq!(lanes.joins(&claim(3), 30, 2, 100), Some(claim(2).id));
        assert_eq!(lanes.joins(&claim(4), 40, 3, 100), Some(claim(3).id));
        assert!(lanes.pass(&key, "/k/1").unwrap().looks);
        lanes.passed(&key, "/k/2".to_owned(), 101);
        // Somebody else's was before them.
        lanes.learn(&key, &view(101, &[2, 9, 3, 4], 1), false);
        assert_eq!(passes(&lanes, &key, 2), Some((claim(9).id, 8)));
    }

    #[test]
    fn who_queues_after_others_took_units_has_to_look() {
        let (lanes, key) = lanes(&[1, 2], 0);
        assert_eq!(lanes.joins(&claim(3), 30, 2, 99), None);
        assert_eq!(lanes.joins(&claim(3), 30, 1, 100), None, "it was there before");
        assert!(lanes.joins(&claim(3), 30, 2, 100).is_some());
        lanes.learn(&key, &view(200, &[7, 8], 5), false);
        assert!(!lanes.has_next(&key));
    }

    #[test]
    fn an_older_look_takes_nothing_back() {
        let (lanes, key) = lanes(&[1, 2, 3], 0);
        passes(&lanes, &key, 1);
        lanes.learn(&key, &view(100, &[1, 2, 3], 0), false);
        lanes.passed(&key, "/k/2".to_owned(), 101);
        assert_eq!(passes(&lanes, &key, 2), Some((claim(3).id, 8)));
    }

    #[test]
    fn places_are_counted_over_seen_and_later_claims() {
        let (lanes, key) = lanes(&[1, 2, 3], 0);
        lanes.joins(&claim(4), 40, 3, 100);
        let ahead: Vec<_> = (1..=5).map(|n| lanes.ahead(&claim(n))).collect();
        assert_eq!(ahead, [None, Some(0), Some(1), Some(2), None]);
        assert_eq!(lanes.holder(&key), Some(Some("/k/1".to_owned())));
        passes(&lanes, &key, 1);
        assert_eq!(lanes.holder(&key), Some(None));
        lanes.forget(&key);
        assert_eq!(lanes.holder(&key), None);
    }

    #[test]
    fn who_left_is_passed_nothing() {
        let (lanes, key) = lanes(&[1, 2, 3], 0);
        lanes.left(&key, &claim(2).id);
        assert_eq!(passes(&lanes, &key, 1), Some((claim(3).id, 7)));
    }

    #[test]
    fn another_than_the_holder_passes_nothing_on() {
        let (lanes, key) = lanes(&[1, 2], 0);
        assert_eq!(passes(&lanes, &key, 5), None);
        assert!(!lanes.has_next(&key));
    }

    #[test]
    fn one_of_many_claims_leaves_without_a_walk_over_the_others() {
        let id = |n: usize| ClaimId::from_bytes((n as u128).to_be_bytes());
        // The least time that a hundred of them took, of four hundred that leave.
        let cost = |n: usize| {
            let nodes = (0..n).map(|n| {
                let mut node = node(0, if n == 0 { Kind::Held } else { Kind::Waiting }, n as i32);
                node.name.id = id(n);
                node
            });
            let (lanes, key) = (Lanes::default(), claim(0).key);
            let view = View {
                nodes: nodes.collect(),
                version: Some(7),
                write: 100,
                ..View::absent("/k".to_owned())
            };
            lanes.learn(&key, &view, true);
            let leave = |first: usize| {
                let began = std::time::Instant::now();
                (first..first + 100).for_each(|claim| lanes.left(&key, &id(n - 1 - claim)));
                began.elapsed()
            };
            (0..400).step_by(100).map(leave).min().unwrap()
        };
        let (few, many) = (cost(1_000), cost(100_000));
        assert!(many < few * 20, "{few:?} among 1,000 claims, {many:?} among 100,000");
    }
}
