//! Requests of many tasks as one call.
//!
//! A call has a price whatever it does: a round trip, a transaction, and above all a commit that waits for the disk. While
//! a few calls are under way, those who come meanwhile gather, and go together as soon as one of them has returned.
//! Where nobody else asks, nobody is waited for.
//!
//! What a call says, and which requests can share one, is the store's. Nothing is repeated here that may have happened.

use std::fmt;
use std::future::Future;
use std::iter::repeat_with;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

#[cfg(test)]
mod tests;

/// The most requests in one call, so that nobody's row is kept for long: some milliseconds.
const MOST: usize = 64;

/// Who has waited for so long is sent off, whatever the others wait for; and a call that takes so long is not waited for.
const OVERDUE: Duration = Duration::from_millis(10);

/// Who makes the calls: the connections of a store. Clones are the same.
pub trait Caller: Clone + Send + Sync + 'static {
    /// The store's name, for errors.
    const STORE: &'static str;
    /// So many calls under way go each on its own: few would gain nothing.
    const FEW: usize;

    /// What can be asked together.
    type Ask: Send + Sync + 'static;
    /// What is said to it.
    type Said: Send + 'static;
    /// What can share a call: requests of the same kind. Those of a smaller kind are sent first.
    type Kind: Ord;

    /// Those who ask.
    fn crowd(&self) -> &Crowd<Self>;

    /// Of which kind a request is.
    fn kind(ask: &Self::Ask) -> Self::Kind;

    /// What it is about. A call is about many in this order, so that two calls never wait for each other.
    fn name(ask: &Self::Ask) -> String;

    /// Makes a call of one request.
    fn alone(&self, ask: Self::Ask, until: Instant) -> impl Future<Output = Result<Self::Said>> + Send;

    /// Makes a call of several, which are of one kind, and answers in their order.
    ///
    /// # Errors
    /// `Indeterminate` when nobody knows whether it happened. Anything else means that nothing happened: each of them is asked
    /// alone then, and may hear something else.
    fn together(
        &self,
        asks: &[Self::Ask],
        until: Instant,
    ) -> impl Future<Output = Result<Vec<Self::Said>>> + Send;
}

/// What became of a request.
enum Word<C: Caller> {
    Said(C::Said),
    Failed(Error),
    /// It did not happen: it must be sent alone.
    Alone(C::Ask),
}

struct Job<C: Caller> {
    ask: C::Ask,
    until: Instant,
    answer: oneshot::Sender<Word<C>>,
}

/// Those who ask.
pub struct Crowd<C: Caller>(Mutex<Desk<C>>);

struct Desk<C: Caller> {
    /// When the calls began that are under way, each with its number.
    under_way: Vec<(u64, Instant)>,
    calls: u64,
    waiting: Vec<Job<C>>,
}

impl<C: Caller> Default for Crowd<C> {
    fn default() -> Self {
        Self(Mutex::new(Desk { under_way: Vec::new(), calls: 0, waiting: Vec::new() }))
    }
}

impl<C: Caller> fmt::Debug for Crowd<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whatever is asked has secrets in it.
        f.debug_struct("Crowd").field("under_way", &self.lock().under_way.len()).finish_non_exhaustive()
    }
}

