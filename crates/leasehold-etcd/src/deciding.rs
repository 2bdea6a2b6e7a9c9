//! One decision of the rule, from what is stored to what is written: read, decide, write on condition, again if the
//! condition does not hold any more.
//!
//! Every write also reads what is stored after it, and its writer looks whether that leaves somebody to be granted.
//! So whoever writes last sees everything, and nobody is forgotten between two that write at once.

use leasehold_core::rule::{self, Outcome};
use leasehold_core::{Answer, Book, Claim, Error, ErrorKind, OpenBook, Result as CoreResult};

use crate::format::first_number;
use crate::names::{Label, Lock, Standing};
use crate::plan::{Arrival, Plan};
use crate::session::Name;
use crate::state::{FRONT, Own, State, questions};
use crate::store::{Shared, now};
use crate::wire::message::{Committed, Header, Op, Txn};
use crate::wire::{Connection, Fault, header};
use crate::words::{all, is_absent, put};

/// How often others may get in between before we leave the rest to them: each time somebody else got ahead.
const TRIES: usize = 200;

/// What a decision is about.
#[derive(Clone, Debug)]
pub(crate) struct Matter {
    pub(crate) lock: Lock,
    /// The claims that must be known, wherever they stand.
    pub(crate) own: Vec<Own>,
    pub(crate) arrival: Arrival,
    /// How many of those who wait are looked at.
    pub(crate) front: u64,
    /// Written along with it, whatever is decided.
    pub(crate) extra: Vec<Op>,
}

/// A decision that came true.
#[derive(Debug)]
pub(crate) struct Decided<T> {
    pub(crate) answer: T,
    /// The first number that was drawn, as it was guessed, and as it became.
    pub(crate) numbers: (u64, u64),
}

impl<T> Decided<T> {
    pub(crate) fn quiet(answer: T) -> Self {
        Self { answer, numbers: (u64::MAX, u64::MAX) }
    }
}

impl Decided<Answer> {
    /// The answer with the numbers that the write gave.
    pub(crate) fn numbered(mut self) -> Answer {
        let (guessed, real) = self.numbers;
        let number = |number: &mut u64| {
            if *number >= guessed {
                *number = *number - guessed + real;
            }
        };
        match &mut self.answer {
            Answer::Granted(grant) => {
                number(&mut grant.seat);
                number(&mut grant.token);
            }
            Answer::Waiting(place) => number(&mut place.seat),
            _ => {}
        }
        self.answer
    }
}

impl Matter {
    pub(crate) fn about(lock: Lock, own: Vec<Own>) -> Self {
        Self { lock, own, arrival: Arrival::default(), front: FRONT, extra: Vec::new() }
    }

    /// The same, for a claim that comes with this lease.
    pub(crate) fn arriving(lock: Lock, claim: &Claim, own: Own, lease: i64) -> Self {
        // What no session carries, or no longer, is called by its id, which only the rule knows then.
        let label = claim.lease.and(own.label.clone());
        let arrival = Arrival { lease, label, limit: claim.limit, round: claim.round, mark: 0 };
        Self { arrival, ..Self::about(lock, vec![own]) }
    }
}

impl Shared {
    /// A claim, and what it is called.
    pub(crate) fn own(&self, claim: &Claim) -> Own {
        let label = match Name::of(claim) {
            Some(_) => self.labels.of(&claim.id),
            None => Some(Label::of_id(&claim.id)),
        };
        Own { id: claim.id, label }
    }

    /// What to ask to know what matters.
    pub(crate) fn questions(&self, matter: &Matter) -> Vec<Op> {
        questions(&self.names, &matter.lock, &matter.own, matter.front)
    }

    /// What is stored about a lock now.
    pub(crate) async fn look(&self, member: &Connection, matter: &Matter) -> Result<State, Fault> {
        let success = self.questions(matter);
        let seen = member.txn(&Txn { success, ..Txn::default() }).await?;
        matter.state(&seen, 0)
    }

