//! Claiming on all members at once, and keeping nothing when too few grant.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::ledger::{Standing, is_unknown};
use super::members::Replies;
use super::votes::Votes;
use crate::claim::{Answer, Claim, Grant, IfBusy, QuorumTerms, Released};
use crate::error::Result;
use crate::mutant::Mutant;

/// How long the last members are waited for when the others have decided against a claim.
const GRACE: Duration = Duration::from_millis(20);

/// Whether a member granted with this token.
pub(super) fn grants(answer: &Answer, token: u64) -> bool {
    matches!(answer, Answer::Granted(grant) if grant.token == token)
}

/// Whether a member granted, but with another number: that is not what the others granted.
fn is_stray(answer: &Answer, token: u64) -> bool {
    matches!(answer, Answer::Granted(grant) if grant.token != token)
}

/// What several members granted: as long as the shortest of them.
pub(super) fn merge<'a>(answers: impl Iterator<Item = &'a Answer>, token: u64) -> Grant {
    let grants = answers.filter_map(|answer| match answer {
        Answer::Granted(grant) if grant.token == token => Some(grant),
        _ => None,
    });
    let nothing = Grant { seat: token, token, units: 0, lease: None, asked: false };
    grants.fold(nothing, |all, one| Grant {
        units: one.units,
        lease: all.lease.map_or(one.lease, |lease| one.lease.map(|other| lease.min(other))),
        asked: all.asked || one.asked,
        ..all
    })
}

impl Inner {
    /// What the members are asked: never to queue, and to grant with the number that all agree on.
    pub(super) fn asked(&self, claim: &Claim, standing: &Standing) -> Claim {
        Claim {
            if_busy: IfBusy::Leave,
            token_above: standing.token - 1,
            quorum: Some(QuorumTerms { keep: self.max_lease, min_age: self.min_age, again: false }),
            value: standing.value.clone().unwrap_or_else(|| claim.value.clone()),
            ..claim.clone()
        }
    }

    pub(super) async fn claim(self: &Arc<Self>, claim: &Claim) -> Result<Answer> {
        let standing = self.standings.propose(claim.id, claim.token_above);
        let (token, asked) = (standing.token, self.asked(claim, &standing));
        let mut replies = Replies::new();
        for n in 0..self.members.len() {
            self.ask_to_grant(&replies, n, &asked);
        }
        let mut votes = Votes::none(self.members.len());
        let granted = |said: &Answer| grants(said, token);
        votes.listen(&mut replies, |votes| votes.settles(self.majority(), granted)).await;
        if votes.count(granted) >= self.majority() {
            let grant = merge(votes.answers().map(|(_, said)| said), token);
            self.hear_the_rest(replies, votes, asked, token);
            return Ok(Answer::Granted(grant));
        }

        // The others are about to answer, and what is answered can be given back without leaving a mark.
        let _ = tokio::time::timeout(GRACE, votes.listen(&mut replies, |_| false)).await;
        if !Mutant::QuorumKeepsAMinority.lives() {
            self.give_back(&asked, &votes).await;
        }
        let most = self.members.len() - self.majority();
        match votes.count(|said| *said == Answer::Gone) {
            _ if votes.failed() > most => Err(votes.error(self)),
            // It was withdrawn before it came.
            gone if gone > most => Ok(Answer::Gone),
            _ => Ok(Answer::Busy),
        }
    }

    /// Asks a member to grant the claim. A grant that comes after the claim was released is given back here.
    pub(super) fn ask_to_grant(self: &Arc<Self>, replies: &Replies<Answer>, n: usize, asked: &Claim) {
        if !self.standings.asks(&asked.id, n) {
            return replies.say(n, Ok(Answer::Gone));
        }
        let (quorum, asked) = (self.clone(), asked.clone());
        replies.run(n, async move {
            let (member, claiming) = (quorum.members[n].clone(), asked.clone());
            let store = member.store.clone();
            let call = Box::pin(async move { store.claim(&claiming).await });
            let said = member.call(quorum.member_timeout, call).await;
            let is_wanted = quorum.standings.heard(&asked.id, n, &said);
            if !is_wanted && (is_unknown(&said) || matches!(said, Ok(Answer::Granted(_)))) {
                quorum.end_on(&Replies::new(), n, &asked, is_unknown(&said));
            }
            said
        });
    }

    /// Too few granted, so nothing is kept. Members that granted are waited for, so that the next attempt does not
    /// meet this one.
    pub(super) async fn give_back(&self, asked: &Claim, votes: &Votes<Answer>) {
        let leaving = self.standings.forget(&asked.id);
        let mut released = Replies::new();
        let mut waited_for = Votes::none(self.members.len());
        for n in 0..self.members.len() {
            let is_held = votes.answers().any(|(m, said)| m == n && matches!(said, Answer::Granted(_)));
            let is_refused = votes.has_spoken(n) && !is_held && !leaving.is_unknown(n);
            match is_held {
                true => self.end_on(&released, n, asked, false),
                false => waited_for.note(n, Ok(Released::Gone)),
            }
            // Who has answered since we last listened may have granted.
            if !is_held && !is_refused && !leaving.is_in_flight(n) {
                self.end_on(&Replies::new(), n, asked, leaving.is_unknown(n));
            }
        }
        waited_for.listen(&mut released, |_| false).await;
    }

    /// A majority granted; the others are heard in the background.
    fn hear_the_rest(
        self: &Arc<Self>,
        mut replies: Replies<Answer>,
        mut votes: Votes<Answer>,
        asked: Claim,
        token: u64,
    ) {
        if votes.outstanding() == 0 && votes.count(|said| is_stray(said, token)) == 0 {
            return;
        }
        let quorum = self.clone();
        tokio::spawn(async move {
            votes.listen(&mut replies, |_| false).await;
            for (n, said) in votes.answers() {
                quorum.drop_stray(n, said, &asked, token);
            }
        });
    }

    /// Gives back what a member granted with another number.
    pub(super) fn drop_stray(&self, n: usize, said: &Answer, asked: &Claim, token: u64) {
        if is_stray(said, token) {
            self.end_on(&Replies::new(), n, asked, false);
        }
    }
}
