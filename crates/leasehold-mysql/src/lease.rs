//! Leases in tables: the rule, over rows that are read and written in one short transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::ready;
use futures_util::stream::{self, StreamExt};
use leasehold_core::rule::{self, Outcome};
use leasehold_core::{
    Answer, Book, Capability, Change, Claim, ClaimId, Fence, Fut, Inbox, Info, Key, Leases, OpenBook, Page,
    Released, Result, Snapshot, Store, TokenStrength, Wakes,
};
use tokio::time::Instant;

use crate::batch::{self, Extended};
use crate::busy::Busy;
use crate::crowd::Short;
use crate::link::{Link, apart};
use crate::poll::Poll;
use crate::rows::{self, CLAIM, HEAD, get, strange};
use crate::sql::{NOW, bytes, list};
use crate::step::{About, Done, IfKept, perform};

/// How many locks a page of `list` has.
const PAGE: usize = 500;

/// How many calls go by between two sweeps, and how many locks one sweep looks at.
const SWEEP_EVERY: u64 = 32;
const SWEPT: usize = 64;

/// How many claims are renewed by the rule at a time, so that there are connections left for others.
const AT_A_TIME: usize = 4;
/// How long all of them may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What leases in MySQL and MariaDB are and promise.
pub static INFO: Info = Info {
    name: "mysql",
    capabilities: Capability::ALL,
    tokens: TokenStrength::Durable,
    leases: Leases::PerClaim,
    ordered: true,
    pushes: false,
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(100 * 365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::ZERO,
    // Some ten milliseconds of the server's time, and less than it takes in one packet, however long the names.
    batch: 1500,
    checks: Vec::new(),
};

/// Claims in tables.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    link: Arc<Link>,
    short: Short,
    poll: Arc<Poll>,
    busy: Arc<Busy>,
    calls: Arc<AtomicU64>,
}

