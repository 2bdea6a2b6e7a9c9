//! The memory store with one bug.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{
    Answer, Change, Claim, ClaimId, ErrorKind, Fut, Grant, IfBusy, Inbox, Info, Key, Memory, Order, Page,
    Place, Promotion, Released, Result, Snapshot, Store, Units, Wake, Wakes,
};

macro_rules! bugs {
    ($($name:ident),+ $(,)?) => {
        /// A bug of a store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum Bug { $($name),+ }
        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

bugs!(
    GrantsToEverybody,
    CountsNoUnits,
    QueuesAndSaysBusy,
    LetsEverybodyBarge,
    HoldsOnlyTheLast,
    TokensFall,
    TokensStartAnew,
    TokenIsTheSeat,
    IgnoresTokenAbove,
    TellsNobody,
    TellsTheWrongSeat,
    LeasesAreHalf,
    LeasesEndAtHalf,
    LeasesNeverEnd,
    RenewalDoesNothing,
    RenewalRevives,
    RenewalCreates,
    AnswersInReverse,
    RepeatsAreNewClaims,
    PatienceIsTheLease,
    NoLockDelay,
    ReleasesWhoeverHolds,
    ReleaseAlwaysHeld,
    LeavesNoMark,
    ConflictIsBusy,
    CountsEveryRepeat,
    MakesLateChanges,
    IgnoresLowerLimits,
    ManyAdopters,
    TailIsRelease,
    EvictsWhoeverHolds,
    OnePageOnly,
    PrefixFoldsCase,
    NamesFoldCase,
    NamesAreCut,
);

#[derive(Clone, Debug)]
pub(super) struct Mutant {
    pub(super) inner: Memory,
    bug: Option<Bug>,
    asked: Arc<Mutex<HashSet<ClaimId>>>,
    last: Arc<Mutex<Option<Claim>>>,
    /// The last token before the key was free.
    before: Arc<Mutex<u64>>,
}

impl Mutant {
    pub(super) fn new(inner: Memory, bug: Option<Bug>) -> Self {
        Self { inner, bug, asked: Arc::default(), last: Arc::default(), before: Arc::default() }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn name(&self, key: &Key) -> Key {
        let name = key.as_str();
        let cut = name.char_indices().take_while(|(at, _)| *at < 250).map(|(_, c)| c).collect::<String>();
        match self.bug {
            Some(Bug::NamesFoldCase) => Key::new(name.to_lowercase()).unwrap(),
            Some(Bug::NamesAreCut) => Key::new(cut).unwrap(),
            _ => key.clone(),
        }
    }

    /// The claim as the bug understands it.
    fn bent(&self, claim: &Claim) -> Claim {
        let mut claim = Claim { key: self.name(&claim.key), ..claim.clone() };
        match self.bug {
            Some(Bug::GrantsToEverybody) => (claim.limit, claim.units) = (1_000, Units::Exactly(1)),
            Some(Bug::CountsNoUnits) => claim.units = Units::Exactly(1),
            Some(Bug::LetsEverybodyBarge) => claim.order = Order::Barging,
            Some(Bug::IgnoresTokenAbove) => claim.token_above = 0,
            Some(Bug::LeasesAreHalf) => claim.lease = claim.lease.map(|lease| lease / 2),
            Some(Bug::LeasesEndAtHalf) => {
                (claim.lease, claim.patience) = (claim.lease.map(|lease| lease / 2), claim.patience / 2);
            }
            Some(Bug::LeasesNeverEnd) => claim.lease = None,
            Some(Bug::PatienceIsTheLease) => claim.patience = claim.lease.unwrap_or(claim.patience),
            Some(Bug::NoLockDelay) => claim.lock_delay = Duration::ZERO,
            Some(Bug::RepeatsAreNewClaims) if !self.asked.lock().unwrap().insert(claim.id) => {
                claim.id = ClaimId::random().unwrap();
            }
            _ => {}
        }
        claim
    }

    /// The answer as the bug words it.
    fn worded(&self, answer: Answer) -> Answer {
        match (self.bug, answer) {
            (Some(Bug::LeasesEndAtHalf), Answer::Granted(grant)) => {
                Answer::Granted(Grant { lease: grant.lease.map(|lease| lease * 2), ..grant })
            }
            (Some(Bug::LeasesEndAtHalf), Answer::Waiting(place)) => {
                Answer::Waiting(Place { lease: place.lease.map(|lease| lease * 2), ..place })
            }
            (Some(Bug::TokensFall), Answer::Granted(grant)) => {
                Answer::Granted(Grant { token: u64::MAX - grant.token, ..grant })
            }
            (Some(Bug::TokensStartAnew), Answer::Granted(grant)) => {
                Answer::Granted(Grant { token: grant.token - *self.before.lock().unwrap(), ..grant })
            }
            (Some(Bug::TokenIsTheSeat), Answer::Granted(grant)) => {
                Answer::Granted(Grant { token: grant.seat, ..grant })
            }
            (_, answer) => answer,
        }
    }

    async fn ask(&self, claim: &Claim) -> Result<Answer> {
        let mut bent = self.bent(claim);
        if self.has(Bug::QueuesAndSaysBusy) && claim.if_busy == IfBusy::Leave {
            bent.if_busy = IfBusy::Queue;
            let answer = self.inner.claim(&bent).await?;
            return Ok(if matches!(answer, Answer::Waiting(_)) { Answer::Busy } else { answer });
        }
        let last = self.last.lock().unwrap().replace(bent.clone());
        if self.has(Bug::HoldsOnlyTheLast)
            && let Some(last) = last
        {
            self.inner.release(&last, None).await?;
        }
        let was_free = self.inner.inspect(&bent.key).await?.is_none();
        match self.inner.claim(&bent).await {
            Ok(Answer::Granted(grant)) if self.has(Bug::TokensStartAnew) && was_free => {
                *self.before.lock().unwrap() = grant.token - 1;
                Ok(self.worded(Answer::Granted(grant)))
            }
            Err(error) if self.has(Bug::ConflictIsBusy) && error.kind() == ErrorKind::Conflict => {
                Ok(Answer::Busy)
            }
            answer => answer.map(|answer| self.worded(answer)),
        }
    }

    async fn keep(&self, claims: &[Claim]) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for claim in claims {
            let bent = self.bent(claim);
            let answer = match self.bug {
                Some(Bug::RenewalCreates | Bug::RenewalRevives) => {
                    let answer = self.inner.renew(std::slice::from_ref(&bent)).await?.remove(0);
                    let known =
                        self.has(Bug::RenewalCreates) || self.asked.lock().unwrap().contains(&bent.id);
                    if answer == Answer::Gone && known {
                        self.inner.release(&bent, None).await?;
                        self.inner.claim(&bent).await?
                    } else {
                        answer
                    }
                }
                Some(Bug::RenewalDoesNothing) => {
                    let seen = self.inner.inspect(&bent.key).await?;
                    let holder = seen.and_then(|seen| seen.holders.into_iter().next());
                    holder.map_or(Answer::Gone, |holder| {
                        let (seat, token, units) = (holder.seat, holder.token, holder.units);
                        Answer::Granted(Grant { seat, token, units, lease: bent.lease, asked: false })
                    })
                }
                _ => self.inner.renew(std::slice::from_ref(&bent)).await?.remove(0),
            };
            answers.push(self.worded(answer));
        }
        if self.has(Bug::AnswersInReverse) {
            answers.reverse();
        }
        Ok(answers)
    }

    async fn bend(&self, claim: &Claim, change: &Change) -> Result<Answer> {
        let claim = self.bent(claim);
        let change = match (self.bug, change) {
            (Some(Bug::CountsEveryRepeat), Change::Give { n, token, .. }) => {
                Change::Give { n: *n, op: fastrand::u64(..), token: *token }
            }
            (Some(Bug::MakesLateChanges), Change::Units { to, .. }) => {
                static NEXT: AtomicU64 = AtomicU64::new(1);
                Change::Units { to: *to, op: NEXT.fetch_add(1, Ordering::Relaxed) }
            }
            (Some(Bug::IgnoresLowerLimits), Change::Limit(limit)) => Change::Limit((*limit).max(claim.limit)),
            (Some(Bug::TailIsRelease), Change::Tail(_)) => Change::Tail(Duration::ZERO),
            (_, change) => change.clone(),
        };
        let answer = self.inner.amend(&claim, &change).await?;
        match (answer, change) {
            (Answer::Gone, Change::Owner { to: heir, .. }) if self.has(Bug::ManyAdopters) => {
                Ok(Answer::Granted(Grant { seat: 1, token: 1, units: 1, lease: heir.lease, asked: false }))
            }
            (answer, _) => Ok(self.worded(answer)),
        }
    }

    async fn end(&self, claim: &Claim, refuse_for: Option<Duration>) -> Result<Released> {
        let key = self.name(&claim.key);
        if self.has(Bug::ReleasesWhoeverHolds)
            && let Some(holder) =
                self.inner.inspect(&key).await?.and_then(|seen| seen.holders.into_iter().next())
        {
            self.inner.evict(&key, holder.token).await?;
        }
        let refuse_for = refuse_for.filter(|_| !self.has(Bug::LeavesNoMark));
        let found = self.inner.release(&Claim { key, ..claim.clone() }, refuse_for).await?;
        Ok(if self.has(Bug::ReleaseAlwaysHeld) { Released::Held } else { found })
    }
}

/// Notifications as the bug sends them.
#[derive(Debug)]
struct Bent(Wakes, Option<Bug>);

impl Wake for Bent {
    fn promoted(&self, promotion: &Promotion) {
        match self.1 {
            Some(Bug::TellsNobody) => {}
            Some(Bug::TellsTheWrongSeat) => {
                self.0.promoted(&Promotion { seat: promotion.seat + 1, ..promotion.clone() });
            }
            _ => self.0.promoted(promotion),
        }
    }

    fn look(&self, key: &Key) {
        self.0.look(key);
    }

    fn look_all(&self) {
        self.0.look_all();
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}

impl Store for Mutant {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.inner.open(inbox, Arc::new(Bent(wakes, self.bug)))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        if self.has(Bug::RenewalRevives) {
            self.asked.lock().unwrap().insert(claim.id);
        }
        Box::pin(self.ask(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(self.keep(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(self.bend(claim, change))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(self.end(claim, refuse_for))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move { self.inner.inspect(&self.name(key)).await })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(async move {
            if self.has(Bug::PrefixFoldsCase) {
                let mut page = self.inner.list("", cursor).await?;
                let prefix = prefix.to_lowercase();
                page.resources.retain(|seen| seen.key.as_str().to_lowercase().starts_with(&prefix));
                return Ok(page);
            }
            let page = self.inner.list(prefix, cursor).await?;
            Ok(if self.has(Bug::OnePageOnly) { Page { next: None, ..page } } else { page })
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(async move {
            let key = self.name(key);
            let seen = self.inner.inspect(&key).await?;
            let holder = seen.and_then(|seen| seen.holders.first().map(|holder| holder.token));
            let token = holder.filter(|_| self.has(Bug::EvictsWhoeverHolds)).unwrap_or(token);
            self.inner.evict(&key, token).await
        })
    }
}
