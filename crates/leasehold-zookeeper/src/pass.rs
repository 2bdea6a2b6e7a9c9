//! Claims on one session that need not look: who queues behind others of it, and who is followed by one of it.

use std::sync::Arc;

use futures_util::future::join;
use leasehold_core::{Answer, Claim, Key, Place, Result, rule};
use zookeeper_client::Stat;

use crate::ask::decide;
use crate::fault::{Failed, said};
use crate::names::Kind;
use crate::own::Own;
use crate::plan::{Plan, Step};
use crate::session::{Depth, Session};
use crate::turn::{self, First};
use crate::view::{Node, View};

impl Session {
    /// Learns from a look at a lock whether this session holds it alone and is next.
    pub(crate) fn learn(&self, key: &Key, view: &View) {
        let is_ours = {
            let own = self.own();
            let is_ours = |node: &&Node| own.contains_key(&node.name.id);
            let holder = view.only_holder(None).filter(|node| node.name.kind == Kind::Held && !node.waits());
            let heir = view.nodes.iter().find(|node| node.waits());
            holder.filter(is_ours).is_some_and(|node| node.name.held == node.name.limit)
                && heir.filter(is_ours).is_some()
        };
        self.lanes.learn(key, view, is_ours);
    }

    /// Queues behind claims of this session, with no look at the others. `None` when that cannot be done; if a place was
    /// made, it stays.
    pub(crate) async fn queue_behind(self: &Arc<Self>, claim: &Claim, plan: &Plan) -> Result<Option<Answer>> {
        let path = self.lock(&claim.key);
        let (Some((name, note)), true) = (plan.joins(), self.lanes.has_next(&claim.key)) else {
            return Ok(None);
        };
        // The account of the lock's node tells how many are on it, and whether others came, or took units.
        // The driver sends when it is called: not before the other is polled.
        let account = async { self.zk.check_stat(&path).await };
        let (made, stat) = join(self.queue(&path, name, note), account).await;
        let (seat, turn) = match made {
            Ok(made) => made,
            Err(Failed::Broken(fault)) => return Err(said(fault)),
            Err(Failed::Overtaken | Failed::Rootless) => return Ok(None),
        };
        self.own().insert(claim.id, Own::waiting(claim, seat));
        let Some((ahead, write)) = stat.ok().flatten().and_then(|stat| last_of_all(&stat, turn)) else {
            return Ok(None);
        };
        let Some(before) = self.lanes.joins(claim, seat, turn, write) else { return Ok(None) };
        let Some(news) = self.own().get(&before).map(|own| own.news.subscribe()) else { return Ok(None) };
        turn::expect(self, claim, First::Behind(news));
        let lease = self.lease(claim, Some(std::time::Duration::ZERO));
        Ok(Some(Answer::Waiting(Place { seat, ahead, look_in: claim.patience / 3, held: 0, lease })))
    }

    /// Gives what a claim holds to the next of this session. `false` when that is not known to be next, or something has
    /// changed since.
    pub(crate) async fn hand_over(&self, own: &Own) -> Result<bool> {
        let key = &own.claim.key;
        let Some(pass) = self.lanes.pass(key, &own.path) else { return Ok(false) };
        let heir = self.own().get(&pass.to.name.id).map(|own| own.claim.clone());
        let Some(heir) = heir.filter(|_| pass.to.name.kind == Kind::Waiting) else {
            self.lanes.forget(key);
            return Ok(false);
        };
        let path = self.lock(key);
        // Those behind it do not matter.
        let view = View { nodes: vec![pass.to], version: Some(pass.version), ..View::absent(path.clone()) };
        let passing = self.pass_to(own, &heir, &view);
        let passed = if pass.looks {
            let looking = async { self.load(&path, Depth::Ids(&[])).await };
            let (passed, seen) = join(passing, looking).await;
            if let Ok(seen) = seen {
                self.learn(key, &seen);
            }
            passed
        } else {
            passing.await
        };
        if !matches!(passed, Ok(true)) {
            self.lanes.forget(key);
        }
        passed
    }

    async fn pass_to(&self, own: &Own, heir: &Claim, view: &View) -> Result<bool> {
        let key = &heir.key;
        let before = view.book(key, std::slice::from_ref(heir));
        let mut after = before.clone();
        let ruled = self.ruled(heir);
        let said_so = decide(key, &mut after, |ledger| rule::renew(ledger, &ruled, view.now))?;
        let mut plan = Plan::between(view, &before, &after, Some(self.asker(heir, view)));
        let name = plan.made(&heir.id).filter(|_| plan.takes).cloned();
        let (Some(name), Answer::Granted(_)) = (name, said_so.answer) else { return Ok(false) };
        plan.steps.insert(0, Step::Delete { path: own.path.clone(), version: None });
        let number = match self.commit(view, &plan).await {
            Ok(number) => number,
            Err(Failed::Broken(fault)) => return Err(said(fault)),
            Err(Failed::Overtaken | Failed::Rootless) => return Ok(false),
        };
        let alone =
            name.held == name.limit && self.lanes.passed(key, format!("{}/{name}", view.path), number);
        if name.held < name.limit {
            // Others may fit beside it.
            self.lanes.forget(key);
        }
        let told = {
            let mut table = self.own();
            // It may have left meanwhile, and then it gives back what it got.
            table.get_mut(&heir.id).map(|own| {
                own.turn = None;
                own.made(view, &name, number);
                (own.waits, own.alone) = (false, alone);
                own.granted(None)
            })
        };
        if let Some(answer) = told {
            turn::tell(self, heir, Some(answer));
        }
        Ok(true)
    }
}

/// How many wait before who has just queued at this place, if nobody came since and one claim holds; and the number of the
/// last write that took units.
fn last_of_all(lock: &Stat, turn: i32) -> Option<(u64, u64)> {
    // The server counts how often children came; what it shows is that count, twice, less those who are there.
    let came = (i64::from(lock.cversion) + i64::from(lock.num_children)) / 2;
    let others = u64::try_from(lock.num_children).ok()?.checked_sub(2)?;
    (came == i64::from(turn) + 1).then_some((others.min(Place::COUNTED), lock.mzxid.unsigned_abs()))
}
