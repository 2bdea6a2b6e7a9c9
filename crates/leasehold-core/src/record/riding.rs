//! The adaptor's calls, and what they do beyond the rule where sessions carry the claims.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clerk::{Clerk, Made};
use super::format::count_from;
use super::{Records, Sessions};
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::rule;

/// The answer with its seat and token as others see them.
fn absolute(mut answer: Answer, origin: u64) -> Answer {
    match &mut answer {
        Answer::Granted(grant) => {
            count_from(origin, &mut grant.seat);
            count_from(origin, &mut grant.token);
        }
        Answer::Waiting(place) => count_from(origin, &mut place.seat),
        _ => {}
    }
    answer
}

/// How often a claim opens another session because its own was over.
const SESSIONS: u32 = 3;

impl<R: Records> Clerk<R> {
    pub(super) async fn claim(&self, claim: &Claim) -> Result<Answer> {
        match (self.records.sessions(), claim.lease) {
            // A latch outlives the session of whoever set it.
            (Some(sessions), Some(lease)) if claim.count.is_none() => {
                self.claim_on_session(sessions, claim, lease).await
            }
            _ => {
                let claimed = self.plainly_from(&claim.key, |book, now| rule::claim(book, claim, now)).await;
                claimed.map(|(answer, origin)| absolute(answer, origin))
            }
        }
    }

    pub(super) async fn renew(&self, claims: &[Claim]) -> Result<Vec<Answer>> {
        match self.records.sessions() {
            Some(sessions) => self.renew_on_sessions(sessions, claims).await,
            None => self.renew_all(&claims.iter().collect::<Vec<_>>(), None).await,
        }
    }

    async fn claim_on_session(
        &self,
        sessions: &dyn Sessions,
        claim: &Claim,
        lease: Duration,
    ) -> Result<Answer> {
        if self.roll.is_refused(&claim.id) {
            return Ok(Answer::Gone);
        }
        for _ in 0..SESSIONS {
            let joined = sessions.join(claim.inbox, lease).await?;
            let below = claim.on_session();
            // Before it is sent: from now on it may be there, whatever happens to this call.
            let may_arrive_late = self.roll.enter(&joined.session, claim);
            let rider = Some((&joined.session, &claim.id));
            let made = self.operate(&claim.key, rider, |book, now| rule::claim(book, &below, now)).await;
            match made {
                Ok(Made::Done { answer, origin }) => {
                    let is_there = matches!(answer, Answer::Granted(_) | Answer::Waiting(_));
                    // An earlier copy can still be served. The withdrawal must find the session, to fence that copy off.
                    if !is_there && !may_arrive_late {
                        self.leave(claim);
                    }
                    return Ok(absolute(answer, origin).on_session(Some(joined.left)));
                }
                Ok(Made::Over) => self.roll.drop_session(&joined.session),
                Err(error) => {
                    if error.kind() != ErrorKind::Indeterminate && !may_arrive_late {
                        self.leave(claim);
                    }
                    return Err(error);
                }
            }
        }
        let message =
            format!("{SESSIONS} sessions ended as soon as they were opened: ask the store's operator");
        Err(Error::new(ErrorKind::Unavailable, message).on(&claim.key).at(self.info().name))
    }

    /// One heartbeat, and one look at what the session carries.
    async fn renew_on_sessions(&self, sessions: &dyn Sessions, claims: &[Claim]) -> Result<Vec<Answer>> {
        let mut answers = vec![Answer::Gone; claims.len()];
        let mut places: BTreeMap<(Inbox, Option<Duration>), Vec<usize>> = BTreeMap::new();
        for (place, claim) in claims.iter().enumerate() {
            places.entry((claim.inbox, claim.lease)).or_default().push(place);
        }
        for places in places.values() {
            let some: Vec<&Claim> = places.iter().map(|place| &claims[*place]).collect();
            for (place, answer) in places.iter().zip(self.renew_session(sessions, &some).await?) {
                answers[*place] = answer;
            }
        }
        Ok(answers)
    }

    async fn renew_session(&self, sessions: &dyn Sessions, claims: &[&Claim]) -> Result<Vec<Answer>> {
        if claims.iter().all(|claim| claim.lease.is_none()) {
            return self.renew_all(claims, None).await;
        }
        let gone = || vec![Answer::Gone; claims.len()];
        let Some(session) = claims.iter().find_map(|claim| self.roll.session(claim)) else {
            return Ok(gone());
        };
        let Some(left) = sessions.renew(&session).await? else {
            self.roll.drop_session(&session);
            return Ok(gone());
        };
        for ghost in self.roll.ghosts(&session, claims) {
            self.release(&ghost, None).await?;
        }
        let below: Vec<Claim> = claims.iter().map(|claim| claim.on_session()).collect();
        let answers = self.renew_all(&below.iter().collect::<Vec<_>>(), Some(&session)).await?;
        let mut said = Vec::new();
        for (claim, answer) in claims.iter().zip(answers) {
            // What lives on another session was not extended by this one.
            let is_on_it = self.roll.session(claim).as_ref() == Some(&session);
            if answer == Answer::Gone {
                self.leave(claim);
            }
            said.push(answer.on_session(is_on_it.then_some(left)));
        }
        Ok(said)
    }

    pub(super) async fn amend(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        if matches!(change, Change::Limit(_)) && self.roll.is_refused(&claim.id) {
            // Withdrawn, and that of a claim on a session is remembered here and not in the record.
            return Ok(Answer::Done);
        }
        let session = self.roll.session(claim);
        let rider = session.as_ref().map(|session| (session, &claim.id));
        let below = if session.is_some() { claim.on_session() } else { claim.clone() };
        let made =
            self.operate(&claim.key, rider, |book, now| rule::amend(book, &below, change, now)).await?;
        let Made::Done { answer, .. } = made else {
            session.iter().for_each(|session| self.roll.drop_session(session));
            return Ok(Answer::Gone);
        };
        if answer == Answer::Done && matches!(change, Change::Tail(_)) {
            // Nobody's any more: it ends by itself.
            self.leave(claim);
        }
        Ok(answer)
    }

    pub(super) async fn release(&self, claim: &Claim, refuse_for: Option<Duration>) -> Result<Released> {
        let refuse_for = match (self.records.sessions(), refuse_for, claim.lease) {
            (Some(sessions), Some(length), Some(_)) if claim.count.is_none() => {
                self.roll.refuse(&claim.id, length);
                if let Some(session) = self.roll.session(claim) {
                    sessions.fence(&session).await?;
                }
                None
            }
            (_, refuse_for, _) => refuse_for,
        };
        let released =
            self.plainly(&claim.key, |book, now| rule::release(book, &claim.id, refuse_for, now)).await?;
        self.leave(claim);
        Ok(released)
    }

    /// A claim is not there any more.
    fn leave(&self, claim: &Claim) {
        if let (Some(session), Some(sessions)) = (self.roll.leave(claim), self.records.sessions()) {
            sessions.idle(&session);
        }
    }
}
