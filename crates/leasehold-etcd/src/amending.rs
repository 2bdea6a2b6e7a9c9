//! Changes to claims that are there.

use std::time::Duration;

use leasehold_core::rule;
use leasehold_core::{Answer, Change, Claim, Result};

use crate::deciding::Matter;
use crate::session::seconds;
use crate::store::Shared;
use crate::wire::{Connection, Fault};

impl Shared {
    pub(crate) async fn amend(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        let claim = &Claim { token_above: 0, quorum: None, ..claim.on_session() };
        self.on_a_member(|member| async move {
            match change {
                Change::Tail(length) if !length.is_zero() => self.leave_tail(&member, claim, *length).await,
                _ => self.amend_on(&member, claim, change, 0).await,
            }
        })
        .await
    }

    async fn amend_on(
        &self,
        member: &Connection,
        claim: &Claim,
        change: &Change,
        lease: i64,
    ) -> Result<Answer, Fault> {
        let matter = Matter::arriving(self.names.lock(&claim.key), claim, lease);
        let seen = self.look(member, &matter).await?;
        let decided =
            self.decide(member, &matter, seen, |ledger, now| rule::amend(ledger, claim, change, now)).await;
        Ok(decided?.numbered())
    }

    /// What nobody owns lives on a lease of its own.
    async fn leave_tail(
        &self,
        member: &Connection,
        claim: &Claim,
        length: Duration,
    ) -> Result<Answer, Fault> {
        let lease = member.grant(seconds(length)).await?.id;
        let answer = self.amend_on(member, claim, &Change::Tail(length), lease).await;
        if matches!(answer, Ok(Answer::Gone)) {
            member.revoke(lease).await?;
        }
        answer
    }
}
