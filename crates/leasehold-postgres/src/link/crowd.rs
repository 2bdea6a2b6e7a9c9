//! Requests of many tasks as one call.
//!
//! A call has a price whatever it does: a round trip, a transaction, and above all a commit that waits for the disk. While
//! a few calls are under way, those who come meanwhile gather, and go together as soon as one of them has returned.
//! Where nobody else asks, nobody is waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Claim, Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Row;

use super::Link;
use crate::ask::{self, Call};
use crate::names::encode;

/// So many calls under way go each on its own: few would gain nothing.
const FEW: usize = 4;
/// The most requests in one call, so that nobody's row is kept for long: some milliseconds.
const MOST: usize = 64;
/// Who has waited for so long is sent off, whatever the others wait for.
const OVERDUE: Duration = Duration::from_millis(10);

/// What can be asked together.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Claim(Claim),
    Release(Claim, Option<Duration>),
}

impl Ask {
    fn alone(&self) -> Call {
        match self {
            Self::Claim(claim) => ask::claim(claim),
            Self::Release(claim, refuse_for) => ask::release(claim, *refuse_for),
        }
    }

    fn name(&self) -> String {
        let (Self::Claim(claim) | Self::Release(claim, _)) = self;
        encode(claim.key.as_str())
    }
}

/// What became of a request.
#[derive(Debug)]
enum Word {
    Said(Row),
    Failed(Error),
    /// It did not happen: it must be sent alone.
    Alone,
}

#[derive(Debug)]
struct Job {
    ask: Ask,
    until: Instant,
    answer: oneshot::Sender<Word>,
}

/// Those who ask.
#[derive(Debug, Default)]
pub(super) struct Crowd(Mutex<Desk>);

#[derive(Debug, Default)]
struct Desk {
    under_way: usize,
    waiting: Vec<Job>,
}

impl Crowd {
    fn lock(&self) -> MutexGuard<'_, Desk> {
        // Nothing below the lock panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is under way. When it has returned, or nobody wants its answer any more, those who gathered go.
struct Under<'a> {
    link: &'a Link,
    runtime: Handle,
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.link.inner.crowd.lock().under_way -= 1;
        self.link.send_off(&self.runtime);
    }
}

impl Link {
    /// Asks, together with others who ask at the same time.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Row> {
        let until = Instant::now() + self.target().timeout;
        let Some(mut word) = self.gather(&ask, until) else {
            let _under = Under { link: self, runtime: Handle::current() };
            return one(self.call_until(&ask.alone(), until).await?);
        };
        let word = match timeout(OVERDUE, &mut word).await {
            Ok(word) => Ok(word),
            Err(_) => {
                self.send_off(&Handle::current());
                timeout_at(until, word).await
            }
        };
        match word {
            Ok(Ok(Word::Said(row))) => Ok(row),
            Ok(Ok(Word::Failed(error))) => Err(error),
            Ok(Ok(Word::Alone)) => one(self.call_until(&ask.alone(), until).await?),
            // The runtime that it was sent from is gone, or it is late.
            Ok(Err(_)) | Err(_) => Err(unknown()),
        }
    }

    /// Joins those who wait, unless only a few calls are under way: then this is one more.
    fn gather(&self, ask: &Ask, until: Instant) -> Option<oneshot::Receiver<Word>> {
        let mut desk = self.inner.crowd.lock();
        if desk.under_way < FEW {
            desk.under_way += 1;
            return None;
        }
        let (answer, word) = oneshot::channel();
        desk.waiting.push(Job { ask: ask.clone(), until, answer });
        Some(word)
    }

    /// Sends off everybody who waits.
    fn send_off(&self, runtime: &Handle) {
        let mut desk = self.inner.crowd.lock();
        if desk.waiting.is_empty() {
            return;
        }
        let mut jobs = std::mem::take(&mut desk.waiting);
        // Who gave up before anything was sent is not sent.
        jobs.retain(|job| !job.answer.is_closed());
        let (claims, releases): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| matches!(job.ask, Ask::Claim(_)));
        // What is given back may be what the others want.
        for mut jobs in [releases, claims] {
            jobs.sort_by_cached_key(|job| job.ask.name());
            while !jobs.is_empty() {
                let rest = jobs.split_off(jobs.len().min(MOST));
                let jobs = std::mem::replace(&mut jobs, rest);
                desk.under_way += 1;
                let (link, handle) = (self.clone(), runtime.clone());
                runtime.spawn(async move {
                    let _under = Under { link: &link, runtime: handle };
                    link.send(jobs).await;
                });
            }
        }
    }

    /// Makes one call of these, which are of one kind, and hands out its answers.
    async fn send(&self, jobs: Vec<Job>) {
        let Some(until) = jobs.iter().map(|job| job.until).min() else { return };
        let (mut claims, mut releases, mut answers) =
            (Vec::new(), Vec::new(), Vec::with_capacity(jobs.len()));
        for job in jobs {
            match job.ask {
                Ask::Claim(claim) => claims.push(claim),
                Ask::Release(claim, refuse_for) => releases.push((claim, refuse_for)),
            }
            answers.push(job.answer);
        }
        let call = if releases.is_empty() { ask::claims(&claims) } else { ask::releases(&releases) };
        let said = self.call_until(&call, until).await;
        let mut rows = match said {
            Ok(rows) if rows.len() == answers.len() => rows.into_iter(),
            // Refused as a whole: each of them may hear something else.
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                return hand_out(answers, || Word::Alone);
            }
            // Nobody knows.
            _ => return hand_out(answers, || Word::Failed(unknown())),
        };
        hand_out(answers, || rows.next().map_or_else(|| Word::Failed(unknown()), Word::Said));
    }
}

fn hand_out(answers: Vec<oneshot::Sender<Word>>, mut word: impl FnMut() -> Word) {
    for answer in answers {
        // Who asked may have gone.
        let _ = answer.send(word());
    }
}

fn one(rows: Vec<Row>) -> Result<Row> {
    rows.into_iter().next().ok_or_else(|| crate::reply::strange("no row"))
}

fn unknown() -> Error {
    let message = "the connection broke or was silent before the answer: it may have happened";
    Error::new(ErrorKind::Indeterminate, message).at("postgres")
}
