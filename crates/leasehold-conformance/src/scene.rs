//! What a case works with: the store's verbs with the words of the model, and events to wait for.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Answer, Capability, Change, Claim, ErrorKind, Feature, Holder, IfBusy, Inbox, Info, Key, Leases,
    Released, Snapshot, Store, Units,
};
use tokio::time::Instant;

use crate::fixture::{Fixture, Hook, RawState};
use crate::listener::Listener;
use crate::verdict::{Expect, Stop, Verdict};
use crate::waiting::{Refusals, Watched};

/// How late a store, a timer and a busy machine may be together. Not a measure of speed: it only tells "late"
/// from "never".
pub(crate) const SLACK: Duration = Duration::from_secs(20);
/// How often an event that nobody announces is looked for.
pub(crate) const GLANCE: Duration = Duration::from_millis(5);
/// A lease that does not end during a case.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Waits for what must come, however busy the machine is.
#[track_caller]
pub(crate) fn soon<F: Future>(what: F) -> impl Future<Output = Verdict<F::Output>> {
    let never = Stop::fail("still waiting");
    async { tokio::time::timeout(SLACK * 2, what).await.map_err(|_| never) }
}

/// One trial's fixture, with one connection opened on it.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) fixture: Arc<dyn Fixture>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) listener: Arc<Listener>,
    pub(crate) inbox: Inbox,
    refusals: Arc<Refusals>,
}

impl Scene {
    pub(crate) async fn open(fixture: Arc<dyn Fixture>) -> Verdict<Self> {
        let store = fixture.store().await?;
        let (fixture, store, refusals) = Watched::if_needed(fixture, store);
        Self::enter(fixture, store, refusals).await
    }

    /// The same fixture seen through another connection.
    pub(crate) async fn another(&self) -> Verdict<Self> {
        let store = self.fixture.store().await?;
        Self::enter(self.fixture.clone(), store, self.refusals.clone()).await
    }

    async fn enter(
        fixture: Arc<dyn Fixture>,
        store: Arc<dyn Store>,
        refusals: Arc<Refusals>,
    ) -> Verdict<Self> {
        let listener = Arc::new(Listener::default());
        let inbox = Inbox(fastrand::u64(1..));
        store.open(inbox, listener.clone()).await?;
        Ok(Self { fixture, store, listener, inbox, refusals })
    }

    pub(crate) fn info(&self) -> &Info {
        self.store.info()
    }

    /// Skips the case on stores that lack a capability.
    pub(crate) fn needs(&self, capability: Capability) -> Verdict {
        match self.info().can(capability) {
            true => Ok(()),
            false => Err(Stop::skip(format_args!("the store lacks {capability:?}"))),
        }
    }

    /// Skips the case on stores that cannot carry a feature.
    pub(crate) fn needs_feature(&self, feature: Feature) -> Verdict {
        match self.info().supports(feature) {
            true => Ok(()),
            false => Err(Stop::skip(format_args!("the store has no {}", feature.name()))),
        }
    }

    /// Skips the case on stores whose grants follow no queue.
    pub(crate) fn needs_order(&self) -> Verdict {
        match self.info().ordered {
            true => self.needs(Capability::Queue),
            false => Err(Stop::skip("the store promises no order")),
        }
    }

    /// Skips the case on stores whose sessions carry the claims, for this reason.
    pub(crate) fn needs_own_leases(&self, because: &str) -> Verdict {
        match self.info().leases {
            Leases::PerClaim => Ok(()),
            Leases::Shared => Err(Stop::skip(format_args!("a session carries the claims: {because}"))),
        }
    }

    /// Skips the case on stores that tell nobody anything.
    pub(crate) fn needs_pushes(&self) -> Verdict {
        match self.info().pushes {
            true => Ok(()),
            false => Err(Stop::skip("the store does not push: its clients poll")),
        }
    }

    pub(crate) fn key(&self) -> Key {
        self.fixture.fresh_key()
    }

    /// The short lease of cases about time.
    pub(crate) fn lease(&self) -> Duration {
        self.fixture.lease().max(self.info().min_lease)
    }