impl Leased {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        let short = Short::new(link.clone());
        Self { link, short, poll: Arc::default(), busy: Arc::default(), calls: Arc::default() }
    }

    /// Removes everything that is over. Says how many locks were cleaned.
    pub(crate) async fn vacuum(&self) -> Result<u64> {
        let mut cleaned = 0;
        loop {
            let some = self.sweep_some().await?;
            cleaned += some;
            if some < SWEPT as u64 {
                return Ok(cleaned);
            }
        }
    }

    /// Performs an operation, whether its caller waits for it or not.
    async fn operate<T: Send + 'static>(
        &self,
        about: About,
        until: Instant,
        operation: impl Fn(&mut OpenBook<'_>, u64) -> Result<Outcome<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let Self { link, poll, busy, .. } = self.clone();
        apart(async move {
            let Done { answer, promoted, ended, crowded } = perform(&link, &about, until, operation).await?;
            if crowded {
                busy.note(&about.key);
            }
            poll.promoted(&promoted);
            poll.look(&about.key, &ended);
            answer
        })
        .await
    }

    async fn ask(&self, claim: &Claim) -> Result<Answer> {
        let until = self.link.deadline();
        let granted = if self.busy.has(&claim.key) { None } else { self.short.claim(claim, until).await? };
        let answer = match granted {
            Some(answer) => answer,
            None => self.ask_the_rule(claim, until).await?,
        };
        self.poll.note(&self.link, claim, &answer);
        self.sweep();
        Ok(answer)
    }

    async fn ask_the_rule(&self, claim: &Claim, until: Instant) -> Result<Answer> {
        let about = About { key: claim.key.clone(), ids: vec![claim.id], makes: true, if_kept: IfKept::Wait };
        let asked = claim.clone();
        let answer = self.operate(about, until, move |book, now| rule::claim(book, &asked, now)).await?;
        if !matches!(answer, Answer::Granted(_)) {
            self.busy.note(&claim.key);
        }
        Ok(answer)
    }

    async fn give_back(&self, claim: &Claim, refuse_for: Option<Duration>) -> Result<Released> {
        self.poll.forget(&claim.id);
        let until = self.link.deadline();
        if refuse_for.is_none()
            && !self.busy.has(&claim.key)
            && self.short.release(&claim.key, claim.id, until).await?
        {
            return Ok(Released::Held);
        }
        // A claim that is on its way must find the refusal: both take the lock's row.
        let about = About {
            key: claim.key.clone(),
            ids: vec![claim.id],
            makes: refuse_for.is_some(),
            if_kept: IfKept::Wait,
        };
        let id = claim.id;
        self.operate(about, until, move |book, now| rule::release(book, &id, refuse_for, now)).await
    }

    async fn extend_one(&self, claim: &Claim, if_kept: IfKept, until: Instant) -> Result<Answer> {
        let about = About { key: claim.key.clone(), ids: vec![claim.id], makes: false, if_kept };
        let asked = claim.clone();
        let answer = self.operate(about, until, move |book, now| rule::renew(book, &asked, now)).await?;
        self.poll.note(&self.link, claim, &answer);
        Ok(answer)
    }

    async fn extend(&self, claims: &[Claim]) -> Result<Vec<Answer>> {
        let (link, all) = (self.link.clone(), claims.to_vec());
        let extended = apart(async move { batch::extend(&link, &all).await }).await?;
        let (mut answers, mut left) = (Vec::new(), Vec::new());
        for (at, extended) in extended.into_iter().enumerate() {
            answers.push(match extended {
                Extended::Done(answer) => answer,
                Extended::Left(known) => {
                    left.push(at);
                    known
                }
            });
        }
        self.extend_by_rule(claims, left, &mut answers).await;
        self.sweep();
        Ok(answers)
    }

    /// Renews these claims by the rule, and puts in the answers of those for which there is time. A claim that is not
    /// renewed keeps the answer that it has, and the keeper retries it. It costs the other claims nothing.
    async fn extend_by_rule(&self, claims: &[Claim], mut left: Vec<usize>, answers: &mut [Answer]) {
        // The answers for the whole batch wait for this, and the keeper gives up after a third of the shortest lease.
        let (shortest, last) = (claims.iter().filter_map(|claim| claim.lease).min(), self.link.deadline());
        let (if_kept, until) = match shortest {
            Some(lease) => (IfKept::Leave, last.min(Instant::now() + (lease / 8).min(PATIENCE))),
            None => (IfKept::Wait, last),
        };
        // There may be no time for all of them, and the next round must not leave out the same ones.
        fastrand::shuffle(&mut left);
        let mut renewed = stream::iter(left)
            .take_while(|_| ready(Instant::now() < until))
            .map(async |at| (at, self.extend_one(&claims[at], if_kept, until).await))
            .buffer_unordered(AT_A_TIME);
        while let Some((at, answer)) = renewed.next().await {
            match answer {
                Ok(answer) => answers[at] = answer,
                Err(error) => tracing::debug!(%error, "a claim is not renewed"),
            }
        }
    }

    /// Every now and then sweeps some locks that perhaps nobody will ask about again, beside the caller's work.
    fn sweep(&self) {
        if (self.calls.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(SWEEP_EVERY) {
            let store = self.clone();
            tokio::spawn(async move {
                if let Err(error) = store.sweep_some().await {
                    tracing::debug!(%error, "cannot sweep");
                }
            });
        }
    }

    async fn sweep_some(&self) -> Result<u64> {
        let sql = format!(
            "DELETE FROM leasehold_refusals WHERE until <= {NOW} LIMIT 1000; \
             SELECT name FROM leasehold_keys WHERE quiet_until <= {NOW} AND declared > 0 LIMIT {SWEPT}"
        );
        let rows = self.link.read(&sql).await?;
        for row in &rows {
            let key = name(row, 0)?;
            let about = About { key, ids: Vec::new(), makes: false, if_kept: IfKept::Wait };
            self.operate(about, self.link.deadline(), |book, now| rule::pass(book, now)).await?;
        }
        Ok(rows.len() as u64)
    }

    /// What is stored about these locks, in the order of their names.
    async fn look(&self, keys: &[Key]) -> Result<Vec<Snapshot>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let names = list(keys.iter().map(|key| bytes(key.as_str().as_bytes())));
        let (head, claim) =
            (HEAD.split(", ").map(|c| format!("k.{c}")), CLAIM.split(", ").map(|c| format!("c.{c}")));
        let sql = format!(
            "SELECT k.name, {NOW}, {}, {} FROM leasehold_keys k \
             LEFT JOIN leasehold_claims c USING (name) WHERE k.name IN ({names}) AND k.declared > 0",
            list(head),
            list(claim)
        );
        // Sorted here: the server would make a table on its disk for that.
        let mut rows = BTreeMap::<Vec<u8>, Vec<_>>::new();
        for row in self.link.read(&sql).await? {
            rows.entry(get(&row, 0)?).or_default().push(row);
        }
        let mut shown = Vec::new();
        for of_one in rows.into_values() {
            let Some(first) = of_one.first() else { continue };
            let (key, now) = (name(first, 0)?, get::<i64>(first, 1)?.cast_unsigned());
            let mut claims = Vec::new();
            for row in &of_one {
                if get::<Option<Vec<u8>>>(row, 10)?.is_some() {
                    claims.push(rows::claim(row, 10)?);
                }
            }
            let (mut book, mut fence) = (Book::new(rows::head(first, 2)?, claims), Fence::default());
            shown.extend(rule::snapshot(&mut OpenBook::new(&key, &mut book, &mut fence, 0), now)?.answer);
        }
        Ok(shown)
    }

    async fn page(&self, prefix: &str, cursor: Option<&str>) -> Result<Page> {
        let sql = format!(
            "SELECT name FROM leasehold_keys WHERE name > {} AND LEFT(name, {}) = {} AND declared > 0 ORDER BY name LIMIT {}",
            bytes(cursor.unwrap_or_default().as_bytes()),
            prefix.len(),
            bytes(prefix.as_bytes()),
            PAGE + 1
        );
        let rows = self.link.read(&sql).await?;
        let mut keys = rows.iter().map(|row| name(row, 0)).collect::<Result<Vec<_>>>()?;
        let more = keys.len() > PAGE;
        keys.truncate(PAGE);
        let next = keys.last().filter(|_| more).map(|key| key.as_str().to_owned());
        Ok(Page { resources: self.look(&keys).await?, next })
    }
}

