//! Claiming on all members at once, and keeping nothing when too few grant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Inner;
use super::asked::Asked;
use super::ledger::is_unknown;
use super::members::Replies;
use super::votes::Votes;
use crate::claim::{Answer, Claim, Grant, Released};
use crate::error::Result;
use crate::mutant::Mutant;

/// How long the last members are waited for when the others have decided against a claim.
const GRACE: Duration = Duration::from_millis(20);

/// How often a claim is made again at once, because the members that granted it disagreed about its number.
const AT_ONCE: usize = 4;

/// Whether a member granted with this token.
pub(super) fn grants(answer: &Answer, token: u64) -> bool {
    matches!(answer, Answer::Granted(grant) if grant.token == token)
}

/// Whether a member granted, but with another number: that is not what the others granted.
fn is_stray(answer: &Answer, token: u64) -> bool {
    matches!(answer, Answer::Granted(grant) if grant.token != token)
}

/// What several members granted: for as long as a majority of all members did at least, in whatever order they answered.
pub(super) fn merge<'a>(answers: impl Iterator<Item = &'a Answer>, token: u64, majority: usize) -> Grant {
    let mut merged = Grant { seat: token, token, units: 0, lease: None, asked: false };
    let mut leases = Vec::new();
    for answer in answers {
        if let Answer::Granted(grant) = answer
            && grant.token == token
        {
            merged.units = merged.units.max(grant.units);
            merged.asked |= grant.asked;
            leases.push(grant.lease);
        }
    }
    leases.sort_unstable();
    merged.lease = leases.iter().rev().nth(majority.saturating_sub(1)).copied().flatten();
    merged
}

/// How the members see an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opinion {
    /// A majority granted with this number. It need not be the one that was proposed: a member grants no number twice, so
    /// no other claim can have a majority with it.
    Agreed(u64),
    /// A majority granted, each with a number of its own, the largest of which is this.
    Disagreed(u64),
    /// There was no majority for it.
    Refused,
    /// It depends on the members that have not answered.
    Open,
}

impl Opinion {
    fn of(votes: &Votes<Answer>, proposed: u64, majority: usize) -> Self {
        let mut counts = BTreeMap::new();
        for (_, said) in votes.answers() {
            if let Answer::Granted(grant) = said {
                *counts.entry(grant.token).or_insert(0) += 1;
            }
        }
        if Mutant::QuorumTakesOnlyItsOwnNumber.lives() {
            counts.retain(|token, _| *token == proposed);
        }
        let granted: usize = counts.values().sum();
        let best = counts.iter().max_by_key(|(_, count)| **count).map_or((0, 0), |(token, n)| (*token, *n));
        match counts.last_key_value() {
            _ if best.1 >= majority => Self::Agreed(best.0),
            _ if best.1 + votes.outstanding() >= majority => Self::Open,
            Some((largest, _)) if granted >= majority => Self::Disagreed(*largest),
            _ => Self::Refused,
        }
    }
}

impl Inner {
    pub(super) async fn claim(self: &Arc<Self>, claim: &Claim) -> Result<Answer> {
        let until = Instant::now() + self.member_timeout;
        for _ in 0..AT_ONCE {
            if let Some(answer) = self.attempt(claim).await? {
                return Ok(answer);
            }
            if Instant::now() >= until {
                break;
            }
            // The lock is free, and the next proposal is above all these numbers. A pause would give clients with faster
            // clocks the time to raise them again.
        }
        Ok(Answer::Busy)
    }

    /// One attempt, with ids and a number of its own. `None` when the members that granted it disagreed about the number.
    async fn attempt(self: &Arc<Self>, claim: &Claim) -> Result<Option<Answer>> {
        let standing = self.standings.propose(claim.id, claim.token_above);
        let Some(standing) = standing.map_err(|error| error.on(&claim.key))? else {
            return Ok(Some(Answer::Gone));
        };
        let (proposed, asked) = (standing.token, self.asked(claim, &standing));
        let mut replies = Replies::new();
        for n in 0..self.members.len() {
            self.ask_to_grant(&replies, n, &asked);
        }
        let mut votes = Votes::none(self.members.len());
        let opinion = |votes: &Votes<Answer>| Opinion::of(votes, proposed, self.majority());
        votes.listen(&mut replies, |votes| opinion(votes) != Opinion::Open).await;
        let opinion = opinion(&votes);
        let is_in_bounds = match opinion {
            Opinion::Agreed(token) => match self.standings.agree(&claim.id, token) {
                Ok(true) => {
                    let grant = merge(votes.answers().map(|(_, said)| said), token, self.majority());
                    self.hear_the_rest(replies, votes, asked, token);
                    return Ok(Some(Answer::Granted(grant)));
                }
                Ok(false) => return Ok(Some(Answer::Gone)),
                Err(error) => Err(error),
            },
            Opinion::Disagreed(largest) => self.standings.check(largest),
            Opinion::Refused | Opinion::Open => Ok(()),
        };

        // The others are about to answer, and what is answered can be given back without leaving a mark.
        let _ = tokio::time::timeout(GRACE, votes.listen(&mut replies, |_| false)).await;
        if !Mutant::QuorumKeepsAMinority.lives() {
            self.give_back(&asked, &votes).await;
        }
        is_in_bounds.map_err(|error| error.on(&claim.key))?;
        let most = self.members.len() - self.majority();
        match votes.count(|said| *said == Answer::Gone) {
            _ if matches!(opinion, Opinion::Disagreed(_)) => Ok(None),
            _ if votes.failed() > most => Err(votes.error(self)),
            // It was withdrawn before it came.
            gone if gone > most => Ok(Some(Answer::Gone)),
            _ => Ok(Some(Answer::Busy)),
        }
    }

