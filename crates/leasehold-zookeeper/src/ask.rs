//! Claims on one session: asking, and looking how they stand.
//!
//! Everything here is the same loop: look at the lock, let the rule decide, write what it decided if nothing has
//! changed since, and look again if something has.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rule::{self, Outcome};
use leasehold_core::{Answer, Book, Claim, ClaimId, Fence, IfBusy, Key, OpenBook, Order, Place, Result};
use zookeeper_client::{Error as Fault, Stat};

use crate::fault::{Failed, said};
use crate::names::Kind;
use crate::own::Own;
use crate::plan::{Asker, Plan, Step};
use crate::session::{Depth, Session};
use crate::turn::{self, First};
use crate::view::View;

/// When to ask again if others take their time to take their turn.
const LOOK: Duration = Duration::from_secs(1);

/// Runs one operation of the rule.
pub(crate) fn decide<T>(
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
        let is_there = self.own().contains_key(&claim.id);
        let queues = self.lanes.queues(claim) && !is_there;
        let answer = self.claim_or_queue(claim, queues).await?;
        self.lanes.answered(&claim.id);
        self.unanswered.answered(&claim.id);
        Ok(answer)
    }

    async fn claim_or_queue(self: &Arc<Self>, claim: &Claim, queues: bool) -> Result<Answer> {
        let path = self.lock(&claim.key);
        let ids = [claim.id];
        let mut view = View::absent(path.clone());
        let ruled = self.ruled(claim);
        if queues {
            let plan = Plan::joining(&ruled, &self.node);
            if let Some(answer) = self.queue_behind(claim, &plan).await? {
                return Ok(answer);
            }
            let place = self.own().get(&claim.id).map(|own| own.seat);
            if let Some(seat) = place {
                return self.joined(claim, seat, None).await;
            }
            match self.commit_and_list(&view, &plan).await {
                (Ok(seat), listed) => return self.joined(claim, seat, listed.ok()).await,
                (Err(Failed::Broken(fault)), _) => return Err(crate::fault::said(fault)),
                // Nobody is on it any more.
                (Err(Failed::Overtaken | Failed::Rootless), _) => {}
            }
        }
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
            let written = if joined {
                match self.commit_and_list(&view, &plan).await {
                    (Ok(seat), listed) => return self.joined(claim, seat, listed.ok()).await,
                    (failed, _) => failed,
                }
            } else {
                self.commit(&view, &plan).await
            };
            match written {
                Ok(_) if is_joining => {}
                Ok(number) => return Ok(self.written(claim, &view, &plan, number, said.answer)),
                Err(Failed::Rootless) => self.make_base().await.map_err(crate::fault::said)?,
                Err(Failed::Overtaken) => {}
                Err(Failed::Broken(fault)) => return Err(crate::fault::said(fault)),
            }
            view = self.load(&path, Depth::Ids(&ids)).await?;
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

    /// How a claim stands that has joined the queue, and sees to it that it hears of its turn.
    async fn joined(
        self: &Arc<Self>,
        claim: &Claim,
        seat: u64,
        listed: Option<(Vec<String>, Stat)>,
    ) -> Result<Answer> {
        self.own().insert(claim.id, Own::waiting(claim, seat));
        let path = self.lock(&claim.key);
        let seen = match listed {
            Some((children, stat)) => self.read(&path, &stat, &children, Depth::Ids(&[])).await?,
            None => None,
        };
        let seen = match seen {
            Some(seen) => seen,
            None => self.look(&path, std::slice::from_ref(claim)).await?,
        };
        self.check_kind(claim, &seen).await?;
        let (mut answers, view) = self.settle(&claim.key, std::slice::from_ref(claim), Some(seen)).await?;
        let answer = answers.pop().unwrap_or(Answer::Gone);
        if matches!(answer, Answer::Waiting(_)) {
            self.learn(&claim.key, &view);
            turn::expect(self, claim, First::Seen(view));
        }
        Ok(answer)
    }

    /// Leaves the queue again if those before it have another limit, or a lowered one that it can never fit: they may have
    /// come after we looked, and a place is made whoever is there.
    async fn check_kind(&self, claim: &Claim, seen: &View) -> Result<()> {
        let Some(own) = seen.nodes.iter().position(|node| node.name.id == claim.id) else { return Ok(()) };
        let mut before = seen.clone();
        before.nodes.truncate(own);
        let is_other = |limit: u64| limit != claim.limit;
        let never_fits = before.lowered().is_some_and(|limit| claim.units.least() > limit);
        if !never_fits
            && !before.nodes.iter().any(|node| is_other(node.name.limit))
            && !before.limit.as_ref().is_some_and(|(declared, ..)| is_other(*declared))
        {
            return Ok(());
        }
        self.own().remove(&claim.id);
        self.lanes.forget(&claim.key);
        match self.zk.delete(&seen.nodes[own].path, None).await {
            Ok(()) | Err(Fault::NoNode) => {}
            Err(fault) => return Err(said(fault)),
        }
        let mut book = before.book(&claim.key, &[]);
        decide(&claim.key, &mut book, |ledger| rule::claim(ledger, &self.ruled(claim), before.now)).map(drop)
    }

    /// How claims on one lock stand. Marks those whose turn has come, one after the other, and starts the leases
    /// again of those that have one of their own. What was `seen` need not be the latest: what takes units is written only
    /// if nobody took any since.
    pub(crate) async fn settle(
        &self,
        key: &Key,
        claims: &[Claim],
        mut seen: Option<View>,
    ) -> Result<(Vec<Answer>, View)> {
        let path = self.lock(key);
        let mut done: Vec<Option<Answer>> = vec![None; claims.len()];
        loop {
            let view = match seen.take() {
                Some(view) => view,
                None => self.look(&path, claims).await?,
            };
            let before = view.book(key, claims);
            let mut after = before.clone();
            let mut answers = Vec::with_capacity(claims.len());
            for claim in claims {
                let (now, ruled) = (view.now, self.ruled(claim));
                answers.push(decide(key, &mut after, |ledger| rule::renew(ledger, &ruled, now))?.answer);
            }
            let mut due = None;
            // In the order of the queue, because that is the order of tokens.
            let order =
                view.nodes.iter().filter_map(|node| claims.iter().position(|claim| claim.id == node.name.id));
            for n in order.filter(|n| done[*n].is_none()) {
                let claim = &claims[n];
                let plan = Plan::between(&view, &before, &after, Some(self.asker(claim, &view)));
                if plan.takes && view.ahead(&claim.id) > 0 {
                    answers[n] = not_yet(&view, claim);
                } else if !plan.steps.is_empty() {
                    due = Some((n, plan));
                    break;
                }
            }
            let Some((n, plan)) = due else {
                let answer = |(n, answer): (usize, Answer)| match done[n].take() {
                    Some(done) => done,
                    None => self.answered(&claims[n], &view, answer),
                };
                let answers = answers.into_iter().enumerate().map(answer).collect();
                return Ok((answers, view));
            };
            match self.commit(&view, &plan).await {
                Ok(number) => {
                    done[n] = Some(self.written(&claims[n], &view, &plan, number, answers[n].clone()));
                    let after = view.with(&plan, number);
                    self.learn(key, &after);
                    if done.iter().all(Option::is_some) {
                        return Ok((done.into_iter().flatten().collect(), after));
                    }
                }
                Err(Failed::Broken(fault)) => return Err(said(fault)),
                Err(Failed::Overtaken | Failed::Rootless) => {}
            }
        }
    }

    /// The answer about a claim of which nothing had to be written.
    pub(crate) fn answered(&self, claim: &Claim, view: &View, answer: Answer) -> Answer {
        let Some((seat, token)) = self.numbers(&claim.id, view) else {
            if matches!(answer, Answer::Gone) {
                self.own().remove(&claim.id);
                self.lanes.forget(&claim.key);
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
        if own.path != node.path {
            if !own.path.is_empty() {
                own.news.send_replace(());
            }
            own.path.clone_from(&node.path);
        }
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
        let made = plan.made(&claim.id);
        let Some(name) = made else {
            if matches!(answer, Answer::Gone | Answer::Done | Answer::Left(_)) {
                return answer;
            }
            return self.answered(claim, view, answer);
        };
        let mut table = self.own();
        let is_new = !table.contains_key(&claim.id);
        let own = table.entry(claim.id).or_insert_with(|| Own::waiting(claim, number));
        own.made(view, name, number);
        // Where it had to wait, others do too, whom it has not seen.
        own.alone = is_new && view.is_alone(&claim.id);
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