fn name(row: &mysql_async::Row, at: usize) -> Result<Key> {
    Key::new(String::from_utf8(get(row, at)?).map_err(|_| strange("a name"))?)
}

/// The ids that a change names besides the claim's own.
fn ids(claim: &Claim, change: &Change) -> Vec<ClaimId> {
    let mut ids = vec![claim.id];
    if let Change::Owner { to: heir, .. } = change {
        ids.push(heir.id);
    }
    ids
}

impl Store for Leased {
    fn info(&self) -> &Info {
        self.link.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.link.read("SELECT born FROM leasehold_store").await?;
            self.poll.open(inbox, wakes);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        Box::pin(self.ask(claim))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        Box::pin(self.extend(claims))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        Box::pin(async move {
            let (until, makes) = (self.link.deadline(), matches!(change, Change::Limit(_)));
            let about =
                About { key: claim.key.clone(), ids: ids(claim, change), makes, if_kept: IfKept::Wait };
            let (asked, wish) = (claim.clone(), change.clone());
            let answer =
                self.operate(about, until, move |book, now| rule::amend(book, &asked, &wish, now)).await?;
            self.poll.note(&self.link, claim, &answer);
            Ok(answer)
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        Box::pin(self.give_back(claim, refuse_for))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        Box::pin(async move { Ok(self.look(std::slice::from_ref(key)).await.map_err(|e| e.on(key))?.pop()) })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        Box::pin(self.page(prefix, cursor))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        let about = About { key: key.clone(), ids: Vec::new(), makes: false, if_kept: IfKept::Wait };
        Box::pin(self.operate(about, self.link.deadline(), move |book, now| rule::evict(book, token, now)))
    }
}
