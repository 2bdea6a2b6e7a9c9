//! Changes to claims that are there.

use std::time::Duration;

use leasehold_core::rule;
use leasehold_core::{Answer, Change, Claim, Result};

use crate::deciding::Matter;
use crate::session::seconds;
use crate::state::Own;
use crate::store::Shared;
use crate::wire::{Connection, Fault};

/// The longest tail that the claim itself keeps. A lease has whole seconds, usually two at least, so a
/// shorter tail would end late by more than its length.
const SHORT_TAIL: Duration = Duration::from_secs(1);

impl Shared {
    pub(crate) async fn amend(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        let no_tail = Change::Tail(Duration::ZERO);
        let change = match change {
            // Its session lives on for longer than that, even if nothing renews it any more.
            Change::Tail(length) if *length <= SHORT_TAIL.min(claim.lease.unwrap_or_default() / 2) => {
                tokio::time::sleep(*length).await;
                &no_tail
            }
            _ => change,
        };
        // What it makes is called by its id: nothing that a session carries.
        let amended = &Claim { token_above: 0, quorum: None, ..claim.on_session() };
        let own = &self.own(claim);
        let answer = self
            .on_a_member(|member| async move {
                match change {
                    Change::Tail(length) if !length.is_zero() => {
                        self.leave_tail(&member, amended, own, *length).await
                    }
                    _ => self.amend_on(&member, amended, own, change, 0).await,
                }
            })
            .await?;
        // Who waits has nothing to leave a tail of, and goes on waiting.
        if answer == Answer::Done && matches!(change, Change::Tail(_)) {
            self.labels.forget(&claim.id);
        }
        Ok(answer)
    }

    async fn amend_on(
        &self,
        member: &Connection,
        claim: &Claim,
        own: &Own,
        change: &Change,
        lease: i64,
    ) -> Result<Answer, Fault> {
        let matter = Matter::arriving(self.names.lock(&claim.key), claim, own.clone(), lease);
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
        own: &Own,
        length: Duration,
    ) -> Result<Answer, Fault> {
        let lease = member.grant(seconds(length)).await?.id;
        let answer = self.amend_on(member, claim, own, &Change::Tail(length), lease).await;
        if matches!(answer, Ok(Answer::Gone)) {
            member.revoke(lease).await?;
        }
        answer
    }
}
