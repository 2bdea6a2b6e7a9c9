//! Many workers on one lock: the history they write, and a counter that only the lock protects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Answer, Capability, Client, Feature, Guard, Options, Result, Store};

use crate::case::cases;
use crate::history::{Found, History, Rules, Step, believed_until, check};
use crate::scene::{LONG, Scene};
use crate::spy::{Call, Spy};
use crate::verdict::{Stop, Verdict};

cases!("contention":
    a_mutex_protects_a_counter_and_its_history_is_clean,
    a_semaphore_lets_no_more_in_than_its_limit,
    a_short_lease_under_contention_loses_nothing,
    waiters_that_give_up_disturb_nobody,
    who_barges_loses_nothing,
);

const WORKERS: u64 = 8;
const ROUNDS: u64 = 25;

/// A connection that writes into the history who has got a place in the queue: workers are known by their label.
pub(super) async fn recording(scene: &Scene, history: &History) -> Verdict<Arc<dyn Store>> {
    let history = history.clone();
    let spy = Spy::new(scene.fixture.store().await?, move |call| {
        if let Call::Claim(claim, Some(Answer::Waiting(_))) = call
            && let Ok(worker) = claim.label.parse()
        {
            history.record(worker, claim.key.as_str(), Step::Queued);
        }
    });
    Ok(Arc::new(spy))
}

/// What one worker does.
struct Worker {
    number: u64,
    client: Client,
    key: leasehold_core::Key,
    limit: u64,
    barging: bool,
    lease: Duration,
    /// Gives up after this long, if at all.
    wait: Option<Duration>,
    history: History,
}

impl Worker {
    /// A mutex where one is let in: stores without semaphores have contention too.
    async fn acquire(&self) -> Result<Option<Guard>> {
        let (key, wait) = (self.key.as_str(), self.wait.unwrap_or(LONG));
        let options = Options::new().lease(self.lease).label(self.number.to_string());
        let options = if self.barging { options.barging() } else { options };
        match self.limit {
            1 => self.client.mutex(key).with(options).acquire_within(wait).await,
            limit => self.client.semaphore(key, limit).with(options).acquire_within(wait).await,
        }
    }

    /// Acquires, works, releases; `true` when it held.
    async fn round(&self, work: impl Future<Output = ()>) -> Verdict<bool> {
        let note = |step| self.history.record(self.number, self.key.as_str(), step);
        note(Step::Asks { units: 1 });
        let guard = match self.acquire().await {
            Ok(guard) => guard,
            // A store that is slow has said nothing when a short wait is over, so nobody knows whether the lock is busy.
            Err(error) if self.wait.is_some() && error.is_retryable() => None,
            Err(error) => return Err(error.into()),
        };
        let Some(guard) = guard else {
            note(Step::Failed);
            return Ok(false);
        };
        let deadline = believed_until(&guard).unwrap_or_default();
        note(Step::Acquired { token: guard.token(), units: 1, deadline });
        work.await;
        note(believed_until(&guard).map_or(Step::Lost, |deadline| Step::Renewed { deadline }));
        note(Step::Releases);
        let found = guard.release().await.map_or(Found::Unknown, Found::from);
        note(Step::Released { found });
        Ok(true)
    }
}

struct Plan {
    limit: u64,
    barging: bool,
    lease: Duration,
    wait: Option<Duration>,
}

