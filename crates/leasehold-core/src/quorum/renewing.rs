//! Renewing by majority, and giving the claim back to members that lost it.

use std::sync::Arc;

use super::Inner;
use super::asked::Asked;
use super::claiming::{grants, merge};
use super::members::Replies;
use super::votes::Votes;
use crate::claim::{Answer, Claim, Extend, QuorumTerms};
use crate::error::Result;

/// The claims of one call that this quorum knows, and the token of each.
#[derive(Clone, Debug)]
struct Round {
    claims: Arc<[Asked]>,
    tokens: Arc<[u64]>,
}

impl Round {
    /// How many members hold claim `i`.
    fn holding(&self, votes: &Votes<Vec<Answer>>, i: usize) -> usize {
        votes.count(|said| said.get(i).is_some_and(|said| grants(said, self.tokens[i])))
    }
}

impl Inner {
    pub(super) async fn renew(self: &Arc<Self>, claims: &[Claim]) -> Result<Vec<Answer>> {
        let standings: Vec<_> = claims.iter().map(|claim| self.standings.get(&claim.id)).collect();
        let known = || claims.iter().zip(&standings).filter_map(|(claim, s)| Some((claim, s.as_ref()?)));
        let round = Round {
            claims: known().map(|(claim, standing)| self.asked(claim, standing)).collect(),
            tokens: known().map(|(_, standing)| standing.token).collect(),
        };
        let mut renewed = self.renew_round(round).await?.into_iter();
        let answers = standings.iter().map(|standing| standing.as_ref().and_then(|_| renewed.next()));
        Ok(answers.map(|answer| answer.unwrap_or(Answer::Gone)).collect())
    }

    async fn renew_round(self: &Arc<Self>, round: Round) -> Result<Vec<Answer>> {
        if round.claims.is_empty() {
            return Ok(Vec::new());
        }
        let majority = self.majority();
        let mut replies = self.ask(|n, store| {
            let claims: Vec<Claim> = round.claims.iter().map(|asked| asked.on(n)).collect();
            Box::pin(async move { store.renew(&claims).await })
        });
        let mut votes = Votes::none(self.members.len());
        let all = 0..round.tokens.len();
        let is_settled = |votes: &Votes<Vec<Answer>>, i: usize| {
            let holding = round.holding(votes, i);
            holding >= majority || holding + votes.outstanding() < majority
        };
        votes.listen(&mut replies, |votes| all.clone().all(|i| is_settled(votes, i))).await;
        if votes.failed() > self.members.len() - majority {
            return Err(votes.error(self));
        }

        let mut answers = Vec::with_capacity(round.tokens.len());
        for i in all {
            let holding = round.holding(&votes, i);
            let said = votes.answers().filter_map(|(_, said)| said.get(i));
            let mut grant = merge(said, round.tokens[i], majority);
            answers.push(match holding {
                _ if holding >= majority => Answer::Granted(grant),
                // Members that failed may have renewed it: then it is neither extended nor lost.
                _ if holding + votes.failed() >= majority => {
                    grant.lease = None;
                    Answer::Granted(grant)
                }
                _ => Answer::Gone,
            });
        }
        self.mend_later(replies, votes, round);
        Ok(answers)
    }

    /// When all have answered, claims again what a majority holds on the members that lost it. Otherwise members that
    /// are restarted one by one, hours apart, would in the end have forgotten a lock that is still held.
    fn mend_later(
        self: &Arc<Self>,
        mut replies: Replies<Vec<Answer>>,
        mut votes: Votes<Vec<Answer>>,
        round: Round,
    ) {
        if votes.outstanding() == 0 && votes.count(|said| said.contains(&Answer::Gone)) == 0 {
            return;
        }
        let quorum = self.clone();
        tokio::spawn(async move {
            votes.listen(&mut replies, |_| false).await;
            for (n, said) in votes.answers() {
                for (i, _) in said.iter().enumerate().filter(|(_, said)| **said == Answer::Gone) {
                    // A poll extends nothing, and a member that claims again would start a lease.
                    let extends = round.claims[i].claim.extend == Extend::Lease;
                    if extends && round.holding(&votes, i) >= quorum.majority() {
                        quorum.claim_again(n, &round.claims[i], round.tokens[i]).await;
                    }
                }
            }
        });
    }

    async fn claim_again(self: &Arc<Self>, n: usize, asked: &Asked, token: u64) {
        // It may have got another id on this member since.
        let standing = self.standings.get(&asked.claim.id).filter(|standing| standing.token == token);
        let Some(standing) = standing else { return };
        let quorum = asked.claim.quorum.map(|terms| QuorumTerms { again: true, ..terms });
        let claim = Claim { quorum, ..asked.claim.clone() };
        let asked = Asked { claim, ids: standing.ids };
        let mut replies = Replies::new();
        self.ask_to_grant(&replies, n, &asked);
        let Some((_, said)) = replies.next().await else { return };
        tracing::debug!(member = self.members[n].name, key = %asked.claim.key, ?said, "claimed again");
        if let Ok(said) = said {
            self.drop_stray(n, &said, &asked, token);
        }
    }
}
