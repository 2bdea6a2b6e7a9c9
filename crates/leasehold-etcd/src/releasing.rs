//! The end of claims: given back, withdrawn, taken away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::rule;
use leasehold_core::{BootClock, Claim, Clock, Key, Moment, OpenBook, Released, Result};

use crate::deciding::Matter;
use crate::names::Standing;
use crate::session::seconds;
use crate::state::{NEXT, State};
use crate::store::Shared;
use crate::wire::message::Txn;
use crate::wire::{Connection, Fault, header};
use crate::words::{delete, is_empty, is_present, put, range};

/// The lease that marks of withdrawn claims are on, shared by those that are made about the same time.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<Option<Mark>>);

#[derive(Clone, Copy, Debug)]
struct Mark {
    lease: i64,
    until: Moment,
}

impl Marks {
    /// A lease that lives so long.
    pub(crate) async fn lease(&self, member: &Connection, length: Duration) -> Result<i64, Fault> {
        let now = BootClock.now();
        if let Some(mark) = self.lock().filter(|mark| mark.until >= now + length) {
            return Ok(mark.lease);
        }
        let granted = member.grant(seconds(length * 2)).await?;
        let until = now + Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        *self.lock() = Some(Mark { lease: granted.id, until });
        Ok(granted.id)
    }

    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    pub(crate) async fn release(&self, claim: &Claim, refuse_for: Option<Duration>) -> Result<Released> {
        let matter = Matter::about(self.names.lock(&claim.key), vec![self.own(claim)]);
        let matter = &Matter { front: NEXT, ..matter };
        let asked = self.labels.ask(&claim.id);
        let released = self
            .on_a_member(|member| async move {
                match refuse_for {
                    None => self.give_back(&member, matter, claim).await,
                    Some(length) => self.withdraw(&member, matter, claim, length).await,
                }
            })
            .await;
        if released.is_ok() {
            self.labels.forget(&claim.id);
        }
        asked.heard(&released);
        released
    }

    /// One transaction when nobody waits; else who is next is granted by the one that gives back. Who has waited knows who
    /// is next from what was seen here last, or looks first: a transaction that could write goes through the log
    /// even if it does not, and a look is cheap.
    async fn give_back(
        &self,
        member: &Arc<Connection>,
        matter: &Matter,
        claim: &Claim,
    ) -> Result<Released, Fault> {
        let (lock, own) = (&matter.lock, self.own(claim));
        if own.label.is_none() || self.labels.has_waited(&claim.id) {
            let seen = match self.labels.seen(&claim.key).filter(|seen| seen.is_wanted_of(&claim.id)) {
                Some(seen) => seen,
                None => self.look(member, matter).await?,
            };
            return self.end(member, matter, claim, seen).await;
        }
        let own = own.name(lock, Standing::Hold);
        let compare = vec![is_present(&own), is_empty(&lock.wanting())];
        let (success, failure) = (vec![delete(own)], self.questions(matter));
        let first = member.txn_about(lock, Txn { compare, success, failure }).await?;
        if first.succeeded {
            return Ok(Released::Held);
        }
        self.end(member, matter, claim, matter.state(&first, 0)?).await
    }

    async fn end(
        &self,
        member: &Connection,
        matter: &Matter,
        claim: &Claim,
        seen: State,
    ) -> Result<Released, Fault> {
        let rule = |ledger: &mut OpenBook<'_>, now| rule::release(ledger, &claim.id, None, now);
        Ok(self.decide(member, matter, seen, rule).await?.answer)
    }

    /// Also leaves a mark that refuses the claim: a copy of it may still be on the way.
    async fn withdraw(
        &self,
        member: &Connection,
        matter: &Matter,
        claim: &Claim,
        length: Duration,
    ) -> Result<Released, Fault> {
        loop {
            let lease = self.marks.lease(member, length).await?;
            let extra = vec![put(self.names.refused(&claim.id), Vec::new(), lease)];
            let matter = Matter { extra, ..matter.clone() };
            let seen = self.look(member, &matter).await?;
            match self.end(member, &matter, claim, seen).await {
                Err(Fault::LeaseGone) => self.marks.forget(),
                done => return done,
            }
        }
    }

    pub(crate) async fn evict(&self, key: &Key, token: u64) -> Result<bool> {
        let matter = &Matter::about(self.names.lock(key), Vec::new());
        self.on_a_member(|member| async move {
            // Everybody: who waits for a latch ends with it.
            let all = member.range(&range(&matter.lock.all())).await?;
            let revision = header(all.header)?.revision;
            let seen = State::of(&matter.lock, revision, all.kvs.into_iter()).map_err(Fault::Final)?;
            let rule = |ledger: &mut OpenBook<'_>, now| rule::evict(ledger, token, now);
            Ok(self.decide(&member, matter, seen, rule).await?.answer)
        })
        .await
    }
}