    /// `n` of `limit` units, on a lease that does not end during the case.
    pub(crate) fn claim(&self, key: &Key, n: u64, limit: u64) -> Verdict<Claim> {
        let mut claim = Claim::new(key.clone(), limit, Units::Exactly(n))?;
        claim.inbox = self.inbox;
        claim.lease = Some(LONG.min(self.info().max_lease));
        claim.patience = LONG.min(self.info().max_lease);
        Ok(claim)
    }

    /// A claim that would rather leave than wait.
    pub(crate) fn attempt(&self, key: &Key, n: u64, limit: u64) -> Verdict<Claim> {
        Ok(Claim { if_busy: IfBusy::Leave, ..self.claim(key, n, limit)? })
    }

    /// A claim whose holder will soon be over.
    pub(crate) fn brief(&self, key: &Key, n: u64, limit: u64) -> Verdict<Claim> {
        Ok(Claim { lease: Some(self.lease()), ..self.claim(key, n, limit)? })
    }

    /// A claim whose place in the queue will soon be over: with its patience or, where a session carries it, with that.
    pub(crate) fn impatient(&self, key: &Key, n: u64, limit: u64) -> Verdict<Claim> {
        let claim = match self.info().leases {
            Leases::PerClaim => self.claim(key, n, limit)?,
            Leases::Shared => self.brief(key, n, limit)?,
        };
        Ok(Claim { patience: self.lease(), ..claim })
    }

    /// Claims. An unknown outcome is asked about again, as a client would: a busy machine can lose a connection.
    pub(crate) async fn ask(&self, claim: &Claim) -> Verdict<Answer> {
        for _ in 0..2 {
            match self.store.claim(claim).await {
                Err(error) if error.kind() == ErrorKind::Indeterminate => {}
                answer => return Ok(answer?),
            }
        }
        Ok(self.store.claim(claim).await?)
    }

    pub(crate) async fn renew(&self, claim: &Claim) -> Verdict<Answer> {
        let mut answers = self.store.renew(std::slice::from_ref(claim)).await?;
        match (answers.pop(), answers.is_empty()) {
            (Some(answer), true) => Ok(answer),
            _ => Err(Stop::fail("one claim was renewed, and there is not exactly one answer")),
        }
    }

