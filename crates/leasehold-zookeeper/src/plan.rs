//! From what the rule decided to what is written: one transaction.
//!
//! Whatever **takes units** raises the version of the lock's node from the one that the decision was read at, so that two
//! decisions cannot both come true. Everything else only frees units or queues, and needs no such care. Who else was
//! granted something by the rule is left alone: a claim is marked by its own session, and by nobody else.

use leasehold_core::rule::{Ledger, Row};
use leasehold_core::{Book, Claim, ClaimId, Fence, Key, OpenBook};

use crate::names::{self, Kind, Name};
use crate::note::Note;
use crate::view::{Node, View, millis};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A claim's node.
    Create(Name, Note),
    /// A node that says which limit is in force.
    Limit(String),
    Delete {
        path: String,
        version: Option<i32>,
    },
    Set {
        path: String,
        note: Note,
        version: Option<i32>,
    },
}

/// What is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// Units are taken, or the limit is changed: only if nobody else did so since.
    pub(crate) takes: bool,
    /// Holders change: others must notice.
    pub(crate) bumps: bool,
    /// Nothing is left of the lock.
    pub(crate) leaves_nothing: bool,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) claim: &'a Claim,
    /// Its seat and token, if it has them.
    pub(crate) numbers: Option<(u64, u64)>,
    /// The kind of its node once it holds.
    pub(crate) holds: Kind,
    /// The node of its session.
    pub(crate) client: &'a str,
}

impl Plan {
    /// What makes `after` of what `view` shows, as far as it is the asker's to do.
    pub(crate) fn between(view: &View, before: &Book, after: &Book, asker: Option<Asker<'_>>) -> Self {
        let mut plan = Self::default();
        let key = Key::new("any").expect("a short name is a key");
        let (mut old, mut new) = (before.clone(), after.clone());
        let mut fences = (Fence::default(), Fence::default());
        let mut old = OpenBook::new(&key, &mut old, &mut fences.0, 0);
        let mut new = OpenBook::new(&key, &mut new, &mut fences.1, 0);
        let find = |book: &mut OpenBook<'_>, id: &ClaimId| book.row(id).ok().flatten();
        for node in &view.nodes {
            match (find(&mut old, &node.name.id), find(&mut new, &node.name.id)) {
                (Some(_), None) => plan.steps.push(delete(node)),
                (Some(old), Some(new)) if old != new => plan.change(node, &old, &new, asker, view.now),
                _ => {}
            }
        }
        for row in after.rows() {
            if find(&mut old, &row.id).is_none()
                && let Some(asker) = asker
            {
                plan.arrive(row, asker, view.now);
            }
        }
        plan.resize(view, before, after);
        let kept = view.paths().count();
        let deleted = plan.steps.iter().filter(|step| matches!(step, Step::Delete { .. })).count();
        let creates = plan.steps.iter().any(|step| matches!(step, Step::Create(..) | Step::Limit(_)));
        plan.leaves_nothing = deleted > 0 && deleted == kept && !creates;
        plan
    }

    /// A place at the end of the queue, whatever is free.
    pub(crate) fn joining(claim: &Claim, client: &str) -> Self {
        let name = Name {
            kind: Kind::Waiting,
            id: claim.id,
            round: claim.round,
            limit: claim.limit,
            held: 0,
            wanted: claim.units.most(),
            least: claim.units.least(),
            seat: 0,
            token: 0,
            turn: 0,
        };
        let note = Note {
            client: client.to_owned(),
            label: claim.label.clone(),
            lease: claim.lease.map(millis),
            patience: millis(claim.patience),
            value: claim.value.clone(),
            ..Note::default()
        };
        Self { steps: vec![Step::Create(name, note)], ..Self::default() }
    }

    /// The place at the end of the queue, if that is all it makes.
    pub(crate) fn joins(&self) -> Option<(&Name, &Note)> {
        match self.steps.as_slice() {
            [Step::Create(name, note)] if name.kind == Kind::Waiting => Some((name, note)),
            _ => None,
        }
    }

    /// The node that it makes for a claim.
    pub(crate) fn made(&self, id: &ClaimId) -> Option<&Name> {
        self.steps.iter().find_map(|step| match step {
            Step::Create(name, _) if name.id == *id => Some(name),
            _ => None,
        })
    }

    fn change(&mut self, node: &Node, old: &Row, new: &Row, asker: Option<Asker<'_>>, now: u64) {
        let units = |row: &Row| (row.held, row.wanted, row.least);
        let asker = asker.filter(|asker| asker.claim.id == new.id);
        if units(old) != units(new) {
            let Some(asker) = asker else { return };
            let (seat, token) = asker.numbers.unwrap_or((0, 0));
            let takes = new.held > old.held;
            let kind = if node.name.kind == Kind::Waiting { asker.holds } else { node.name.kind };
            let name = Name {
                kind,
                held: new.held,
                wanted: new.wanted,
                least: new.least,
                seat,
                token: if takes { 0 } else { token },
                turn: 0,
                ..node.name.clone()
            };
            self.steps.push(delete(node));
            self.steps.push(Step::Create(name, Note::of(new, asker.client)));
            self.takes |= takes;
            self.bumps = true;
            return;
        }
        let Some((note, stat)) = &node.read else { return };
        let client = asker.map_or(note.client.as_str(), |asker| asker.client);
        let mut wanted = Note::of(new, client);
        if node.name.kind != Kind::Kept {
            wanted.client.clone_from(&note.client);
        }
        // A renewal is a write, whatever is written: the server notes when.
        let is_renewed = node.name.kind == Kind::Kept && new.expires > old.expires && new.expires > Some(now);
        if wanted != *note || (is_renewed && asker.is_some()) {
            self.steps.push(Step::Set { path: node.path.clone(), note: wanted, version: Some(stat.version) });
        }
    }

    fn arrive(&mut self, row: &Row, asker: Asker<'_>, now: u64) {
        let (seat, token) = asker.numbers.unwrap_or((0, 0));
        let is_tail = row.id != asker.claim.id;
        let kind = match row.held {
            0 => Kind::Waiting,
            _ if is_tail => Kind::Kept,
            _ => asker.holds,
        };
        let mut note = Note::of(row, asker.client);
        if is_tail {
            note.lease = row.expires.map(|at| at.saturating_sub(now));
        }
        let name = Name {
            kind,
            id: row.id,
            round: asker.claim.round,
            limit: asker.claim.limit,
            held: row.held,
            wanted: row.wanted,
            least: row.least,
            seat,
            token,
            turn: 0,
        };
        self.steps.push(Step::Create(name, note));
        self.takes |= row.held > 0 && !is_tail;
        self.bumps |= row.held > 0;
    }

    fn resize(&mut self, view: &View, before: &Book, after: &Book) {
        let in_force = |book: &Book| book.head().map(|head| (head.limit, head.effective));
        let (old, new) = (in_force(before), in_force(after));
        let changed = |(declared, effective): &(u64, u64)| declared != effective;
        if old.filter(changed) == new.filter(changed) {
            return;
        }
        if let Some((_, _, path)) = &view.limit {
            self.steps.push(Step::Delete { path: path.clone(), version: None });
        }
        if let Some((declared, effective)) = new.filter(changed) {
            self.steps.push(Step::Limit(names::limit(declared, effective)));
        }
        (self.takes, self.bumps) = (true, true);
    }
}

fn delete(node: &Node) -> Step {
    // What has an end of its own may have been renewed since: then it is not over.
    let version = node.read.as_ref().filter(|_| node.name.kind == Kind::Kept).map(|(_, stat)| stat.version);
    Step::Delete { path: node.path.clone(), version }
}
