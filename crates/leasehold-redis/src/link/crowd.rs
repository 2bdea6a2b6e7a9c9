//! Requests of many tasks as one call.
//!
//! A call of a script has a price whatever it does: the server prepares it, looks at its clock, at the fence, and
//! whether it has forgotten anything. Where many tasks ask at once they share it. Nobody is waited for: who is ready
//! to ask when the first one does comes along.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::node::Node;
use super::run;
use super::way::Way;
use crate::ask;
use crate::fault::Silence;
use crate::script::{Ack, Call};

/// So many requests under way go each on its own: few would gain nothing.
const FEW: usize = 4;
/// The most requests in one call, so that no server is kept busy for long: about a third of a millisecond.
const MOST: usize = 64;
/// Who has waited for so long sends the others off: the first of them may have a future that nobody polls any more.
const OVERDUE: Duration = Duration::from_millis(5);

/// What became of a request.
#[derive(Debug)]
pub(super) enum Word {
    Said(Result<Value, Silence>),
    /// It did not run: it must be sent alone.
    Alone(Call),
}

#[derive(Debug)]
struct Job {
    call: Call,
    until: Instant,
    answer: oneshot::Sender<Word>,
}

/// Those who ask one server.
#[derive(Debug)]
pub(super) struct Crowd {
    node: Arc<Node>,
    /// Where calls go on when who asked is gone: where the connection lives.
    runtime: Handle,
    under_way: AtomicUsize,
    /// While it is not empty, the first of them is about to fetch it.
    waiting: Mutex<Vec<Job>>,
}

/// One who asks, until it has its answer or leaves.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    crowd: &'a Arc<Crowd>,
    before: usize,
}

impl Crowd {
    /// Must be called on the runtime that the node lives on.
    pub(super) fn new(node: Arc<Node>) -> Arc<Self> {
        let (runtime, under_way, waiting) = (Handle::current(), AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { node, runtime, under_way, waiting })
    }

    pub(super) fn enter(self: &Arc<Self>) -> Asker<'_> {
        Asker { crowd: self, before: self.under_way.fetch_add(1, Ordering::Relaxed) }
    }

    /// Sends everybody off who waits.
    fn send_off(&self) {
        let mut jobs = std::mem::take(&mut *self.lock());
        // Who gave up before anything was sent is not sent.
        jobs.retain(|job| !job.answer.is_closed());
        while !jobs.is_empty() {
            let rest = jobs.split_off(jobs.len().min(MOST));
            let jobs = Jobs(std::mem::replace(&mut jobs, rest));
            self.runtime.spawn(send(self.node.clone(), jobs));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        // Nothing below the lock panics half-way through a change.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asker<'_> {
    /// Whether there are enough others to go together.
    pub(super) fn is_in_company(&self) -> bool {
        self.before >= FEW
    }

    /// Asks together with others.
    pub(super) async fn ask(&self, call: Call, until: Instant) -> Word {
        let (answer, mut word) = oneshot::channel();
        let is_first = {
            let mut waiting = self.crowd.lock();
            waiting.push(Job { call, until, answer });
            waiting.len() == 1
        };
        if is_first {
            let fetch = Fetch(self.crowd);
            // Everybody asks who is about to.
            yield_now().await;
            drop(fetch);
        } else {
            match timeout(OVERDUE, &mut word).await {
                Ok(word) => return heard(word),
                Err(_) => self.crowd.send_off(),
            }
        }
        heard(word.await)
    }
}

/// Nobody says a word where the runtime ended after it was sent.
fn heard(word: Result<Word, RecvError>) -> Word {
    word.unwrap_or(Word::Said(Err(Silence::Late)))
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        self.crowd.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// On the way to fetch those who wait: also when who is on it has to leave.
struct Fetch<'a>(&'a Arc<Crowd>);

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        self.0.send_off();
    }
}

/// Requests that were not sent yet: also when the runtime has ended that should have.
struct Jobs(Vec<Job>);

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in self.0.drain(..) {
            let _ = job.answer.send(Word::Alone(job.call));
        }
    }
}

/// Makes one call of these, and hands out its answers.
async fn send(node: Arc<Node>, mut jobs: Jobs) {
    let Some(until) = jobs.0.iter().map(|job| job.until).min() else { return };
    let Some(way) = Way::now(&node, Ack::Free) else { return };
    let (mut calls, mut answers) = (Vec::with_capacity(jobs.0.len()), Vec::with_capacity(jobs.0.len()));
    let (givers, takers): (Vec<_>, Vec<_>) = jobs.0.drain(..).partition(|job| job.call.gives_back());
    for job in givers.into_iter().chain(takers) {
        calls.push(job.call);
        answers.push(job.answer);
    }
    let call = ask::many(calls);
    let replies = match run(&way, &call, false, until).await {
        Ok(Value::Array(replies)) if replies.len() == answers.len() => Ok(replies),
        // Refused as a whole: each of them may hear something else.
        Ok(_) => Ok(vec![Value::Nil; answers.len()]),
        Err(silence) => Err(silence),
    };
    let mut replies = replies.map(Vec::into_iter);
    for (call, answer) in call.members.into_iter().zip(answers) {
        let word = match &mut replies {
            Ok(replies) => match replies.next() {
                Some(Value::Nil) | None => Word::Alone(call),
                Some(value) => Word::Said(Ok(value)),
            },
            Err(silence) => Word::Said(Err(silence.copy())),
        };
        // Who asked may have gone.
        let _ = answer.send(word);
    }
}