impl<C: Caller> Crowd<C> {
    /// Asks, together with others who ask at the same time.
    ///
    /// # Errors
    /// What the call said, or `Indeterminate` when it said nothing in time.
    ///
    /// # Cancel safety
    /// Who gives up before anything was sent is not sent.
    pub async fn ask(caller: &C, ask: C::Ask, until: Instant) -> Result<C::Said> {
        let runtime = Handle::current();
        let place = caller.crowd().lock().join(ask, until);
        let mut word = match place {
            Place::Goes(ask, number) => {
                let _under = Under { caller: caller.clone(), runtime, number };
                return caller.alone(ask, until).await;
            }
            Place::Waits(word) => word,
        };
        let word = match timeout(OVERDUE, &mut word).await {
            Ok(word) => Ok(word),
            Err(_) => {
                send_off(caller, &runtime);
                timeout_at(until, word).await
            }
        };
        match word {
            Ok(Ok(Word::Said(said))) => Ok(said),
            Ok(Ok(Word::Failed(error))) => Err(error),
            Ok(Ok(Word::Alone(ask))) => caller.alone(ask, until).await,
            // The runtime that it was sent from is gone, or it is late.
            Ok(Err(_)) | Err(_) => Err(unknown::<C>()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Desk<C>> {
        // Nothing below the lock panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where somebody who asks stands.
enum Place<C: Caller> {
    /// As a call of its own, with this number.
    Goes(C::Ask, u64),
    Waits(oneshot::Receiver<Word<C>>),
}

impl<C: Caller> Desk<C> {
    /// Joins those who wait, unless only a few calls are under way: then this is one more.
    fn join(&mut self, ask: C::Ask, until: Instant) -> Place<C> {
        // One that waits for something at the server must not keep the others from going.
        let in_time = self.under_way.iter().filter(|(_, began)| began.elapsed() < OVERDUE).count();
        if in_time < C::FEW {
            return Place::Goes(ask, self.begin());
        }
        let (answer, word) = oneshot::channel();
        self.waiting.push(Job { ask, until, answer });
        Place::Waits(word)
    }

    fn begin(&mut self) -> u64 {
        self.calls += 1;
        self.under_way.push((self.calls, Instant::now()));
        self.calls
    }

    fn end(&mut self, number: u64) {
        self.under_way.retain(|(known, _)| *known != number);
    }

    /// Makes calls of those who wait.
    fn calls(&mut self) -> Vec<(Vec<Job<C>>, u64)> {
        let mut jobs = std::mem::take(&mut self.waiting);
        // Who gave up before anything was sent is not sent.
        jobs.retain(|job| !job.answer.is_closed());
        jobs.sort_by_cached_key(|job| (C::kind(&job.ask), C::name(&job.ask)));
        let mut calls: Vec<(Vec<Job<C>>, u64)> = Vec::new();
        for job in jobs {
            match calls.last_mut() {
                Some((call, _)) if call.len() < MOST && C::kind(&call[0].ask) == C::kind(&job.ask) => {
                    call.push(job);
                }
                _ => calls.push((vec![job], self.begin())),
            }
        }
        calls
    }
}

/// A call that is under way. When it has returned, or nobody wants its answer any more, those who gathered go.
struct Under<C: Caller> {
    caller: C,
    runtime: Handle,
    number: u64,
}

impl<C: Caller> Drop for Under<C> {
    fn drop(&mut self) {
        self.caller.crowd().lock().end(self.number);
        send_off(&self.caller, &self.runtime);
    }
}

/// Sends off everybody who waits.
fn send_off<C: Caller>(caller: &C, runtime: &Handle) {
    // Not below the lock: a runtime that is gone drops what it is given at once, and with it the call.
    let calls = caller.crowd().lock().calls();
    for (jobs, number) in calls {
        let under = Under { caller: caller.clone(), runtime: runtime.clone(), number };
        runtime.spawn(async move { send(&under.caller, jobs).await });
    }
}

/// Makes one call of these and hands out its answers.
async fn send<C: Caller>(caller: &C, jobs: Vec<Job<C>>) {
    let Some(until) = jobs.iter().map(|job| job.until).min() else { return };
    let (mut asks, answers): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.ask, job.answer)).unzip();
    if asks.len() == 1
        && let Some(ask) = asks.pop()
    {
        let said = caller.alone(ask, until).await;
        return hand_out(answers, [said.map_or_else(Word::Failed, Word::Said)]);
    }
    match caller.together(&asks, until).await {
        Ok(said) if said.len() == answers.len() => hand_out(answers, said.into_iter().map(Word::Said)),
        // Refused as a whole: each of them may hear something else.
        Err(error) if error.kind() != ErrorKind::Indeterminate => {
            hand_out(answers, asks.into_iter().map(Word::Alone));
        }
        // Nobody knows.
        _ => hand_out(answers, repeat_with(|| Word::Failed(unknown::<C>()))),
    }
}

fn hand_out<C: Caller>(answers: Vec<oneshot::Sender<Word<C>>>, words: impl IntoIterator<Item = Word<C>>) {
    for (answer, word) in answers.into_iter().zip(words) {
        // Who asked may have gone.
        let _ = answer.send(word);
    }
}

fn unknown<C: Caller>() -> Error {
    let message = "the connection broke or was silent before the answer: it may have happened";
    Error::new(ErrorKind::Indeterminate, message).at(C::STORE)
}