    /// Lets the rule decide, beginning with what was `seen`, and writes what it decided.
    pub(crate) async fn decide<T>(
        &self,
        member: &Connection,
        matter: &Matter,
        mut seen: State,
        rule: impl Fn(&mut OpenBook<'_>, u64) -> CoreResult<Outcome<T>> + Send + Sync,
    ) -> Result<Decided<T>, Fault> {
        let everybody = Matter { front: 0, ..matter.clone() };
        let mut matter = matter;
        for _ in 0..TRIES {
            if seen.lowered().is_some() && seen.unseen() > 0 {
                // Who asks for more than a lowered limit is passed over, so that anybody may be next.
                matter = &everybody;
                seen = self.look(member, matter).await?;
            }
            let (outcome, mut plan) = self.plan(matter, &seen, &rule)?;
            self.leave_marks(member, matter, &mut plan).await?;
            if plan.overreaches {
                // Those who were not looked at come first.
                self.settle(member, matter, seen).await;
                seen = self.look(member, matter).await?;
                continue;
            }
            if plan.ops.is_empty() && matter.extra.is_empty() {
                self.labels.saw(&matter.lock.key, seen);
                return Ok(Decided::quiet(outcome.answer));
            }
            let (guessed, leaves_marks) = (seen.first_number(), !plan.marks.is_empty());
            let written = match self.write(member, matter, &seen, plan, &matter.extra).await {
                Err(Fault::LeaseGone) if leaves_marks && matter.arrival.lease == 0 => {
                    self.marks.forget();
                    continue;
                }
                written => written?,
            };
            seen = matter.state(&written, usize::from(written.succeeded))?;
            if written.succeeded {
                let numbers = (guessed, first_number(header(written.header)?.revision));
                self.settle(member, matter, seen).await;
                return Ok(Decided { answer: outcome.answer, numbers });
            }
        }
        let message = "others were faster every time: try again";
        Err(Fault::Final(Error::new(ErrorKind::Indeterminate, message).on(&matter.lock.key)))
    }

    /// Also writes the marks that refuse late copies of requests whose effect has ended.
    async fn leave_marks(&self, member: &Connection, matter: &Matter, plan: &mut Plan) -> Result<(), Fault> {
        if plan.marks.is_empty() {
            return Ok(());
        }
        let lease = self.marks.lease(member, rule::LATE).await?;
        for id in &plan.marks {
            let mark = self.names.refused(id);
            if matter.own.iter().any(|own| own.id == *id) {
                // A copy of the same request may have been made since we looked.
                plan.compare.push(is_absent(&mark));
            }
            plan.ops.push(put(mark, Vec::new(), lease));
        }
        Ok(())
    }

    /// Grants what can be granted after a write. What fails here is found by whoever looks next.
    pub(crate) async fn settle(&self, member: &Connection, matter: &Matter, mut seen: State) {
        let others = Matter::about(matter.lock.clone(), Vec::new());
        let everybody = Matter { front: 0, ..others.clone() };
        let mut matter = matter;
        for _ in 0..TRIES {
            if seen.lowered().is_some() && seen.unseen() > 0 {
                matter = &everybody;
                match self.look(member, matter).await {
                    Ok(then) => seen = then,
                    Err(fault) => return tracing::debug!(?fault, key = %matter.lock.key, "not settled"),
                }
            }
            let Ok((_, plan)) =
                self.plan(matter, &seen, &|ledger: &mut OpenBook<'_>, now| rule::pass(ledger, now))
            else {
                return;
            };
            if plan.overreaches {
                // Without those who must be known there is nobody beyond the ones who were not looked at.
                matter = &others;
                match self.look(member, matter).await {
                    Ok(then) => seen = then,
                    Err(fault) => return tracing::debug!(?fault, key = %matter.lock.key, "not settled"),
                }
                continue;
            }
            if plan.ops.is_empty() {
                self.labels.saw(&matter.lock.key, seen);
                return;
            }
            let written = match self.write(member, matter, &seen, plan, &[]).await {
                Ok(written) => written,
                Err(fault) => {
                    tracing::debug!(?fault, key = %matter.lock.key, "not settled");
                    return;
                }
            };
            let Ok(then) = matter.state(&written, usize::from(written.succeeded)) else { return };
            seen = then;
        }
    }

    /// What the rule makes of what was seen, and what must be written for that.
    pub(crate) fn plan<T>(
        &self,
        matter: &Matter,
        seen: &State,
        rule: &impl Fn(&mut OpenBook<'_>, u64) -> CoreResult<Outcome<T>>,
    ) -> Result<(Outcome<T>, Plan), Fault> {
        let (said, book, marks): (CoreResult<Outcome<T>>, Book, _) =
            seen.play_and_mark(&matter.lock, |ledger| rule(ledger, now()));
        let outcome = said.map_err(Fault::Final)?;
        let plan = Plan::new(&self.names, &matter.lock, seen, &book, &outcome, &matter.arrival);
        Ok((outcome, Plan { marks, ..plan }))
    }

    /// Writes a plan if what it depends on is still so; reads what is stored then, either way.
    async fn write(
        &self,
        member: &Connection,
        matter: &Matter,
        seen: &State,
        plan: Plan,
        extra: &[Op],
    ) -> Result<Committed, Fault> {
        let questions = self.questions(matter);
        let Plan { mut compare, mut ops, .. } = plan;
        if !extra.is_empty() {
            // Also that a claim is not there is a reason, and it may arrive between our look and our write.
            let unseen = matter.own.iter().filter(|own| !seen.has(&own.id));
            let names = unseen.flat_map(|own| Standing::ALL.map(|standing| own.name(&matter.lock, standing)));
            compare.extend(names.map(|name| is_absent(&name)));
            ops.extend_from_slice(extra);
        }
        let success = std::iter::once(all(ops)).chain(questions.iter().cloned()).collect();
        member.txn(&Txn { compare, success, failure: questions }).await
    }
}

impl Matter {
    /// What a transaction read, from its reply number `skip` on.
    pub(crate) fn state(&self, seen: &Committed, skip: usize) -> Result<State, Fault> {
        let Header { revision, .. } = header(seen.header)?;
        let replies = seen.responses.get(skip..).unwrap_or_default();
        State::answered(&self.lock, &self.own, revision, replies).map_err(Fault::Final)
    }
}