/// Lets the workers loose on one key. Every second one has a client of its own, the others share one.
async fn contend(scene: &Scene, plan: Plan, work: impl Fn() -> Work) -> Verdict<(History, u64)> {
    let (history, key) = (History::new(), scene.key());
    let shared = Client::new(recording(scene, &history).await?).await?;
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        let client = if number % 2 == 0 {
            shared.clone()
        } else {
            Client::new(recording(scene, &history).await?).await?
        };
        let (key, history) = (key.clone(), history.clone());
        let Plan { limit, barging, lease, wait } = plan;
        let worker = Worker { number, client, key, limit, barging, lease, wait, history };
        let work = work();
        workers.spawn(async move {
            let mut held = 0;
            for _ in 0..ROUNDS {
                held += u64::from(worker.round(work()).await?);
            }
            Ok::<_, Stop>(held)
        });
    }
    let held = workers.join_all().await.into_iter().sum::<Verdict<u64>>()?;
    scene.until_raw(&key, |now| now.holders == 0 && now.waiters == 0).await?;
    let rules = Rules { limit: plan.limit, ordered: scene.info().ordered && !plan.barging };
    let violations = check(&history.events(), rules);
    if !violations.is_empty() {
        let kept = history.keep();
        return Err(Stop::fail(format_args!("{violations:?}; the history is in {kept:?}")));
    }
    Ok((history, held))
}

type Work = Box<dyn Fn() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Reads, dawdles and writes: two at once lose an update.
fn increment(counter: &Arc<AtomicU64>) -> Work {
    let counter = counter.clone();
    Box::new(move || {
        let counter = counter.clone();
        Box::pin(async move {
            let seen = counter.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            counter.store(seen + 1, Ordering::SeqCst);
        })
    })
}

async fn a_mutex_protects_a_counter_and_its_history_is_clean(scene: Scene) -> Verdict {
    let counter = Arc::new(AtomicU64::new(0));
    let plan = Plan { limit: 1, barging: false, lease: Duration::from_secs(30), wait: None };
    let (history, held) = contend(&scene, plan, || increment(&counter)).await?;
    assert_eq!((held, counter.load(Ordering::SeqCst)), (WORKERS * ROUNDS, WORKERS * ROUNDS));
    if scene.info().can(Capability::Queue) {
        // Otherwise the check of the order has seen nothing.
        assert!(history.events().iter().any(|event| event.step == Step::Queued));
    }
    Ok(())
}

async fn a_short_lease_under_contention_loses_nothing(scene: Scene) -> Verdict {
    let counter = Arc::new(AtomicU64::new(0));
    let plan = Plan { limit: 1, barging: false, lease: scene.lease() * 3, wait: None };
    let (_, held) = contend(&scene, plan, || increment(&counter)).await?;
    assert_eq!((held, counter.load(Ordering::SeqCst)), (WORKERS * ROUNDS, WORKERS * ROUNDS));
    Ok(())
}

async fn who_barges_loses_nothing(scene: Scene) -> Verdict {
    let counter = Arc::new(AtomicU64::new(0));
    let wait = Some(Duration::from_millis(20));
    let plan = Plan { limit: 1, barging: true, lease: Duration::from_secs(30), wait };
    let (_, held) = contend(&scene, plan, || increment(&counter)).await?;
    assert_eq!(counter.load(Ordering::SeqCst), held);
    assert!(held > 0);
    Ok(())
}

async fn waiters_that_give_up_disturb_nobody(scene: Scene) -> Verdict {
    let counter = Arc::new(AtomicU64::new(0));
    let plan = Plan {
        limit: 1,
        barging: false,
        lease: Duration::from_secs(30),
        wait: Some(Duration::from_millis(5)),
    };
    let (_, held) = contend(&scene, plan, || increment(&counter)).await?;
    assert_eq!(counter.load(Ordering::SeqCst), held);
    assert!(held > 0);
    Ok(())
}

async fn a_semaphore_lets_no_more_in_than_its_limit(scene: Scene) -> Verdict {
    scene.needs_feature(Feature::Semaphore)?;
    const LIMIT: u64 = 3;
    let inside = Arc::new(AtomicU64::new(0));
    let plan = Plan { limit: LIMIT, barging: false, lease: Duration::from_secs(30), wait: None };
    let work = || -> Work {
        let inside = inside.clone();
        Box::new(move || {
            let inside = inside.clone();
            Box::pin(async move {
                assert!(inside.fetch_add(1, Ordering::SeqCst) < LIMIT, "more than {LIMIT} inside");
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            })
        })
    };
    let (_, held) = contend(&scene, plan, work).await?;
    assert_eq!(held, WORKERS * ROUNDS);
    Ok(())
}
