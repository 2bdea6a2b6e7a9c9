//! Claims: one transaction when nobody else is there, and a place in the queue with the same one when somebody is.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rule::{self, Row};
use leasehold_core::{
    Answer, BootClock, Claim, Clock, ErrorKind, IfBusy, OpenBook, Order, Place, Result, Units,
};

use crate::deciding::{Decided, Matter};
use crate::format::{first_number, value};
use crate::names::Standing;
use crate::session::{Name, Session, proven, seconds};
use crate::state::{FRONT, NEXT, Own, State};
use crate::store::{Shared, now};
use crate::wire::message::{Header, Op, Response, Txn};
use crate::wire::{Connection, Fault, header};
use crate::words::{delete, is_absent, is_empty, is_of, nested, put};

/// How many sessions are opened for one claim when each ends before it can be used.
const SESSIONS: usize = 3;

impl Shared {
    pub(crate) async fn claim(&self, claim: &Claim) -> Result<Answer> {
        // Revisions are what they are: nobody can ask for a larger one.
        let claim = &Claim { token_above: 0, quorum: None, ..claim.clone() };
        let asked = self.labels.ask(&claim.id);
        let answer = self
            .on_a_member(|member| async move {
                match (Name::of(claim), claim.lease) {
                    (Some(name), _) => self.claim_in_session(&member, claim, name).await,
                    (None, Some(length)) => self.claim_for_a_time(&member, claim, length).await,
                    (None, None) => {
                        let claimed = self.claim_on(&member, claim, self.own(claim), Carrier::default());
                        claimed.await.map(|(answer, _)| answer)
                    }
                }
            })
            .await;
        match &answer {
            Ok(Answer::Waiting(_)) => self.labels.waits(&claim.id),
            Ok(Answer::Busy | Answer::Gone) => self.labels.refused(&claim.id),
            _ => {}
        }
        asked.heard(&answer);
        answer
    }

    /// Claims what no process owns and what ends by itself: a latch that lives for a time. It has a lease of its own, and so
    /// has the mark that refuses late copies of the request, because nobody is there to leave one when the latch ends. A
    /// repeat is refused by that mark at once: only a request that was carried out leaves it.
    async fn claim_for_a_time(
        &self,
        member: &Arc<Connection>,
        claim: &Claim,
        length: Duration,
    ) -> Result<Answer, Fault> {
        let lease = member.grant(seconds(length)).await?.id;
        let mark = member.grant(seconds(length.saturating_add(rule::LATE))).await?.id;
        let claim = Claim { lease: None, ..claim.clone() };
        let carrier = Carrier { lease, mark, greeting: None };
        let (answer, _) = self.claim_on(member, &claim, self.own(&claim), carrier).await?;
        let is_new = matches!(&answer, Answer::Granted(grant) if grant.lease.is_some());
        if !is_new {
            member.revoke(lease).await?;
            member.revoke(mark).await?;
        }
        Ok(answer.on_session(is_new.then_some(length)))
    }