    /// Asks a member to grant the claim. A grant that comes when the attempt is over is given back here.
    pub(super) fn ask_to_grant(self: &Arc<Self>, replies: &Replies<Answer>, n: usize, asked: &Asked) {
        let (id, claiming) = (asked.claim.id, asked.on(n));
        if !self.standings.asks(&id, n, &claiming.id) {
            return replies.say(n, Ok(Answer::Gone));
        }
        let quorum = self.clone();
        replies.run(n, async move {
            let (member, sent) = (quorum.members[n].clone(), claiming.clone());
            let store = member.store.clone();
            let call = Box::pin(async move { store.claim(&sent).await });
            let said = member.call(quorum.member_timeout, call).await;
            let is_wanted = quorum.standings.heard(&id, n, &claiming.id, &said);
            if !is_wanted && (is_unknown(&said) || matches!(said, Ok(Answer::Granted(_)))) {
                quorum.end_on(&Replies::new(), n, claiming, is_unknown(&said));
            }
            said
        });
    }

    /// Too few granted, so nothing is kept. Members that granted are waited for, so that the next attempt does not
    /// meet this one.
    pub(super) async fn give_back(self: &Arc<Self>, asked: &Asked, votes: &Votes<Answer>) {
        // Whoever else ended the attempt releases it on all members.
        let Some(leaving) = self.standings.forget(&asked.claim.id, &asked.ids) else { return };
        let mut released = Replies::new();
        let mut waited_for = Votes::none(self.members.len());
        for n in 0..self.members.len() {
            let is_held = votes.answers().any(|(m, said)| m == n && matches!(said, Answer::Granted(_)));
            // An earlier copy of the same claim may not have been answered.
            let may_come = leaving.is_unknown(n);
            let is_refused = votes.has_spoken(n) && !is_held && !may_come;
            match is_held {
                true => self.end_on(&released, n, asked.on(n), may_come),
                false => waited_for.note(n, Ok(Released::Gone)),
            }
            // Who has answered since we last listened may have granted.
            if !is_held && !is_refused && (may_come || !leaving.is_in_flight(n)) {
                self.end_on(&Replies::new(), n, asked.on(n), may_come);
            }
        }
        waited_for.listen(&mut released, |_| false).await;
    }

    /// A majority granted; the others are heard in the background.
    fn hear_the_rest(
        self: &Arc<Self>,
        mut replies: Replies<Answer>,
        mut votes: Votes<Answer>,
        asked: Asked,
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

    /// Gives back what a member granted with another number. The claim goes on, so that member gets another id for it.
    pub(super) fn drop_stray(self: &Arc<Self>, n: usize, said: &Answer, asked: &Asked, token: u64) {
        if is_stray(said, token)
            && let Ok(Some(may_come)) = self.standings.replace_id(&asked.claim.id, n, &asked.ids[n])
        {
            self.end_on(&Replies::new(), n, asked.on(n), may_come);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_does_not_depend_on_the_order_of_members() {
        let answer = |lease: Option<u64>| {
            let lease = lease.map(Duration::from_secs);
            Answer::Granted(Grant { seat: 7, token: 7, units: 1, lease, asked: false })
        };
        let merged = |leases: [Option<u64>; 3]| {
            let answers = leases.map(answer);
            merge(answers.iter(), 7, 2).lease.map(|lease| lease.as_secs())
        };
        for order in [[None, Some(5), Some(9)], [Some(9), None, Some(5)], [Some(5), Some(9), None]] {
            assert_eq!(merged(order), Some(5), "{order:?}: two of three are extended to 5 s at least");
        }
        assert_eq!(merged([None, Some(5), None]), None, "one of three is no majority");
    }
}
