//! Locks that several claims of one session are on: what one gives back, the next gets in the same transaction.
//!
//! A session that holds a lock alone and has the head of its queue knows all that must be known: nobody comes to stand
//! before that head, and who takes units otherwise raises the version of the lock's node. So nobody has to look, to watch
//! or to be woken. Between sessions this cannot be done: a claim is marked by its own session and by nobody else.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{Answer, Claim, ClaimId, IfBusy, Key, Order, Result, rule};

use crate::ask::decide;
use crate::fault::{Failed, said};
use crate::names::Kind;
use crate::own::Own;
use crate::plan::{Plan, Step};
use crate::session::Session;
use crate::turn;
use crate::view::{Node, View};

/// What a session knows of the locks that it holds alone while others of its claims are next.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    seen: HashMap<Key, View>,
    /// Claims that were asked for and not answered yet: they may be there already.
    unanswered: HashSet<ClaimId>,
}

impl Lanes {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a claim is asked for. `true` when it is so for the first time and surely has to queue.
    pub(crate) fn queues(&self, claim: &Claim) -> bool {
        let mut known = self.known();
        let is_new = known.unanswered.insert(claim.id);
        let is_same = |view: &View| view.nodes.iter().all(|node| node.name.limit == claim.limit);
        let is_plain = claim.order == Order::Fair && claim.if_busy == IfBusy::Queue && claim.count.is_none();
        is_new && is_plain && known.seen.get(&claim.key).is_some_and(is_same)
    }

    /// Notes that a claim was answered, or will not be asked for again.
    pub(crate) fn answered(&self, id: &ClaimId) {
        self.known().unanswered.remove(id);
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.known().seen.remove(key);
    }
}

impl Session {
    /// Remembers what was seen of a lock, if this session holds it alone and is next.
    pub(crate) fn remember(&self, key: &Key, view: &View) {
        let is_ours = {
            let own = self.own();
            let is_ours = |node: &&Node| own.contains_key(&node.name.id);
            let holder = view.only_holder(None).filter(|node| node.name.kind == Kind::Held && !node.waits());
            let heir = view.nodes.iter().find(|node| node.waits());
            view.is_plain() && holder.filter(is_ours).is_some() && heir.filter(is_ours).is_some()
        };
        if is_ours {
            self.lanes.known().seen.insert(key.clone(), view.clone());
        } else {
            self.lanes.forget(key);
        }
    }

    /// Gives what a claim holds to the next of this session. `false` when that is not known to be next, or something has
    /// changed since.
    pub(crate) async fn hand_over(&self, own: &Own) -> Result<bool> {
        let key = &own.claim.key;
        let Some(seen) = self.lanes.known().seen.remove(key) else { return Ok(false) };
        if seen.only_holder(None).is_none_or(|node| node.path != own.path) {
            return Ok(false);
        }
        let mut seen = seen.without(&own.path);
        let Some(head) = seen.nodes.first().filter(|node| node.name.kind == Kind::Waiting).cloned() else {
            return Ok(false);
        };
        let Some(heir) = self.own().get(&head.name.id).map(|own| own.claim.clone()) else { return Ok(false) };
        // Those behind it do not matter.
        let view = View { nodes: vec![head], version: seen.version, ..View::absent(seen.path.clone()) };
        let before = view.book(key, std::slice::from_ref(&heir));
        let mut after = before.clone();
        let ruled = self.ruled(&heir);
        let said_so = decide(key, &mut after, |ledger| rule::renew(ledger, &ruled, view.now))?;
        let mut plan = Plan::between(&view, &before, &after, Some(self.asker(&heir, &view)));
        if !plan.takes || !matches!(said_so.answer, Answer::Granted(_)) {
            return Ok(false);
        }
        let Some(name) = plan.made(&heir.id).cloned() else { return Ok(false) };
        plan.steps.insert(0, Step::Delete { path: own.path.clone(), version: None });
        let number = match self.commit(&view, &plan).await {
            Ok(number) => number,
            Err(Failed::Broken(fault)) => return Err(said(fault)),
            Err(Failed::Overtaken | Failed::Rootless) => return Ok(false),
        };
        seen = seen.with(&plan);
        let told = {
            let mut table = self.own();
            // It may have left meanwhile, and then it gives back what it got.
            table.get_mut(&heir.id).map(|own| {
                own.turn = None;
                own.made(&view, &name, number);
                (own.waits, own.alone) = (false, seen.is_alone(&heir.id));
                own.granted(None)
            })
        };
        if let Some(answer) = told {
            self.remember(key, &seen);
            turn::tell(self, &heir, Some(answer));
        }
        Ok(true)
    }
}