    /// Claims, and starts the lease in full or nearly so: unless the session was extended a moment ago, a keep-alive travels
    /// beside the claim, whose answer proves it.
    async fn claim_in_session(
        &self,
        member: &Arc<Connection>,
        claim: &Claim,
        name: Name,
    ) -> Result<Answer, Fault> {
        for _ in 0..SESSIONS {
            let sent = BootClock.now();
            let session = self.sessions.join(member, name).await?;
            let Session { id, opened, .. } = session;
            let left = opened.or_else(|| session.left(sent));
            let keep = async {
                match left {
                    Some(_) => None,
                    None => member.keep_alive(id).await.ok(),
                }
            };
            let own = Own { id: claim.id, label: Some(self.labels.give(claim, id)) };
            // The first to claim on a session makes the key whose end tells that the session has ended.
            let greeting = session.is_new().then(|| put(self.names.inbox(claim.inbox, id), Vec::new(), id));
            let carrier = Carrier { lease: id, mark: 0, greeting };
            let (kept, claimed) = tokio::join!(keep, self.claim_on(member, claim, own, carrier));
            match claimed {
                Ok((answer, proof)) => {
                    session.greeted();
                    let kept = kept.and_then(|kept| proven(&kept, proof)).map(|ttl| name.said(ttl));
                    opened.or(kept).iter().for_each(|length| session.extended(sent, *length));
                    return Ok(answer.on_session(left.or(kept)));
                }
                Err(Fault::LeaseGone) => self.sessions.forget(name, id),
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::LeaseGone)
    }

    async fn claim_on(
        &self,
        member: &Arc<Connection>,
        claim: &Claim,
        own: Own,
        carrier: Carrier,
    ) -> Result<(Answer, Header), Fault> {
        let Carrier { lease, mark, greeting } = carrier;
        let mut matter = Matter::arriving(self.names.lock(&claim.key), claim, own, lease);
        (matter.front, matter.arrival.mark) = (NEXT, mark);
        let claim = &claim.on_session();
        let rule = |ledger: &mut OpenBook<'_>, now| rule::claim(ledger, claim, now);
        // Guess that nobody is there; else take a place at once, if one is wanted, and see who is.
        let (outcome, mut plan) = self.plan(&matter, &State::free(), &rule)?;
        // Where nothing is, nothing can have changed.
        let compare = vec![is_empty(&matter.lock.all()), is_absent(&self.names.refused(&claim.id))];
        plan.ops.extend(greeting.clone());
        let joining = self.joining(&matter, claim);
        let may_join = joining.is_some();
        let mut failure = vec![nested(joining.unwrap_or_default())];
        failure.extend(self.questions(&matter));
        failure.extend(greeting);
        let first = Txn { compare, success: plan.ops, failure };
        let first = member.txn_about(&matter.lock, first).await?;
        let proof = header(first.header)?;
        if first.succeeded {
            let numbers = (State::free().first_number(), first_number(proof.revision));
            return Ok((Decided { answer: outcome.answer, numbers }.numbered(), proof));
        }
        let mut seen = matter.state(&first, 1)?;
        let joined = first.responses.first().and_then(|reply| reply.response.as_ref());
        let has_joined = may_join && matches!(joined, Some(Response::Txn(joined)) if joined.succeeded);
        // Who has just joined is the last. Where another is must be counted.
        let mut behind = 0;
        if has_joined {
            self.labels.waits(&claim.id);
            behind = seen.unseen();
        } else if seen.unseen() > 0 {
            matter.front = FRONT;
            seen = self.look(member, &matter).await.map_err(Fault::in_doubt)?;
        }
        if has_joined && seen.lowered().is_some_and(|limit| claim.units.least() > limit) {
            // It took a place before it knew that the limit was lowered. The rule refuses it when it has left.
            let leave = |ledger: &mut OpenBook<'_>, now| rule::release(ledger, &claim.id, None, now);
            self.decide(member, &matter, seen, leave).await.map_err(Fault::in_doubt)?;
            seen = self.look(member, &matter).await.map_err(Fault::in_doubt)?;
        }
        // From here on it may have a place: that nothing happened can be said no more.
        let mut decided = self.decide(member, &matter, seen, rule).await.map_err(Fault::in_doubt);
        if let Ok(Decided { answer: Answer::Waiting(place), .. }) = &mut decided {
            place.ahead = (place.ahead + behind).min(Place::COUNTED);
        }
        if let Err(Fault::Final(error)) = &decided
            && error.kind() == ErrorKind::Conflict
        {
            self.take_back(member, &matter, claim).await?;
        }
        Ok((decided?.numbered(), proof))
    }

    /// Takes a place, unless the claim has one already or was withdrawn.
    fn joining(&self, matter: &Matter, claim: &Claim) -> Option<Txn> {
        // State that no process owns would wait for ever.
        let may_join =
            claim.if_busy == IfBusy::Queue && claim.order == Order::Fair && matter.arrival.lease != 0;
        if !may_join {
            return None;
        }
        let own = matter.own.first()?;
        let name = |standing| own.name(&matter.lock, standing);
        let mut compare: Vec<_> =
            Standing::ALL.into_iter().map(|standing| is_absent(&name(standing))).collect();
        compare.push(is_absent(&self.names.refused(&claim.id)));
        let text = value(&waiting(claim), claim.limit, claim.round, 0);
        let success = vec![put(name(Standing::Wait), text, matter.arrival.lease)];
        Some(Txn { compare, success, failure: Vec::new() })
    }

    /// Leaves a queue that turned out to be for claims with another limit.
    async fn take_back(&self, member: &Connection, matter: &Matter, claim: &Claim) -> Result<(), Fault> {
        let seen = self.look(member, matter).await?;
        let Some(odd) = seen.odd.iter().find(|odd| odd.row.id == claim.id) else { return Ok(()) };
        let success = vec![delete(odd.name.clone())];
        member
            .txn(&Txn { compare: vec![is_of(&odd.name, odd.modified)], success, failure: Vec::new() })
            .await?;
        let then = self.look(member, matter).await?;
        self.settle(member, matter, then).await;
        Ok(())
    }
}

/// What a claim lives on.
#[derive(Debug, Default)]
struct Carrier {
    /// The lease of its key; 0 for none.
    lease: i64,
    /// See [`Arrival::mark`](crate::plan::Arrival::mark).
    mark: i64,
    /// Written along with it.
    greeting: Option<Op>,
}

/// A claim that waits from now on. Its seat is the number of the write.
pub(crate) fn waiting(claim: &Claim) -> Row {
    let (wanted, least) = match claim.units {
        Units::Exactly(n) => (n, n),
        Units::UpTo(n) => (n, 1),
    };
    let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    Row {
        id: claim.id,
        seat: 0,
        token: 0,
        held: 0,
        wanted,
        least,
        since: now(),
        lease: None,
        patience: millis(claim.patience),
        expires: None,
        lock_delay: millis(claim.lock_delay),
        inbox: claim.inbox,
        label: claim.label.clone(),
        value: claim.value.clone(),
        count: claim.count,
        given: Vec::new(),
        asked: false,
    }
}
