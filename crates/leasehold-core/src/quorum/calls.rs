//! The other verbs that change something, by majority.

use std::sync::Arc;

use super::Inner;
use super::asked::Asked;
use super::claiming::grants;
use super::votes::Votes;
use crate::claim::{Answer, Change, Claim, Inbox};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Wakes;

impl Inner {
    pub(super) async fn open(&self, inbox: Inbox, wakes: Wakes) -> Result<()> {
        let opening = self.members.iter().map(|member| member.open(inbox, &wakes, self.member_timeout));
        let mut votes = Votes::none(self.members.len());
        for (n, opened) in futures_util::future::join_all(opening).await.into_iter().enumerate() {
            votes.note(n, opened);
        }
        if votes.count(|()| true) >= self.majority() {
            return Ok(());
        }
        let error = votes.error(self);
        // Some of the members are there, so the others may come back.
        let may_recover = votes.has_contact() && error.is_retryable();
        Err(error.transient_if(may_recover))
    }

    pub(super) async fn amend(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        if !matches!(change, Change::Value { .. } | Change::Tail(_) | Change::Ask(_)) {
            let message =
                "a quorum can change values, leave tails and ask holders, nothing else: use one store";
            return Err(Error::new(ErrorKind::Unsupported, message).on(&claim.key).at("quorum"));
        }
        let standing = self.standings.get(&claim.id);
        let asked = match &standing {
            Some(standing) => self.asked(claim, standing),
            // To ask a holder for its lock one needs no claim.
            None => Asked { claim: claim.clone(), ids: vec![claim.id; self.members.len()] },
        };
        let token = standing.map_or(0, |standing| standing.token);
        if let Change::Value { to, .. } = change {
            self.standings.set_value(&claim.id, to);
        }
        let shared = Arc::new(change.clone());
        let mut replies = self.ask(|n, store| {
            let (asked, change) = (asked.on(n), shared.clone());
            Box::pin(async move { store.amend(&asked, &change).await })
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
            self.standings.forget(&claim.id, &asked.ids);
        }
        let done = votes.answers().find(|(_, said)| is_done(said));
        Ok(done.map_or(Answer::Done, |(_, said)| said.clone()))
    }
}
