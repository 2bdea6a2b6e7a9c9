//! Leases in tables: each verb one call of a function.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{
    Answer, Capability, Change, Claim, Fut, Inbox, Info, Key, Leases, Page, Released, Result, Snapshot,
    Store, TokenStrength, Wakes,
};

use crate::ask;
use crate::link::{Ask, Link};
use crate::names::encode;
use crate::renewal;
use crate::reply;

/// How many locks a page of `list` has.
const PAGE: usize = 500;

/// How many calls go by between two sweeps, and how many locks one sweep looks at.
const SWEEP_EVERY: u64 = 32;
const SWEPT: i32 = 128;

/// What leases in PostgreSQL are and promise.
pub static INFO: Info = Info {
    name: "postgres",
    capabilities: Capability::ALL,
    tokens: TokenStrength::Durable,
    leases: Leases::PerClaim,
    ordered: true,
    pushes: true,
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(100 * 365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::ZERO,
    // A few milliseconds of the server's time.
    batch: 400,
    checks: Vec::new(),
};

/// Claims in tables.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    link: Link,
    sweeper: Arc<Sweeper>,
}

impl Leased {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, sweeper: Arc::default() }
    }

    /// Removes everything that is over. Says how many locks it looked at.
    pub(crate) async fn vacuum(&self) -> Result<u64> {
        let (mut looked, mut after) = (0, String::new());
        loop {
            let rows = self.link.call(ask::names("", &after, i64::from(SWEPT))).await?;
            looked += rows.len() as u64;
            let next: Option<String> = reply::only(&self.link.call(ask::sweep(after, SWEPT)).await?)?;
            match next {
                Some(next) => after = next,
                None => return Ok(looked),
            }
        }
    }

    /// Every now and then sweeps some locks that perhaps nobody will ask about again, beside the caller's work.
    fn sweep(&self) {
        if !self.sweeper.is_due() {
            return;
        }
        let (link, sweeper) = (self.link.clone(), self.sweeper.clone());
        tokio::spawn(async move {
            let after = std::mem::take(&mut *sweeper.after.lock().await);
            let swept = link.call(ask::sweep(after, SWEPT)).await;
            match swept.and_then(|rows| reply::only::<Option<String>>(&rows)) {
                Ok(next) => *sweeper.after.lock().await = next.unwrap_or_default(),
                Err(error) => tracing::debug!(%error, "cannot sweep"),
            }
            sweeper.at_work.store(false, Ordering::Release);
        });
    }

    async fn look(&self, names: Vec<String>) -> Result<Vec<Snapshot>> {
        let rows = self.link.call(ask::look(names)).await?;
        let books = reply::books(&rows)?.into_iter();
        books.filter_map(|(key, now, book)| reply::snapshot(&key, now, book).transpose()).collect()
    }

    async fn page(&self, prefix: &str, cursor: Option<&str>) -> Result<Page> {
        let at_most = PAGE as i64 + 1;
        let rows = self.link.call(ask::names(prefix, cursor.unwrap_or_default(), at_most)).await?;
        let mut names = rows.iter().map(|row| reply::get::<String>(row, 0)).collect::<Result<Vec<_>>>()?;
        let more = names.len() > PAGE;
        names.truncate(PAGE);
        let next = names.last().filter(|_| more).cloned();
        Ok(Page { resources: self.look(names).await?, next })
    }
}

/// The answer to a release may say that another claim of the same client holds now, and is then the only one to say so. When it
/// does not arrive, or nobody waits for it any more, those of the client who wait for that lock look for themselves.
struct Unheard<'a> {
    link: &'a Link,
    claim: &'a Claim,
    is_heard: bool,
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if !self.is_heard {
            self.link.look(self.claim.inbox, &self.claim.key);
        }
    }
}

/// When to sweep, and where the last sweep ended.
#[derive(Debug, Default)]
struct Sweeper {
    calls: AtomicU64,
    at_work: AtomicBool,
    after: tokio::sync::Mutex<String>,
}

impl Sweeper {
    /// Whether it is time; then the caller does it, and says when it is done.
    fn is_due(&self) -> bool {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        calls.is_multiple_of(SWEEP_EVERY) && !self.at_work.swap(true, Ordering::Acquire)
    }
}

impl Store for Leased {
    fn info(&self) -> &Info {
        &INFO
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(self.link.open(inbox, wakes))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(async move {
            let row = self.link.ask(Ask::Claim(claim.clone())).await.map_err(|e| e.on(&claim.key))?;
            self.sweep();
            reply::answer(&row, claim)
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(async move {
            let answers = renewal::renew(&self.link, claims).await?;
            self.sweep();
            Ok(answers)
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            let rows = self.link.call(ask::amend(claim, change)).await.map_err(|e| e.on(&claim.key))?;
            reply::answer(reply::one(&rows)?, claim)
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(async move {
            let mut leaving = claim.clone();
            if !self.link.knows(claim.inbox) {
                // The database tells whoever is next: we could not.
                leaving.inbox = Inbox(0);
            }
            let mut unheard = Unheard { link: &self.link, claim, is_heard: false };
            let row = self.link.ask(Ask::Release(leaving, refuse_for)).await.map_err(|e| e.on(&claim.key))?;
            let (found, next) = reply::released(&row, claim)?;
            unheard.is_heard = true;
            if let Some(next) = next {
                self.link.promoted(&next);
            }
            Ok(found)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move {
            let seen = self.look(vec![encode(key.as_str())]).await.map_err(|e| e.on(key));
            Ok(seen?.pop())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(self.page(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        Box::pin(
            async move { reply::only(&self.link.call(ask::evict(key, token)).await.map_err(|e| e.on(key))?) },
        )
    }
}
