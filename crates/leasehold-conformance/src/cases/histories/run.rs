//! Eight tasks that contend for one lock, and the verdict on the history that they leave.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Client, ClientBuilder, Error, ErrorKind, Key, WHOLE};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::contender::{Connection, Contender, LongHold, Outages};
use crate::cases::contention::recording;
use crate::gate::Gate;
use crate::history::{History, Rules, Step, believed_until, check, now};
use crate::scene::{GLANCE, SLACK, Scene, soon};
use crate::verdict::{Stop, Verdict};

const WORKERS: u64 = 8;
/// The worker numbers of the task that resizes or evicts, of the task that inspects, and of processes that are killed.
pub(super) const OPERATOR: u64 = WORKERS;
const OBSERVER: u64 = WORKERS + 1;
pub(super) const VICTIM: u64 = WORKERS + 2;
/// The limit that all claims of the semaphore declare.
pub(super) const DECLARED: u64 = 2;
/// How long a client of one contender waits for a reply if there are faults. Some give up during an outage.
const IMPATIENT: Duration = Duration::from_secs(1);

/// A random time up to this.
pub(super) fn random_up_to(most: Duration) -> Duration {
    most.mul_f64(fastrand::f64())
}

/// What the tasks of one run share.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) key: Key,
    pub(super) limit: u64,
    pub(super) lease: Duration,
    /// The longest hold, and the longest outage; zero if there are no faults.
    pub(super) longest: Duration,
    pub(super) history: History,
    is_over: watch::Sender<bool>,
    /// How many turns there were so far.
    pub(super) turns: AtomicU64,
    /// Outages of the store itself.
    pub(super) cuts: Outages,
    /// The last long hold, until a fault takes it.
    long_hold: Mutex<Option<Arc<LongHold>>>,
}

impl Run {
    /// Eight tasks that contend for permits of a semaphore which is resized.
    pub(super) fn with_resizes(key: Key) -> Arc<Self> {
        Arc::new(Self { limit: DECLARED, ..Self::new(key, Duration::from_secs(30)) })
    }

    /// Eight tasks that contend for a mutex while faults happen. Holds and outages last up to `longest`.
    pub(super) fn with_faults(key: Key, lease: Duration, longest: Duration) -> Arc<Self> {
        Arc::new(Self { longest, ..Self::new(key, lease) })
    }

    fn new(key: Key, lease: Duration) -> Self {
        Self {
            key,
            limit: 1,
            lease,
            longest: Duration::ZERO,
            history: History::new(),
            is_over: watch::Sender::new(false),
            turns: AtomicU64::new(0),
            cuts: Outages::default(),
            long_hold: Mutex::default(),
        }
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.longest.is_zero()
    }

    pub(super) fn note(&self, worker: u64, step: Step) {
        self.history.record(worker, self.key.as_str(), step);
    }

    pub(super) fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Sleeps for this long, or until the run is over.
    pub(super) async fn rest(&self, time: Duration) {
        let mut is_over = self.is_over.subscribe();
        // The sender lives as long as `self` does; a timeout is the usual end.
        let _ = tokio::time::timeout(time, is_over.wait_for(|is_over| *is_over)).await;
    }

    /// Lets a fault happen to this hold.
    pub(super) fn offer_to_faults(&self, hold: &Arc<LongHold>) {
        *self.lock_long_hold() = Some(hold.clone());
    }

    /// Waits for a long hold to which no other fault happens. `None` when the run is over.
    pub(super) async fn next_long_hold(&self) -> Option<Arc<LongHold>> {
        while !self.is_over() {
            let offered = self.lock_long_hold().take();
            match offered.filter(|hold| !hold.has_ended()) {
                Some(hold) => return Some(hold),
                None => self.rest(GLANCE).await,
            }
        }
        None
    }

    fn lock_long_hold(&self) -> MutexGuard<'_, Option<Arc<LongHold>>> {
        self.long_hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an error on, unless a fault explains it.
    pub(super) fn forgive(&self, error: Error) -> Verdict {
        let is_explained = error.is_retryable() || error.kind() == ErrorKind::Lost;
        if self.has_faults() && is_explained { Ok(()) } else { Err(error.into()) }
    }

