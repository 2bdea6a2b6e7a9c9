//! Claims on one session: asking, looking how they stand, giving back.
//!
//! Everything here is the same loop: look at the lock, let the rule decide, write what it decided if nothing has
//! changed since, and look again if something has.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use leasehold_core::rule::{self, Outcome};
use leasehold_core::{
    Answer, Book, Claim, ClaimId, Fence, IfBusy, Key, OpenBook, Order, Place, Released, Result,
};

use zookeeper_client::Error as Fault;

use crate::fault::{Failed, said};
use crate::names::Kind;
use crate::own::Own;
use crate::plan::{Asker, Plan, Step};
use crate::session::{Depth, Session};
use crate::turn;
use crate::view::View;

/// When to ask again if others take their time to take their turn.
const LOOK: Duration = Duration::from_secs(1);

/// Runs one operation of the rule.
fn decide<T>(
    key: &Key,
    book: &mut Book,
    operation: impl FnOnce(&mut OpenBook<'_>) -> Result<Outcome<T>>,
) -> Result<Outcome<T>> {
    // The server numbers its writes itself: what the rule draws here is not used.
    operation(&mut OpenBook::new(key, book, &mut Fence::default(), 0))
}

/// The answer for a claim that may hold as soon as those before it have taken their turn.
fn not_yet(view: &View, claim: &Claim) -> Answer {
    let held = view.node(&claim.id).map_or(0, |node| node.name.held);
    let ahead = view.ahead(&claim.id).min(Place::COUNTED);
    Answer::Waiting(Place { seat: 0, ahead, look_in: LOOK, held, lease: Some(Duration::ZERO) })
}

impl Session {
    pub(crate) fn asker<'a>(&'a self, claim: &'a Claim, view: &View) -> Asker<'a> {
        let holds = if self.carries(claim) { Kind::Held } else { Kind::Kept };
        Asker { claim, numbers: self.numbers(&claim.id, view), holds, client: &self.node }
    }

    /// The seat and the token of a claim that is there.
    fn numbers(&self, id: &ClaimId, view: &View) -> Option<(u64, u64)> {
        let node = view.node(id)?;
        let known = self.own().get(id).map(|own| (own.seat, own.token));
        let seat = known.map(|(seat, _)| seat).or(node.seat())?;
        // The token may be newer than what we know, if somebody else's session grew it.
        let token = known.map(|(_, token)| token).filter(|token| *token > 0).or(node.token())?;
        Some((seat, token))
    }

    /// Those whose seats we do not know, or whose notes may say more than their claims: what waits for its first grant
    /// is as it was asked for.
    fn unknown<'a>(&self, claims: impl IntoIterator<Item = &'a Claim>) -> Vec<ClaimId> {
        let own = self.own();
        let known = |id: &ClaimId| own.get(id).is_some_and(|own| own.seat > 0 && own.kind == Kind::Waiting);
        claims.into_iter().map(|claim| claim.id).filter(|id| !known(id)).collect()
    }

    /// Asks for units.
    pub(crate) async fn claim(self: &Arc<Self>, claim: &Claim) -> Result<Answer> {
        let path = self.lock(&claim.key);
        let ids = [claim.id];
        let mut view = View::absent(path.clone());
        let mut is_first = true;
        let ruled = self.ruled(claim);
        loop {
            let before = view.book(&claim.key, std::slice::from_ref(claim));
            let mut after = before.clone();
            let now = view.now;
            let said = decide(&claim.key, &mut after, |ledger| rule::claim(ledger, &ruled, now))?;
            let asker = self.asker(claim, &view);
            let mut plan = Plan::between(&view, &before, &after, Some(asker));
            if plan.steps.is_empty() {
                return Ok(self.answered(claim, &view, said.answer));
            }
            if plan.takes && claim.order == Order::Fair && claim.if_busy == IfBusy::Queue && view.waits() > 0
            {
                // Its turn has come, after that of others who have not taken it yet: in the order of the queue.
                plan = Plan::joining(&ruled, &self.node);
            }
            let joins = |step: &Step| matches!(step, Step::Create(name, _) if name.kind == Kind::Waiting);
            let is_joining = plan.steps.iter().any(joins);
            if is_joining && plan.steps.len() > 1 {
                // First what has ended goes; then there is somebody else to look at.
                plan.steps.retain(|step| !joins(step));
                plan.leaves_nothing = false;
            }
            let joined = is_joining && plan.steps.len() == 1 && plan.steps.iter().any(joins);
            let (written, listed) = if is_first {
                let (written, listed) = self.commit_and_list(&view, &plan).await;
                (written, Some(listed))
            } else {
                (self.commit(&view, &plan).await, None)
            };
            is_first = false;
            match written {
                Ok(seat) if joined => {
                    self.own().insert(claim.id, Own::waiting(claim, seat));
                    return self.stand(claim).await;
                }
                Ok(_) if is_joining => {}
                Ok(number) => return Ok(self.written(claim, &view, &plan, number, said.answer)),
                Err(Failed::Rootless) => self.make_base().await.map_err(crate::fault::said)?,
                Err(Failed::Overtaken) => {}
                Err(Failed::Broken(fault)) => return Err(crate::fault::said(fault)),
            }
            let seen = match listed {
                Some(Ok((children, stat))) => {
                    self.read(&path, stat.version, &children, Depth::Ids(&ids)).await?
                }
                _ => None,
            };
            view = match seen {
                Some(view) => view,
                None => self.load(&path, Depth::Ids(&ids)).await?,
            };
        }
    }

    /// A lock with all that must be known about these claims: where the session does not know it, it is read.
    async fn look(&self, path: &str, claims: &[Claim]) -> Result<View> {
        let mut wanted = self.unknown(claims);
        loop {
            let view = self.load(path, Depth::Ids(&wanted)).await?;
            let is_lacking = |id: &ClaimId| view.node(id).is_some() && self.numbers(id, &view).is_none();
            let lacking: Vec<_> = claims.iter().map(|claim| claim.id).filter(is_lacking).collect();
            if lacking.is_empty() {
                return Ok(view);
            }
            wanted.extend(lacking);
        }
    }

    /// How one claim stands that is there, and sees to it that it hears of its turn.
    pub(crate) async fn stand(self: &Arc<Self>, claim: &Claim) -> Result<Answer> {
        let (mut answers, view) = self.settle(&claim.key, std::slice::from_ref(claim)).await?;
        let answer = answers.pop().unwrap_or(Answer::Gone);
        if matches!(answer, Answer::Waiting(_)) {
            turn::expect(self, claim, Some(view));
        }
        Ok(answer)
    }

    /// How claims on one lock stand. Marks those whose turn has come, one after the other, and starts the leases
    /// again of those that have one of their own.
    pub(crate) async fn settle(&self, key: &Key, claims: &[Claim]) -> Result<(Vec<Answer>, View)> {
        let path = self.lock(key);
        let mut done: Vec<Option<Answer>> = vec![None; claims.len()];
        loop {
            let view = self.look(&path, claims).await?;
            let before = view.book(key, claims);
            let mut after = before.clone();
            let mut answers = Vec::with_capacity(claims.len());
            for claim in claims {
                let (now, ruled) = (view.now, self.ruled(claim));
                answers.push(decide(key, &mut after, |ledger| rule::renew(ledger, &ruled, now))?.answer);
            }
            let mut is_final = true;
            // In the order of the queue, because that is the order of tokens.
            let order =
                view.nodes.iter().filter_map(|node| claims.iter().position(|claim| claim.id == node.name.id));
            for n in order.filter(|n| done[*n].is_none()) {
                let claim = &claims[n];
                let plan = Plan::between(&view, &before, &after, Some(self.asker(claim, &view)));
                if plan.takes && view.ahead(&claim.id) > 0 {
                    answers[n] = not_yet(&view, claim);
                    continue;
                }
                if plan.steps.is_empty() {
                    continue;
                }
                is_final = false;
                match self.commit(&view, &plan).await {
                    Ok(number) => {
                        done[n] = Some(self.written(claim, &view, &plan, number, answers[n].clone()));
                    }
                    Err(Failed::Broken(fault)) => return Err(said(fault)),
                    Err(Failed::Overtaken | Failed::Rootless) => {}
                }
                break;
            }
            if is_final {
                let answer = |(n, answer): (usize, Answer)| match done[n].take() {
                    Some(done) => done,
                    None => self.answered(&claims[n], &view, answer),
                };
                let answers = answers.into_iter().enumerate().map(answer).collect();
                return Ok((answers, view));
            }
        }
    }

    /// The answer about a claim of which nothing had to be written.
    pub(crate) fn answered(&self, claim: &Claim, view: &View, answer: Answer) -> Answer {
        let Some((seat, token)) = self.numbers(&claim.id, view) else {
            if matches!(answer, Answer::Gone) {
                self.own().remove(&claim.id);
            }
            return answer;
        };
        let Some(node) = view.node(&claim.id) else { return answer };
        if let Some((_, stat)) = &node.read
            && stat.ephemeral_owner != 0
            && stat.ephemeral_owner != self.zk.session_id().0
        {
            // It ends with a session that is over, or that is not ours.
            return Answer::Gone;
        }
        let mut own = self.own();
        let own = own.entry(claim.id).or_insert_with(|| Own::waiting(claim, seat));
        own.path.clone_from(&node.path);
        (own.kind, own.seat, own.token) = (node.name.kind, seat, token);
        own.units = node.name.held;
        own.alone = view.is_alone(&claim.id);
        own.asked |= node.read.as_ref().is_some_and(|(note, _)| note.asked);
        match answer {
            Answer::Granted(grant) => {
                own.waits = false;
                own.granted(self.lease(claim, grant.lease))
            }
            Answer::Waiting(mut place) => {
                own.waits = true;
                (place.seat, place.lease) = (seat, self.lease(claim, place.lease));
                Answer::Waiting(place)
            }
            answer => answer,
        }
    }

    /// The answer about a claim for which this was written, with this number.
    pub(crate) fn written(
        &self,
        claim: &Claim,
        view: &View,
        plan: &Plan,
        number: u64,
        answer: Answer,
    ) -> Answer {
        let made = plan.steps.iter().find_map(|step| match step {
            Step::Create(name, _) if name.id == claim.id => Some(name),
            _ => None,
        });
        let Some(name) = made else {
            if matches!(answer, Answer::Gone | Answer::Done | Answer::Left(_)) {
                return answer;
            }
            return self.answered(claim, view, answer);
        };
        let or_number = |named: u64| if named == 0 { number } else { named };
        let mut table = self.own();
        let own = table.entry(claim.id).or_insert_with(|| Own::waiting(claim, number));
        own.path = format!("{}/{name}", view.path);
        (own.kind, own.units) = (name.kind, name.held);
        (own.seat, own.token) = (or_number(name.seat), or_number(name.token));
        own.alone = view.is_alone(&claim.id);
        match answer {
            Answer::Granted(grant) => {
                own.waits = false;
                own.granted(self.lease(claim, grant.lease))
            }
            Answer::Waiting(mut place) => {
                own.waits = true;
                (place.seat, place.lease) = (own.seat, self.lease(claim, place.lease));
                Answer::Waiting(place)
            }
            answer => answer,
        }
    }

    /// What the lease of a claim was extended to by a call that wrote something, or heard the session's heartbeat: its
    /// own, or the session's.
    pub(crate) fn lease(&self, claim: &Claim, own: Option<Duration>) -> Option<Duration> {
        let own = own?;
        if self.carries(claim) { claim.lease.map(|lease| lease.min(self.lives_for())) } else { Some(own) }
    }

    /// Gives back or leaves.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released> {
        let known = self.own().remove(&claim.id);
        if let Some(own) = known.filter(Own::is_held)
            && self.leave(&own).await.map_err(said)?
        {
            return Ok(Released::Held);
        }
        let id = claim.id;
        let operation = |ledger: &mut OpenBook<'_>, now| rule::release(ledger, &id, None, now);
        Ok(self.operate(&claim.key, None, Depth::Ids(&[id]), operation).await?.0.answer)
    }

    /// Deletes the node of a claim that holds on this session, and the lock's with the last one. `false` when it is not
    /// there: it may have another name by now.
    async fn leave(&self, own: &Own) -> Result<bool, Fault> {
        let lock = self.lock(&own.key);
        if own.alone {
            let mut write = self.zk.new_multi_writer();
            write.add_delete(&own.path, None)?;
            write.add_delete(&lock, None)?;
            match write.commit().await.map_err(Fault::from) {
                Err(Fault::NotEmpty) => {}
                Err(Fault::NoNode) => return Ok(false),
                done => return done.map(|_| true),
            }
        }
        let deleted = self.zk.delete(&own.path, None);
        let (deleted, left) = join(deleted, self.zk.list_children(&lock)).await;
        match deleted {
            Err(Fault::NoNode) => return Ok(false),
            deleted => deleted?,
        }
        if left.is_ok_and(|left| left.is_empty()) {
            // Somebody may have come since, and then it stays.
            let _ = self.zk.delete(&lock, None).await;
        }
        Ok(true)
    }

    /// Runs an operation of the rule on a lock and writes what it decided. Answers what was seen, too.
    pub(crate) async fn operate<T>(
        &self,
        key: &Key,
        claim: Option<&Claim>,
        depth: Depth<'_>,
        operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>>,
    ) -> Result<(Outcome<T>, View, Plan, u64)> {
        let path = self.lock(key);
        loop {
            let view = self.load_fresh(&path, depth).await?;
            let before = view.book(key, &[]);
            let mut after = before.clone();
            let now = view.now;
            let outcome = decide(key, &mut after, |ledger| operation(ledger, now))?;
            let asker = claim.map(|claim| self.asker(claim, &view));
            let plan = Plan::between(&view, &before, &after, asker);
            if plan.steps.is_empty() {
                return Ok((outcome, view, plan, 0));
            }
            match self.commit(&view, &plan).await {
                Ok(number) => return Ok((outcome, view, plan, number)),
                Err(Failed::Broken(fault)) => return Err(said(fault)),
                Err(Failed::Rootless) => self.make_base().await.map_err(said)?,
                Err(Failed::Overtaken) => {}
            }
        }
    }
}
