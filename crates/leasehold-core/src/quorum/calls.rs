//! The other verbs that change something, by majority.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::claiming::grants;
use super::members::Replies;
use super::votes::Votes;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Wakes;

impl Inner {
    pub(super) async fn open(&self, inbox: Inbox, wakes: Wakes) -> Result<()> {
        let opening = self.members.iter().map(|member| member.open(inbox, &wakes, self.member_timeout));
        let mut votes = Votes::none(self.members.len());
        for (n, opened) in futures_util::future::join_all(opening).await.into_iter().enumerate() {
            votes.note(n, opened);
        }
        if votes.count(|()| true) >= self.majority() { Ok(()) } else { Err(votes.error(self)) }
    }

    /// How long a request to a member can be on its way after its caller gave up.
    fn on_the_way(&self) -> Duration {
        self.member_timeout * 4
    }

    /// Releases a claim on a member. One that may still come is refused for as long as that can take.
    pub(super) fn end_on(&self, replies: &Replies<Released>, n: usize, claim: &Claim, may_come: bool) {
        self.release_on(replies, n, claim, may_come.then(|| self.on_the_way()));
    }

    fn release_on(&self, replies: &Replies<Released>, n: usize, claim: &Claim, refuse_for: Option<Duration>) {
        let (claim, member) = (claim.clone(), self.members[n].clone());
        let store = member.store.clone();
        let call = Box::pin(async move { store.release(&claim, refuse_for).await });
        replies.run(n, member.call(self.member_timeout, call));
    }

    pub(super) async fn release(&self, claim: &Claim, refuse_for: Option<Duration>) -> Result<Released> {
        let leaving = self.standings.forget(&claim.id);
        let mut replies = Replies::new();
        for n in 0..self.members.len() {
            if leaving.is_in_flight(n) && refuse_for.is_none() {
                // Whoever asks it for the grant gives that back when it comes.
                replies.say(n, Ok(Released::Gone));
                continue;
            }
            let may_come = leaving.is_unknown(n).then(|| self.on_the_way());
            self.release_on(&replies, n, claim, refuse_for.max(may_come));
        }
        let held = |found: &Released| *found == Released::Held;
        let mut votes = Votes::none(self.members.len());
        votes.listen(&mut replies, |votes| votes.settles(self.majority(), held)).await;
        match (votes.count(held), votes.failed()) {
            (held, failed) if held > 0 && held + failed >= self.majority() => Ok(Released::Held),
            (_, failed) if failed > self.members.len() - self.majority() => Err(votes.error(self)),
            _ => Ok(Released::Gone),
        }
    }

    pub(super) async fn amend(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        if !matches!(change, Change::Value { .. } | Change::Tail(_) | Change::Ask(_)) {
            let message =
                "a quorum can change values, leave tails and ask holders, nothing else: use one store";
            return Err(Error::new(ErrorKind::Unsupported, message).on(&claim.key).at("quorum"));
        }
        let standing = self.standings.get(&claim.id);
        let asked = standing.as_ref().map_or_else(|| claim.clone(), |standing| self.asked(claim, standing));
        let token = standing.map_or(0, |standing| standing.token);
        if let Change::Value { to, .. } = change {
            self.standings.set_value(&claim.id, to);
        }
        let shared = Arc::new((asked, change.clone()));
        let mut replies = self.ask(|store| {
            let shared = shared.clone();
            Box::pin(async move { store.amend(&shared.0, &shared.1).await })
        });
        let is_done = |said: &Answer| *said == Answer::Done || grants(said, token);
        let mut votes = Votes::none(self.members.len());
        votes.listen(&mut replies, |votes| votes.settles(self.majority(), is_done)).await;
        if votes.count(is_done) < self.majority() {
            let unknown = votes.count(is_done) + votes.failed() >= self.majority();
            return if unknown { Err(votes.error(self)) } else { Ok(Answer::Gone) };
        }
        if matches!(change, Change::Tail(_)) {
            // It has no owner any more.
            self.standings.forget(&claim.id);
        }
        let done = votes.answers().find(|(_, said)| is_done(said));
        Ok(done.map_or(Answer::Done, |(_, said)| said.clone()))
    }
}
