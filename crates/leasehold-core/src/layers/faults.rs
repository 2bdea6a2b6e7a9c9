//! A store on a bad network, for tests: late, lost, repeated and reordered calls and hints.
//!
//! A request that was sent lives its own life, as on a real network: it arrives also when its caller has
//! stopped waiting, so a claim can arrive after its own withdrawal. The same seed and the same calls give
//! the same faults; delays run on tokio's clock, so a paused runtime simulates hours in no time.

mod plan;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub use plan::{Call, Fault, Hint, Injected, Odds, Reply, Request, Verb, WakeFault};

use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::error::{Error, ErrorKind};
use crate::key::Key;
use crate::store::{Fut, Page, Promotion, Snapshot, Store, Wake, Wakes};

/// A store with faults on demand. Clones share the plan.
///
/// Give every simulated client a layer of its own around the one shared store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::layers::{Fault, Faults, Reply, Verb};
/// use leasehold_core::{Answer, Claim, ErrorKind, Key, Memory, Store, Units};
/// let store = Faults::new(Memory::new());
/// store.once(Verb::Claim, Fault { reply: Reply::Lost, ..Fault::default() });
/// let claim = Claim::new(Key::new("k")?, 1, Units::Exactly(1))?;
/// assert_eq!(store.claim(&claim).await.unwrap_err().kind(), ErrorKind::Indeterminate);
/// assert!(matches!(store.claim(&claim).await?, Answer::Granted(_))); // it had happened
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Faults<S> {
    inner: Arc<S>,
    weather: Arc<Weather>,
}

impl<S> Clone for Faults<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), weather: self.weather.clone() }
    }
}

impl<S: Store> Faults<S> {
    /// A layer in which nothing goes wrong until a plan says so.
    pub fn new(store: S) -> Self {
        Self { inner: Arc::new(store), weather: Arc::default() }
    }

    /// A layer in which things go wrong at random, the same for the same seed and calls.
    pub fn seeded(store: S, seed: u64, odds: Odds) -> Self {
        let faults = Self::new(store);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut random_wakes = random.fork();
        faults.plan(move |_| odds.fault(&mut random));
        faults.plan_wakes(move |_| odds.wake(&mut random_wakes));
        faults
    }

    /// Decides about every call from now on. The plan must not call the layer.
    pub fn plan(&self, plan: impl FnMut(&Call) -> Fault + Send + 'static) {
        self.weather.lock().plan = Box::new(plan);
    }

    /// Decides about every hint from now on. The plan must not call the layer.
    pub fn plan_wakes(&self, plan: impl FnMut(&Hint) -> WakeFault + Send + 'static) {
        self.weather.lock().wake_plan = Box::new(plan);
    }

    /// Decides about the next call of this kind, before the plan is asked. Several queue up.
    pub fn once(&self, verb: Verb, fault: Fault) {
        self.weather.lock().once.push_back((verb, fault));
    }

    /// From now on nothing gets through, in either direction, until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.plan(|_| Fault { request: Request::Lost, reply: Reply::Never, ..Fault::default() });
        self.plan_wakes(|_| WakeFault::Drop);
    }

    /// From now on everything gets through.
    pub fn heal(&self) {
        self.plan(|_| Fault::default());
        self.plan_wakes(|_| WakeFault::Deliver);
    }

    /// Delivers the hints that were held back, in order, and says how many.
    pub fn deliver_held(&self) -> usize {
        let held = std::mem::take(&mut self.weather.lock().held);
        held.iter().for_each(|(wakes, hint)| hint.deliver(wakes));
        held.len()
    }

    /// What was injected so far.
    pub fn injected(&self) -> Injected {
        self.weather.lock().injected
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Makes a call under the plan. `send` carries it out; it may be called twice.
    fn carry<'a, T: Send + 'static>(
        &'a self,
        verb: Verb,
        key: Option<&'a Key>,
        send: impl Fn(Arc<S>) -> Fut<'static, T> + Send + Sync + 'static,
    ) -> Fut<'a, T> {
        Box::pin(async move {
            let fault = self.weather.decide(verb, key);
            if fault == Fault::default() {
                return send(self.inner.clone()).await;
            }
            if fault.request == Request::Refused {
                rest(fault.before).await;
                let message = "the request was not sent: injected by a test";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            let (answer, reply) = oneshot::channel();
            let (inner, weather) = (self.inner.clone(), self.weather.clone());
            tokio::spawn(async move {
                rest(fault.before).await;
                if fault.request == Request::Lost {
                    return;
                }
                weather.lock().injected.orphaned += u64::from(answer.is_closed());
                let result = send(inner.clone()).await;
                if let Some(later) = fault.again_after {
                    tokio::spawn(async move {
                        rest(later).await;
                        drop(send(inner).await);
                    });
                }
                rest(fault.after).await;
                if fault.reply == Reply::Delivered {
                    // Nobody may be waiting any more.
                    drop(answer.send(result));
                }
            });
            if fault.reply == Reply::Never {
                pending::<()>().await;
            }
            // The sender goes away without an answer when that was lost.
            reply.await.unwrap_or_else(|_| {
                let message = "the reply was lost: injected by a test";
                Err(Error::new(ErrorKind::Indeterminate, message))
            })
        })
    }
}

