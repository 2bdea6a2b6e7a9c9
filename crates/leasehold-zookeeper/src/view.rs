//! A lock as one listing shows it, and the book that the rule reads.

use leasehold_core::rule::{Head, Row};
use leasehold_core::{Book, Claim, ClaimId, Inbox, Key};
use zookeeper_client::Stat;

use crate::names::{Kind, Name, parse_limit};
use crate::note::Note;
use crate::plan::{Plan, Step};

/// A claim's node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: Name,
    pub(crate) path: String,
    /// Its data and the server's account of it, where somebody needs them.
    pub(crate) read: Option<(Note, Stat)>,
}

impl Node {
    /// Its seat, if it is known.
    pub(crate) fn seat(&self) -> Option<u64> {
        self.number(self.name.seat)
    }

    /// Its token, if it is known; 0 while it waits.
    pub(crate) fn token(&self) -> Option<u64> {
        if self.name.kind == Kind::Waiting { Some(0) } else { self.number(self.name.token) }
    }

    fn number(&self, named: u64) -> Option<u64> {
        let made = || self.read.as_ref().map(|(_, stat)| stat.czxid.unsigned_abs());
        if named == 0 { made() } else { Some(named) }
    }

    pub(crate) fn waits(&self) -> bool {
        self.name.held < self.name.wanted
    }

    /// Whether it waits for its first turn.
    pub(crate) fn is_queued(&self) -> bool {
        self.name.kind == Kind::Waiting
    }
}

/// Everybody on a lock at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The lock's node.
    pub(crate) path: String,
    /// The version of its data, which every write that takes units raises; `None` when there is no such node.
    pub(crate) version: Option<i32>,
    /// The number of the last such write.
    pub(crate) write: u64,
    pub(crate) nodes: Vec<Node>,
    /// A limit that was changed: declared, in force, and the node that says so.
    pub(crate) limit: Option<(u64, u64, String)>,
    /// Nodes that are not ours.
    pub(crate) strangers: Vec<String>,
    /// The server's time in milliseconds, if anything here depends on it.
    pub(crate) now: u64,
}

impl View {
    /// A lock that nobody claims.
    pub(crate) fn absent(path: String) -> Self {
        Self { path, version: None, write: 0, nodes: Vec::new(), limit: None, strangers: Vec::new(), now: 0 }
    }

    /// What a listing says.
    pub(crate) fn listed(path: &str, stat: &Stat, children: &[String]) -> Self {
        let (version, write) = (Some(stat.version), stat.mzxid.unsigned_abs());
        let mut view = Self { version, write, ..Self::absent(path.to_owned()) };
        for child in children {
            let path = format!("{path}/{child}");
            if let Some((declared, effective)) = parse_limit(child) {
                view.limit = Some((declared, effective, path));
            } else if let Some(name) = Name::parse(child) {
                view.nodes.push(Node { name, path, read: None });
            } else {
                view.strangers.push(path);
            }
        }
        // The turn counts up and may overflow: what matters is the distance to any one of them.
        let first = view.first_turn();
        view.nodes.sort_by_key(|node| match node.name.kind {
            Kind::Waiting => (2, i64::from(node.name.turn.wrapping_sub(first))),
            // Who holds and wants more stands before all who wait; by seat, which such a node always names.
            _ if node.waits() => (1, i64::try_from(node.name.seat).unwrap_or(i64::MAX)),
            _ => (0, 0),
        });
        view
    }

    /// The turn of the first in the queue, or of any one before they are sorted.
    pub(crate) fn first_turn(&self) -> i32 {
        self.nodes.iter().find(|node| node.is_queued()).map_or(0, |node| node.name.turn)
    }

