//! What anybody may see.

use leasehold_core::rule;
use leasehold_core::{ClaimId, Key, Page, Result, Snapshot};

use crate::names::{Lock, Span};
use crate::state::State;
use crate::store::{Shared, now};
use crate::wire::message::{KeyValue, Range};
use crate::wire::{Connection, Fault, header};
use crate::words::range;

/// How many keys are read for one page.
const PAGE: i64 = 500;

impl Shared {
    pub(crate) async fn inspect(&self, key: &Key) -> Result<Option<Snapshot>> {
        let lock = &self.names.lock(key);
        self.on_a_member(|member| async move {
            let all = member.range(&range(&lock.all())).await?;
            self.show(&member, lock, header(all.header)?.revision, all.kvs).await
        })
        .await
    }

    pub(crate) async fn list(&self, prefix: &str, cursor: Option<&str>) -> Result<Page> {
        let mut span = Span::starting_with(&self.names.locks(prefix));
        if let Some(cursor) = cursor {
            span.from = self.names.after(cursor);
        }
        let span = &span;
        self.on_a_member(|member| async move { self.page(&member, span).await }).await
    }

    async fn page(&self, member: &Connection, span: &Span) -> Result<Page, Fault> {
        let seen = member.range(&Range { limit: PAGE, ..range(span) }).await?;
        let revision = header(seen.header)?.revision;
        let mut locks: Vec<(Key, Vec<KeyValue>)> = Vec::new();
        for kv in seen.kvs {
            let Some((key, _)) = self.names.parse(&kv.key) else { continue };
            match locks.last_mut() {
                Some((last, kvs)) if *last == key => kvs.push(kv),
                _ => locks.push((key, vec![kv])),
            }
        }
        let mut page = Page::default();
        if seen.more {
            // The last lock may go on: it comes with the next page, or whole if it is the only one.
            if locks.len() > 1 {
                locks.pop();
            } else if let Some((key, kvs)) = locks.first_mut() {
                *kvs = member.range(&range(&self.names.lock(key).all())).await?.kvs;
            }
            page.next = locks.last().map(|(key, _)| key.as_str().to_owned());
        }
        for (key, kvs) in locks {
            let lock = self.names.lock(&key);
            page.resources.extend(self.show(member, &lock, revision, kvs).await?);
        }
        Ok(page)
    }

    /// A lock with these keys. What is left of a session is not asked for: there may be as many as claims. A tail
    /// is on a lease of its own.
    async fn show(
        &self,
        member: &Connection,
        lock: &Lock,
        revision: i64,
        kvs: Vec<KeyValue>,
    ) -> Result<Option<Snapshot>, Fault> {
        let mut state = State::of(lock, revision, kvs.into_iter()).map_err(Fault::Final)?;
        let now = now();
        for claim in &mut state.claims {
            if claim.lease != 0 && claim.row.id == ClaimId::ownerless(claim.row.seat) {
                let left = member.time_left(claim.lease, false).await?.ttl;
                // It is there, so a lease that is over and not ended yet has a little left.
                claim.row.expires = Some(now + u64::try_from(left).unwrap_or(0).saturating_mul(1000).max(1));
            }
        }
        let (said, _) = state.play(lock, |ledger| rule::snapshot(ledger, now));
        Ok(said.map_err(Fault::Final)?.answer)
    }
}