async fn rest(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

type Plan = Box<dyn FnMut(&Call) -> Fault + Send>;
type WakePlan = Box<dyn FnMut(&Hint) -> WakeFault + Send>;

/// The plan, and what came of it so far.
#[derive(Default)]
struct Weather(Mutex<State>);

struct State {
    plan: Plan,
    wake_plan: WakePlan,
    once: VecDeque<(Verb, Fault)>,
    held: Vec<(Wakes, Hint)>,
    injected: Injected,
}

impl Default for State {
    fn default() -> Self {
        Self {
            plan: Box::new(|_| Fault::default()),
            wake_plan: Box::new(|_| WakeFault::Deliver),
            once: VecDeque::new(),
            held: Vec::new(),
            injected: Injected::default(),
        }
    }
}

impl fmt::Debug for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weather").field("injected", &self.lock().injected).finish_non_exhaustive()
    }
}

impl Weather {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, verb: Verb, key: Option<&Key>) -> Fault {
        let mut state = self.lock();
        state.injected.calls += 1;
        let call = Call { number: state.injected.calls, verb, key: key.cloned() };
        let next = state.once.iter().position(|(wanted, _)| *wanted == verb);
        let fault = match next.and_then(|place| state.once.remove(place)) {
            Some((_, fault)) => fault,
            None => (state.plan)(&call),
        };
        state.injected.count(&fault);
        fault
    }
}

/// The client's sink, under the plan.
#[derive(Debug)]
struct Hints {
    wakes: Wakes,
    weather: Arc<Weather>,
    runtime: Handle,
}

impl Hints {
    fn pass(&self, hint: Hint) {
        let mut state = self.weather.lock();
        let fault = (state.wake_plan)(&hint);
        state.injected.count_wake(fault);
        if fault == WakeFault::Hold {
            state.held.push((self.wakes.clone(), hint));
            return;
        }
        drop(state);
        if matches!(fault, WakeFault::Deliver | WakeFault::Twice(_)) {
            hint.deliver(&self.wakes);
        }
        if let WakeFault::Late(later) | WakeFault::Twice(later) = fault {
            let wakes = self.wakes.clone();
            self.runtime.spawn(async move {
                rest(later).await;
                hint.deliver(&wakes);
            });
        }
    }
}

impl Wake for Hints {
    fn promoted(&self, promotion: &Promotion) {
        self.pass(Hint::Promoted(promotion.clone()));
    }

    fn look(&self, key: &Key) {
        self.pass(Hint::Look(key.clone()));
    }

    fn look_all(&self) {
        self.pass(Hint::LookAll);
    }

    fn is_gone(&self) -> bool {
        self.wakes.is_gone()
    }
}

impl<S: Store> Store for Faults<S> {
    fn info(&self) -> &Info {
        self.inner.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        let weather = self.weather.clone();
        self.carry(Verb::Open, None, move |store| {
            let (wakes, weather) = (wakes.clone(), weather.clone());
            Box::pin(async move {
                let hints = Hints { wakes, weather, runtime: Handle::current() };
                store.open(inbox, Arc::new(hints)).await
            })
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        let sent = claim.clone();
        self.carry(Verb::Claim, Some(&claim.key), move |store| {
            let claim = sent.clone();
            Box::pin(async move { store.claim(&claim).await })
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        let sent = claims.to_vec();
        let key = if let [only] = claims { Some(&only.key) } else { None };
        self.carry(Verb::Renew, key, move |store| {
            let claims = sent.clone();
            Box::pin(async move { store.renew(&claims).await })
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        let sent = (claim.clone(), change.clone());
        self.carry(Verb::Amend, Some(&claim.key), move |store| {
            let (claim, change) = sent.clone();
            Box::pin(async move { store.amend(&claim, &change).await })
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        let sent = claim.clone();
        self.carry(Verb::Release, Some(&claim.key), move |store| {
            let claim = sent.clone();
            Box::pin(async move { store.release(&claim, refuse_for).await })
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        let sent = key.clone();
        self.carry(Verb::Inspect, Some(key), move |store| {
            let key = sent.clone();
            Box::pin(async move { store.inspect(&key).await })
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        let sent = (prefix.to_owned(), cursor.map(ToOwned::to_owned));
        self.carry(Verb::List, None, move |store| {
            let (prefix, cursor) = sent.clone();
            Box::pin(async move { store.list(&prefix, cursor.as_deref()).await })
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        let sent = key.clone();
        self.carry(Verb::Evict, Some(key), move |store| {
            let key = sent.clone();
            Box::pin(async move { store.evict(&key, token).await })
        })
    }
}