    pub(crate) async fn amend(&self, claim: &Claim, change: Change) -> Verdict<Answer> {
        Ok(self.store.amend(claim, &change).await?)
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Verdict<Released> {
        Ok(self.store.release(claim, None).await?)
    }

    pub(crate) async fn inspect(&self, key: &Key) -> Verdict<Option<Snapshot>> {
        Ok(self.store.inspect(key).await?)
    }

    pub(crate) async fn raw(&self, key: &Key) -> Verdict<RawState> {
        Ok(self.fixture.raw_state(key).await?)
    }

    pub(crate) async fn holders(&self, key: &Key) -> Verdict<Vec<Holder>> {
        Ok(self.inspect(key).await?.map_or_else(Vec::new, |seen| seen.holders))
    }

    /// Sees that the store shows this token first, where it shows tokens.
    pub(crate) async fn shows(&self, key: &Key, token: u64) -> Verdict {
        let first = self.holders(key).await?.first().map(|holder| holder.token);
        match self.info().can(Capability::Sight) {
            true => assert_eq!(first, Some(token)),
            false => assert!(first.is_some(), "nobody holds {key}"),
        }
        Ok(())
    }

    /// Renews a waiter until it holds, as its keeper would.
    pub(crate) async fn until_granted(&self, claim: &Claim) -> Verdict<leasehold_core::Grant> {
        let give_up = Instant::now() + self.lease() + self.info().expiry_slack + SLACK;
        loop {
            match self.renew(claim).await? {
                Answer::Waiting(_) if Instant::now() < give_up => tokio::time::sleep(GLANCE).await,
                answer => return answer.granted(),
            }
        }
    }

    /// Takes a key with a limit of one when it comes free: from the queue or, where there is none, by asking again.
    pub(crate) async fn next_turn(&self, key: &Key) -> Verdict<leasehold_core::Grant> {
        let give_up = Instant::now() + self.lease() * 2 + self.info().expiry_slack + SLACK;
        loop {
            let claim = self.claim(key, 1, 1)?;
            match self.ask(&claim).await? {
                Answer::Waiting(_) => return self.until_granted(&claim).await,
                Answer::Busy if Instant::now() < give_up => tokio::time::sleep(GLANCE).await,
                answer => return answer.granted(),
            }
        }
    }

    /// Waits until the store shows nobody on the key that a predicate matches.
    pub(crate) async fn until(&self, key: &Key, done: impl Fn(Option<&Snapshot>) -> bool) -> Verdict {
        let give_up = Instant::now() + self.lease() + self.info().expiry_slack + SLACK;
        loop {
            let seen = self.inspect(key).await?;
            if done(seen.as_ref()) {
                return Ok(());
            }
            if Instant::now() >= give_up {
                return Err(Stop::fail(format_args!("waited in vain; the store still shows {seen:?}")));
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Waits until nobody is on the key.
    pub(crate) async fn until_free(&self, key: &Key) -> Verdict {
        self.until(key, |seen| seen.is_none()).await?;
        // Clients agree on the store's time as far as it is told.
        tokio::time::sleep(self.info().rounding).await;
        Ok(())
    }

    /// Waits until the store itself has nothing about the key any more.
    pub(crate) async fn until_nothing_is_left(&self, key: &Key) -> Verdict {
        self.until_raw(key, |now| *now == RawState::default()).await
    }

    /// Waits until the store has nothing about the key but so many marks that refuse late copies of requests.
    pub(crate) async fn until_only_marks_are_left(&self, key: &Key, marks: usize) -> Verdict {
        self.until_raw(key, |now| {
            RawState { residue: 0, ..now.clone() } == RawState::default() && now.residue <= marks
        })
        .await
    }

    /// Uses the store until it has nothing about the key any more: it may leave the sweeping of what is over
    /// to its later users.
    pub(crate) async fn until_swept(&self, key: &Key) -> Verdict {
        let give_up = Instant::now() + self.lease() + self.info().expiry_slack + SLACK;
        while self.raw(key).await? != RawState::default() && Instant::now() < give_up {
            let other = self.claim(&self.key(), 1, 1)?;
            self.ask(&other).await?.granted()?;
            self.release(&other).await?;
            // A store that is never busy would not let anybody else run.
            tokio::task::yield_now().await;
        }
        self.until_nothing_is_left(key).await
    }

    /// Waits until the store's own account of a key is as it should be.
    pub(crate) async fn until_raw(&self, key: &Key, done: impl Fn(&RawState) -> bool) -> Verdict {
        let give_up = Instant::now() + self.lease() + self.info().expiry_slack + SLACK;
        loop {
            let now = self.raw(key).await?;
            if done(&now) {
                return Ok(());
            }
            if Instant::now() >= give_up {
                return Err(Stop::fail(format_args!("waited in vain; the store still has {now:?}")));
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Tells how many wait for a key: by the store's own account or, where it has no queue, how many clients it has
    /// turned away since this call. They all ask again.
    pub(crate) fn waiting<'a>(&'a self, key: &'a Key) -> impl Fn(&RawState) -> usize + use<'a> {
        self.forget_refusals(key);
        |now| now.waiters + self.refusals.count(key)
    }

    /// Counts those from the start who are turned away.
    pub(crate) fn forget_refusals(&self, key: &Key) {
        self.refusals.forget(key);
    }

    /// Waits until exactly so many wait for the key.
    pub(crate) async fn until_waiting(&self, key: &Key, many: usize) -> Verdict {
        let waiting = self.waiting(key);
        self.until_raw(key, |now| waiting(now) == many).await
    }

    /// Causes a fault, or skips the case.
    pub(crate) async fn cause<T>(&self, hook: Hook<'_, T>) -> Verdict<T> {
        match hook {
            Hook::Does(fault) => Ok(fault.await?),
            Hook::Cannot(reason) => Err(Stop::skip(reason)),
        }
    }
}