    /// Writes down snapshots of the store until the run is over.
    pub(super) async fn observe(&self, client: Client) -> Verdict {
        while !self.is_over() {
            let asked = now();
            let seen = client.inspect(self.key.as_str()).await?;
            let holders = seen.map_or_else(Vec::new, |seen| seen.holders);
            let holders = holders.iter().map(|holder| (holder.token, holder.units)).collect();
            self.note(OBSERVER, Step::Saw { asked, holders });
            sleep(random_up_to(Duration::from_millis(2))).await;
        }
        Ok(())
    }

    /// Starts the contenders. Some share a client, so that locks are also handed over within a client. If there are
    /// faults these are few: a client that is isolated takes no part in the contention.
    pub(super) async fn start(self: &Arc<Self>, scene: &Scene) -> Verdict<JoinSet<Verdict>> {
        let shared = self.connect(scene, Client::builder()).await?;
        let (one_in, own) = match self.has_faults() {
            true => (4, Client::builder().call_timeout(IMPATIENT)),
            false => (2, Client::builder()),
        };
        let mut tasks = JoinSet::new();
        for worker in 0..WORKERS {
            let (client, connection) = match worker.is_multiple_of(one_in) {
                true => shared.clone(),
                false => self.connect(scene, own.clone()).await?,
            };
            tasks.spawn(Contender { worker, client, connection, run: self.clone() }.contend());
        }
        Ok(tasks)
    }

    /// A client whose places in the queue are in the history.
    async fn connect(&self, scene: &Scene, builder: ClientBuilder) -> Verdict<(Client, Arc<Connection>)> {
        let gate = Gate::new(recording(scene, &self.history).await?);
        let client = builder.connect(gate.clone()).await?;
        Ok((client, Arc::new(Connection { gate, outages: Outages::default() })))
    }

    /// Ends the run and judges its history. Answers how many grants there were.
    pub(super) async fn finish(
        &self,
        scene: &Scene,
        tasks: JoinSet<Verdict>,
        ordered: bool,
    ) -> Verdict<usize> {
        self.is_over.send_replace(true);
        for done in soon(tasks.join_all()).await? {
            done?;
        }
        self.use_once_more(scene).await?;
        scene.until_raw(&self.key, |now| now.holders == 0 && now.waiters == 0).await?;
        let granted = self.account(scene).await?;
        let rules = Rules { limit: self.limit, ordered: ordered && scene.info().ordered };
        let violations = check(&self.history.events(), rules);
        if !violations.is_empty() {
            let kept = self.history.keep();
            let (many, first) = (violations.len(), &violations[0]);
            return Err(Stop::fail(format_args!(
                "{many} of {granted} grants are wrong, first {first:?}; the history is in {kept:?}"
            )));
        }
        Ok(granted)
    }

    /// Acquires and releases for the last time: whatever happened, the key comes free. Some stores leave it to the next
    /// client to remove a holder that is over.
    async fn use_once_more(&self, scene: &Scene) -> Verdict {
        let (client, limit) =
            (scene.fixture.connect().await?, scene.lease() + scene.info().expiry_slack + SLACK);
        self.note(OPERATOR, Step::Asks { units: 1 });
        let guard = match self.limit {
            1 => client.mutex(self.key.as_str()).acquire_within(limit).await?,
            permits => client.semaphore(self.key.as_str(), permits).acquire_within(limit).await?,
        };
        let guard = guard.ok_or_else(|| Stop::fail(format_args!("not free after {limit:?}")))?;
        let (token, deadline) = (guard.token(), believed_until(&guard).unwrap_or_default());
        self.note(OPERATOR, Step::Acquired { token, units: 1, deadline });
        self.note(OPERATOR, Step::Releases);
        guard.release().await?;
        Ok(())
    }

    /// Adds what the store's own history says about each grant. Answers how many grants there were.
    async fn account(&self, scene: &Scene) -> Verdict<usize> {
        let mut granted = 0;
        for event in self.history.events() {
            let Step::Acquired { token, .. } = event.step else { continue };
            granted += 1;
            if let Some(then) = scene.fixture.at_grant(&self.key, token).await? {
                // A mutex holds all that the readers and the writer of its key can have.
                let declared = if self.limit == 1 { WHOLE } else { self.limit };
                let (units, limit) = (then.units, then.limit.unwrap_or(declared));
                self.note(OBSERVER, Step::Account { token, units, limit });
            }
        }
        Ok(granted)
    }
}
