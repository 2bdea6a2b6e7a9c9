//! Claims on one session: giving back what they hold, or leaving the queue.

use futures_util::future::{join, join_all, join3};
use leasehold_core::{Claim, OpenBook, Released, Result, rule};
use zookeeper_client::Error as Fault;

use crate::bell::ring;
use crate::fault::said;
use crate::own::Own;
use crate::session::{Depth, Session};
use crate::view::Node;

impl Session {
    /// Gives back or leaves, and takes back what an unanswered request may still create.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released> {
        let mut late = self.unanswered.take(&claim.id);
        if let Some(own) = self.own().get(&claim.id) {
            // A node that is known is given back below, to the next claim of this client if there is one.
            late.remove(&own.path);
        }
        if late.is_empty() {
            return self.give_back(claim).await;
        }
        let lock = self.lock(&claim.key);
        // Each is sent when it is first polled: the deletes first, and without waiting for what a stalled connection owes.
        let deletes = join_all(late.iter().map(|path| self.zk.delete(path, None)));
        let (_, _, released) = join3(deletes, self.zk.delete(&lock, None), self.give_back(claim)).await;
        released
    }

    async fn give_back(&self, claim: &Claim) -> Result<Released> {
        self.lanes.answered(&claim.id);
        // Until the end of this: then who waits behind it on this session looks.
        let known = self.own().remove(&claim.id);
        if let Some(own) = known.as_ref().filter(|own| own.is_held())
            && (self.hand_over(own).await? || self.leave(own).await.map_err(said)?)
        {
            return Ok(Released::Held);
        }
        self.lanes.left(&claim.key, &claim.id);
        let id = claim.id;
        let operation = |ledger: &mut OpenBook<'_>, now| rule::release(ledger, &id, None, now);
        let (outcome, view, ..) = self.operate(&claim.key, None, Depth::Ids(&[id]), operation).await?;
        let is_anothers = |node: &Node| {
            node.name.id == id && node.read.as_ref().is_some_and(|(note, _)| note.client != self.node)
        };
        // Its session does not know, and others of it may wait for that.
        ring(self, &claim.key, &view, view.nodes.iter().position(is_anothers)).await;
        Ok(outcome.answer)
    }

    /// Deletes the node of a claim that holds on this session, and the lock's with the last one. `false` when it is not
    /// there: it may have another name by now.
    async fn leave(&self, own: &Own) -> Result<bool, Fault> {
        let lock = self.lock(&own.claim.key);
        if own.alone {
            let mut write = self.zk.new_multi_writer();
            write.add_delete(&own.path, None)?;
            write.add_delete(&lock, None)?;
            match write.commit().await.map_err(Fault::from) {
                Err(Fault::NotEmpty) => {}
                Err(Fault::NoNode) => return Ok(false),
                done => return done.map(|_| true),
            }
        }
        let deleted = self.zk.delete(&own.path, None);
        let (deleted, left) = join(deleted, self.zk.check_stat(&lock)).await;
        match deleted {
            Err(Fault::NoNode) => return Ok(false),
            deleted => deleted?,
        }
        if left.is_ok_and(|left| left.is_some_and(|stat| stat.num_children == 0)) {
            // Somebody may have come since, and then it stays.
            let _ = self.zk.delete(&lock, None).await;
        }
        Ok(true)
    }
}
