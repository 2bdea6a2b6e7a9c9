//! A client's own end of its network: notes what the client sends and hears, and carries messages of strangers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::layers::Faults;
use leasehold_core::{
    Answer, Change, Claim, ClaimId, ErrorKind, Fut, Inbox, Info, Key, Page, Promotion, Released, Result,
    Snapshot, Store, Wakes,
};

use crate::spy::{Spied, number_of};
use crate::world::World;

#[derive(Clone, Debug)]
pub(crate) struct Sender {
    network: Faults<Spied>,
    world: Arc<World>,
    wakes: Arc<OnceLock<Wakes>>,
}

impl Sender {
    pub(crate) fn new(network: Faults<Spied>, world: Arc<World>) -> Self {
        Self { network, world, wakes: Arc::default() }
    }

    /// The connection was opened again: the store says so, because anything may have happened.
    pub(crate) fn reconnected(&self) {
        if let Some(wakes) = self.wakes.get() {
            wakes.look_all();
        }
    }

    /// A stranger sends a promotion. A sound store cannot prove it, so it only makes the client look.
    pub(crate) fn forged(&self, promotion: &Promotion) {
        match self.wakes.get() {
            Some(wakes) if self.world.setup.believes_forgeries => wakes.promoted(promotion),
            Some(wakes) => wakes.look(&promotion.key),
            None => {}
        }
    }

    fn heard(&self, claim: &Claim, answer: &Answer) {
        if let Answer::Granted(grant) = answer
            && grant.lease.is_some()
        {
            self.world.state().copies.started(claim.id);
        }
    }
}

/// A copy of a claim that was sent: unanswered, unless an answer comes.
struct Copy<'a> {
    world: &'a World,
    id: ClaimId,
    is_answered: bool,
}

impl<'a> Copy<'a> {
    fn sent(world: &'a World, claim: &Claim) -> Self {
        let (now, attempt) = (world.now(), number_of(claim));
        // The claims of latches have labels of their own.
        if attempt != u64::MAX {
            world.state().copies.sent(attempt, claim.id, now);
        }
        Self { world, id: claim.id, is_answered: false }
    }

    fn answered(mut self, answer: &Result<Answer>) {
        let was_not_sent = |error: &leasehold_core::Error| error.kind() == ErrorKind::Unavailable;
        self.is_answered = answer.as_ref().map_or_else(was_not_sent, |_| true);
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.world.state().copies.unanswered(self.id);
        }
    }
}

impl Store for Sender {
    fn info(&self) -> &Info {
        self.network.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        // Opened once: the first sink is the only one.
        let _ = self.wakes.set(wakes.clone());
        self.network.open(inbox, wakes)
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move {
            let copy = Copy::sent(&self.world, claim);
            let answer = self.network.claim(claim).await;
            copy.answered(&answer);
            if let Ok(answer) = &answer {
                self.heard(claim, answer);
            }
            answer
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            self.world.state().copies.renewed(claims);
            let answers = self.network.renew(claims).await?;
            claims.iter().zip(&answers).for_each(|(claim, answer)| self.heard(claim, answer));
            Ok(answers)
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        self.network.amend(claim, change)
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        self.world.state().copies.withdrawn(claim.id);
        self.network.release(claim, refuse_for)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        self.network.inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        self.network.list(prefix, cursor)
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        self.network.evict(key, token)
    }
}
