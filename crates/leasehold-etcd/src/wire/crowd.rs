//! Transactions of many tasks as one.
//!
//! A proposal has a price for the servers whatever is in it: a call, a place in the log, a round of the majority. Where many
//! tasks ask at once they share it. Nobody is waited for: who is ready to ask when the first one does comes along.
//!
//! **The conditions of everything in one transaction are looked at before any of it is done.** So those that go together must
//! be about different locks, which is what `about` is for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Key};
use prost::Message;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::connection::Connection;
use super::fault::Fault;
use super::message::{Committed, Op, Request, Response, Txn};
use crate::names::Lock;

/// So many that are under way go each on its own: few would gain nothing.
const FEW: usize = 2;
/// The most in one transaction: half of what a server takes.
const MOST: usize = 64;
/// Larger ones go alone: a server takes requests up to a size.
const LARGEST: usize = 8 << 10;
/// Who has waited for so long sends the others off: the first of them may have a future that nobody polls any more.
const OVERDUE: Duration = Duration::from_millis(5);

/// What became of a transaction.
#[derive(Debug)]
enum Word {
    Said(Result<Committed, Fault>),
    /// It was not carried out: it must be sent alone.
    Alone(Txn),
}

#[derive(Debug)]
struct Job {
    txn: Txn,
    about: Key,
    answer: oneshot::Sender<Word>,
}

/// Those who ask on one connection.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    under_way: AtomicUsize,
    /// While it is not empty, the first of them is about to fetch it.
    waiting: Mutex<Vec<Job>>,
}

impl Crowd {
    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As many as go together: of those about the same, the first. Who gave up before anything was sent is not sent.
    fn next(&self) -> Vec<Job> {
        let mut waiting = self.lock();
        waiting.retain(|job| !job.answer.is_closed());
        let (mut jobs, mut rest): (Vec<Job>, Vec<Job>) = (Vec::new(), Vec::new());
        for job in waiting.drain(..) {
            let fits = jobs.len() < MOST && jobs.iter().all(|other| other.about != job.about);
            if fits { jobs.push(job) } else { rest.push(job) }
        }
        *waiting = rest;
        jobs
    }
}

/// One who asks, until it has its answer or leaves.
struct Asker<'a>(&'a Crowd);

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// A transaction that is about one lock only, and may go together with those about others.
    pub(crate) async fn txn_about(self: &Arc<Self>, about: &Lock, txn: Txn) -> Result<Committed, Fault> {
        let before = self.crowd.under_way.fetch_add(1, Ordering::Relaxed);
        let _asker = Asker(&self.crowd);
        if before < FEW || txn.encoded_len() > LARGEST {
            return self.txn(&txn).await;
        }
        let (answer, mut word) = oneshot::channel();
        let is_first = {
            let mut waiting = self.crowd.lock();
            waiting.push(Job { txn, about: about.key.clone(), answer });
            waiting.len() == 1
        };
        if is_first {
            let fetch = Fetch(self);
            // Everybody asks who is about to.
            yield_now().await;
            drop(fetch);
        } else if let Ok(word) = timeout(OVERDUE, &mut word).await {
            return self.heard(word).await;
        } else {
            self.send_off();
        }
        let word = word.await;
        self.heard(word).await
    }

    async fn heard(&self, word: Result<Word, oneshot::error::RecvError>) -> Result<Committed, Fault> {
        match word {
            Ok(Word::Said(said)) => said,
            Ok(Word::Alone(txn)) => self.txn(&txn).await,
            Err(cause) => Err(Fault::lost(ErrorKind::Indeterminate, "the runtime has ended", cause)),
        }
    }

    /// Sends everybody off who waits.
    fn send_off(self: &Arc<Self>) {
        loop {
            let jobs = Jobs(self.crowd.next());
            match jobs.0.len() {
                0 => return,
                // Alone after all.
                1 => drop(jobs),
                _ => drop(tokio::spawn(send(self.clone(), jobs))),
            }
        }
    }
}

/// On the way to fetch those who wait: also when who is on it has to leave.
struct Fetch<'a>(&'a Arc<Connection>);

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        self.0.send_off();
    }
}

/// Transactions that were not sent yet: also when the runtime has ended that should have.
struct Jobs(Vec<Job>);

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in self.0.drain(..) {
            let _ = job.answer.send(Word::Alone(job.txn));
        }
    }
}

/// Makes one transaction of these, and hands out its answers.
async fn send(connection: Arc<Connection>, mut jobs: Jobs) {
    let (mut ops, mut answers) = (Vec::with_capacity(jobs.0.len()), Vec::with_capacity(jobs.0.len()));
    for job in jobs.0.drain(..) {
        ops.push(Op { request: Some(Request::Txn(job.txn)) });
        answers.push(job.answer);
    }
    let together = Txn { success: ops, ..Txn::default() };
    let said = connection.txn(&together).await;
    let txns = together.success.into_iter().filter_map(|op| match op.request {
        Some(Request::Txn(txn)) => Some(txn),
        _ => None,
    });
    let words: Vec<Word> = match said {
        Ok(Committed { header, responses, .. }) if responses.len() == answers.len() => {
            let said = responses.into_iter().map(|reply| match reply.response {
                Some(Response::Txn(inner)) => Ok(Committed { header, ..inner }),
                _ => {
                    Err(Fault::lost(ErrorKind::Protocol, "a transaction without an answer", "is this etcd?"))
                }
            });
            said.map(Word::Said).collect()
        }
        Ok(_) => txns.map(|_| Word::Said(Err(unknown("too few answers")))).collect(),
        // One of them made the server refuse all: each may hear something else.
        Err(fault) if fault.did_nothing() || matches!(fault, Fault::LeaseGone | Fault::Final(_)) => {
            txns.map(Word::Alone).collect()
        }
        Err(fault) => {
            let cause = Error::from(fault).to_string();
            txns.map(|_| Word::Said(Err(unknown(&cause)))).collect()
        }
    };
    for (answer, word) in answers.into_iter().zip(words) {
        // Who asked may have gone.
        let _ = answer.send(word);
    }
}

fn unknown(cause: &str) -> Fault {
    Fault::lost(ErrorKind::Indeterminate, "the member failed: it may have happened", cause)
}