    /// The node of a claim.
    pub(crate) fn node(&self, id: &ClaimId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name.id == *id)
    }

    /// The paths of everything in the lock's node.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        let limit = self.limit.iter().map(|(_, _, path)| path);
        self.nodes.iter().map(|node| &node.path).chain(limit).chain(&self.strangers)
    }

    /// Whether nobody but this claim is on the lock.
    pub(crate) fn is_alone(&self, id: &ClaimId) -> bool {
        let is_other = |path: &String| self.node(id).is_none_or(|node| node.path != *path);
        !self.paths().any(is_other)
    }

    /// How many wait.
    pub(crate) fn waits(&self) -> usize {
        self.nodes.iter().filter(|node| node.waits()).count()
    }

    /// How many wait before this one and have their turn before it.
    pub(crate) fn ahead(&self, id: &ClaimId) -> u64 {
        let before = self.nodes.iter().take_while(|node| node.name.id != *id);
        before.filter(|node| node.waits() && !self.is_passed_over(node)).count() as u64
    }

    /// The limit in force, if it is below the one that claims declare.
    pub(crate) fn lowered(&self) -> Option<u64> {
        let limit = self.limit.as_ref().filter(|(declared, effective, _)| effective < declared);
        limit.map(|(_, effective, _)| *effective)
    }

    /// Whether others need not wait for it: it asks for more than a lowered limit.
    fn is_passed_over(&self, node: &Node) -> bool {
        self.lowered().is_some_and(|limit| node.name.least > limit)
    }

    /// What a claim that waits has to watch: the one before it or, at the head of the queue, who holds. `None`: so many
    /// hold that the whole lock has to be watched.
    pub(crate) fn blocker(&self, id: &ClaimId) -> Option<&Node> {
        let mut before = None;
        for node in self.nodes.iter().filter(|node| node.waits()) {
            if node.name.id == *id {
                break;
            }
            if !self.is_passed_over(node) {
                before = Some(node);
            }
        }
        before.or_else(|| self.only_holder(Some(id)))
    }

    /// Who holds, if it is one, not counting this claim.
    pub(crate) fn only_holder(&self, but: Option<&ClaimId>) -> Option<&Node> {
        let mut holders = self.nodes.iter().filter(|node| node.name.held > 0 && Some(&node.name.id) != but);
        holders.next().filter(|_| holders.next().is_none())
    }

    /// Whether everything here changes only with the version, or by somebody who leaves.
    pub(crate) fn is_plain(&self) -> bool {
        let is_kept = |node: &Node| node.name.kind == Kind::Kept;
        self.limit.is_none() && self.strangers.is_empty() && !self.nodes.iter().any(is_kept)
    }

    /// What is left when this node has gone.
    pub(crate) fn without(mut self, path: &str) -> Self {
        self.nodes.retain(|node| node.path != path);
        self
    }

    /// What is there when this was written, with this number.
    pub(crate) fn with(mut self, plan: &Plan, number: u64) -> Self {
        if plan.bumps {
            self.write = number;
        }
        for step in &plan.steps {
            match step {
                Step::Delete { path, .. } => self.nodes.retain(|node| node.path != *path),
                Step::Create(name, _) => {
                    let path = format!("{}/{name}", self.path);
                    // Who holds stands before all who wait.
                    self.nodes.insert(0, Node { name: name.clone(), path, read: None });
                }
                Step::Set { .. } | Step::Limit(_) => {}
            }
        }
        self.version = self.version.map(|version| version.wrapping_add(i32::from(plan.bumps)));
        self
    }

    /// The book of this lock. What only notes say is filled in where they were read, and from `claims`, which are ours.
    pub(crate) fn book(&self, key: &Key, claims: &[Claim]) -> Book {
        let declared = self.limit.as_ref().map(|(declared, _, _)| *declared);
        let Some(limit) = declared.or_else(|| self.nodes.first().map(|node| node.name.limit)) else {
            return Book::default();
        };
        debug_assert!(claims.iter().all(|claim| claim.key == *key));
        let is_full = self.nodes.iter().all(|node| node.read.is_some());
        let row = |(n, node)| self.row(n, node, claims, is_full);
        let rows: Vec<Row> = self.nodes.iter().enumerate().map(row).collect();
        let ends = rows.iter().filter(|row| row.held > 0).filter_map(Row::frees_at).min();
        let head = Head {
            limit,
            effective: self.limit.as_ref().map_or(limit, |(_, effective, _)| *effective),
            held: rows.iter().map(|row| row.held).sum(),
            claims: rows.len() as u64,
            waiting: rows.iter().filter(|row| row.waits()).count() as u64,
            quiet_until: ends.unwrap_or(u64::MAX),
            last: 0,
            last_until: 0,
        };
        Book::new(Some(head), rows)
    }

    fn row(&self, n: usize, node: &Node, claims: &[Claim], is_full: bool) -> Row {
        let Name { id, held, wanted, least, .. } = node.name;
        // In the order of the queue, where the numbers themselves are not known.
        let order = (1 << 62) + n as u64;
        let mut row = Row {
            id,
            seat: node.seat().unwrap_or(order),
            token: node.token().unwrap_or(order),
            held,
            wanted,
            least,
            since: 0,
            lease: None,
            patience: 0,
            expires: None,
            lock_delay: 0,
            inbox: Inbox(u64::MAX),
            label: "".into(),
            value: [].into(),
            count: None,
            given: Vec::new(),
            asked: false,
        };
        if node.name.kind == Kind::Waiting && !is_full {
            // All or none: of two that wait the numbers must compare.
            row.seat = order;
        }
        if let Some((note, stat)) = &node.read {
            let Note { label, lease, patience, lock_delay, count, given, asked, value, .. } = note.clone();
            let since = stat.ctime.unsigned_abs();
            row = Row { label, lease, patience, lock_delay, count, given, asked, value, since, ..row };
            let renewed = stat.mtime.unsigned_abs();
            row.expires = match node.name.kind {
                Kind::Kept => lease.map(|lease| renewed.saturating_add(lease)),
                // While its session lives it is never over.
                Kind::Waiting | Kind::Held => None,
            };
            // Who is told of its end is found in the note: the rule only passes it through.
            row.inbox = Inbox(n as u64);
        } else if let Some(claim) = claims.iter().find(|claim| claim.id == id) {
            row.label = claim.label.clone();
            row.value = claim.value.clone();
            row.count = claim.count;
            row.lease = claim.lease.map(millis);
            row.patience = millis(claim.patience);
            row.lock_delay = millis(claim.lock_delay);
        }
        row
    }
}

/// Whole milliseconds, at least one for anything that is not zero.
pub(crate) fn millis(d: std::time::Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
