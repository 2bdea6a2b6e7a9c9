//! Releasing on members, and repeating it where the release was lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Inner;
use super::asked::Asked;
use super::members::Replies;
use super::votes::Votes;
use crate::claim::{Claim, Released};
use crate::error::Result;
use crate::pause::back_off;

/// The pause before a release is repeated grows between these.
const REPEAT_FIRST: Duration = Duration::from_millis(20);
const REPEAT_LONGEST: Duration = Duration::from_secs(1);

impl Inner {
    /// How long a request to a member can be on its way after its caller gave up.
    fn on_the_way(&self) -> Duration {
        self.member_timeout * 4
    }

    /// Ends a claim on one member. If its grant may still come there, the member refuses it for as long as that can take.
    /// The first reply goes to `replies`; a release that failed is repeated in the background.
    pub(super) fn end_on(
        self: &Arc<Self>,
        replies: &Replies<Released>,
        n: usize,
        claim: Claim,
        may_come: bool,
    ) {
        let refuse_for = may_come.then(|| self.on_the_way());
        let quorum = self.clone();
        replies.run(n, async move {
            let found = quorum.release_on(n, &claim, refuse_for).await;
            if found.as_ref().is_err_and(|error| error.is_retryable()) {
                quorum.repeat_release(n, claim, refuse_for);
            }
            found
        });
    }

    async fn release_on(&self, n: usize, claim: &Claim, refuse_for: Option<Duration>) -> Result<Released> {
        let (member, claim) = (self.members[n].clone(), claim.clone());
        let store = member.store.clone();
        let call = Box::pin(async move { store.release(&claim, refuse_for).await });
        member.call(self.member_timeout, call).await
    }

    /// Otherwise the member stays blocked until the lease ends, and with it, after two such losses out of three members,
    /// the key. A member that has been away for long has many to repeat: what is too much is left to the leases.
    fn repeat_release(self: &Arc<Self>, n: usize, claim: Claim, refuse_for: Option<Duration>) {
        let Ok(permit) = self.members[n].repeats.clone().try_acquire_owned() else { return };
        let until = Instant::now() + claim.lease.unwrap_or(self.max_lease);
        let quorum = self.clone();
        tokio::spawn(async move {
            let _permit = permit;
            for failed in 0.. {
                let pause = back_off(failed, REPEAT_FIRST, REPEAT_LONGEST);
                if Instant::now() + pause >= until {
                    return;
                }
                tokio::time::sleep(pause).await;
                match quorum.release_on(n, &claim, refuse_for).await {
                    Err(error) if error.is_retryable() => {}
                    _ => return,
                }
            }
        });
    }

    pub(super) async fn release(
        self: &Arc<Self>,
        claim: &Claim,
        refuse_for: Option<Duration>,
    ) -> Result<Released> {
        let Some(leaving) = self.standings.leave(&claim.id, refuse_for) else { return Ok(Released::Gone) };
        let asked = Asked { claim: claim.clone(), ids: leaving.ids.clone() };
        let marks: Vec<_> = (0..self.members.len())
            .map(|n| refuse_for.max(leaving.is_unknown(n).then(|| self.on_the_way())))
            .collect();
        let mut replies = Replies::new();
        for (n, &mark) in marks.iter().enumerate() {
            if leaving.is_in_flight(n) && mark.is_none() {
                // Whoever asks it for the grant gives that back when it comes. An earlier copy may come too
                // if it was not answered: only a mark refuses that one.
                replies.say(n, Ok(Released::Gone));
                continue;
            }
            let (quorum, claim) = (self.clone(), asked.on(n));
            replies.run(n, async move { quorum.release_on(n, &claim, mark).await });
        }
        let held = |found: &Released| *found == Released::Held;
        let mut votes = Votes::none(self.members.len());
        votes.listen(&mut replies, |votes| votes.settles(self.majority(), held)).await;
        let found = match (votes.count(held), votes.failed()) {
            (held, failed) if held > 0 && held + failed >= self.majority() => Released::Held,
            // The keeper repeats it.
            (_, failed) if failed > self.members.len() - self.majority() => return Err(votes.error(self)),
            _ => Released::Gone,
        };
        self.standings.forget(&claim.id, &leaving.ids);
        self.release_the_rest(replies, votes, asked, marks);
        Ok(found)
    }

    /// A majority has released the claim; the members that failed are asked again in the background.
    fn release_the_rest(
        self: &Arc<Self>,
        mut replies: Replies<Released>,
        mut votes: Votes<Released>,
        asked: Asked,
        marks: Vec<Option<Duration>>,
    ) {
        if votes.outstanding() == 0 && votes.failed() == 0 {
            return;
        }
        let quorum = self.clone();
        tokio::spawn(async move {
            votes.listen(&mut replies, |_| false).await;
            for n in votes.retryable() {
                quorum.repeat_release(n, asked.on(n), marks[n]);
            }
        });
    }
}
