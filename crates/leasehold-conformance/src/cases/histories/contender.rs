//! A task that acquires, holds and releases, and writes down what it believes meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Client, Guard, Options, Result};
use tokio::time::{Instant, sleep};

use super::run::{Run, random_up_to};
use crate::gate::Gate;
use crate::history::{Found, Step, believed_until};
use crate::scene::{GLANCE, SLACK};
use crate::verdict::Verdict;

/// The longest of the holds that are too short for a fault to happen in them.
const SHORT_HOLD: Duration = Duration::from_millis(20);
/// One in so many turns is a long one, if there are faults.
const LONG_TURNS: u64 = 4;

/// The contender for a mutex that does not queue. It asks often, so the store soon notices that a lease is over.
const PROBER: u64 = 7;

/// Counts the beginnings and the ends of outages: odd during one.
#[derive(Debug, Default)]
pub(super) struct Outages(AtomicU64);

impl Outages {
    pub(super) fn begin_or_end(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn is_on(&self) -> bool {
        self.count() % 2 == 1
    }
}

/// A client's connection to the store, which can be interrupted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) gate: Gate,
    pub(super) outages: Outages,
}

/// A hold that lasts long enough for a fault to happen in it.
#[derive(Debug)]
pub(super) struct LongHold {
    pub(super) token: u64,
    pub(super) connection: Arc<Connection>,
    has_ended: AtomicBool,
}

impl LongHold {
    /// Whether its holder has decided to release it, or has lost it.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
}

/// A task that contends, and the client that it uses.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) worker: u64,
    pub(super) client: Client,
    pub(super) connection: Arc<Connection>,
    pub(super) run: Arc<Run>,
}

impl Contender {
    fn note(&self, step: Step) {
        self.run.note(self.worker, step);
    }

    /// Acquires, holds for a while and releases, until the run is over.
    pub(super) async fn contend(self) -> Verdict {
        while !self.run.is_over() {
            self.note(Step::Asks { units: 1 });
            match self.acquire().await {
                Ok(Some(guard)) => self.take_turn(guard).await,
                Ok(None) => {
                    self.note(Step::Failed);
                    sleep(GLANCE).await;
                }
                Err(error) => {
                    self.note(Step::Unknown);
                    self.run.forgive(error)?;
                    sleep(GLANCE).await;
                }
            }
        }
        Ok(())
    }

    async fn acquire(&self) -> Result<Option<Guard>> {
        let (client, key) = (&self.client, self.run.key.as_str());
        let options = Options::new().lease(self.run.lease).label(self.worker.to_string());
        match self.run.limit {
            1 if self.worker == PROBER => client.mutex(key).with(options).try_acquire().await,
            1 => client.mutex(key).with(options).acquire_within(SLACK).await,
            limit => client.semaphore(key, limit).with(options).acquire_within(SLACK).await,
        }
    }

    /// Holds for a while and releases.
    async fn take_turn(&self, guard: Guard) {
        let (run, token) = (&self.run, guard.token());
        let deadline = believed_until(&guard).unwrap_or_default();
        self.note(Step::Acquired { token, units: 1, deadline });
        if run.has_faults() && run.turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(LONG_TURNS) {
            let (connection, has_ended) = (self.connection.clone(), AtomicBool::new(false));
            let hold = Arc::new(LongHold { token, connection, has_ended });
            run.offer_to_faults(&hold);
            self.hold(&guard, random_up_to(run.longest)).await;
            hold.has_ended.store(true, Ordering::SeqCst);
        } else {
            self.hold(&guard, random_up_to(SHORT_HOLD)).await;
        }
        self.note(Step::Releases);
        let outages = || [run.cuts.count(), self.connection.outages.count()];
        let before = outages();
        let found = guard.release().await.map_or(Found::Unknown, Found::from);
        // A release that is repeated after a lost reply finds nothing, rightly.
        let is_sure = before == outages() && before.iter().all(|count| count.is_multiple_of(2));
        self.note(Step::Released { found: if is_sure { found } else { Found::Unknown } });
    }

    /// Holds for this long, or until the guard is lost. Writes down each renewal, and the loss.
    ///
    /// A client that cannot reach the store does not end its hold: what it believes meanwhile is what faults break.
    async fn hold(&self, guard: &Guard, time: Duration) {
        let (end, mut known) = (Instant::now() + time, 0);
        while let Some(deadline) = believed_until(guard) {
            if deadline > known {
                known = deadline;
                self.note(Step::Renewed { deadline });
            }
            let left = end.saturating_duration_since(Instant::now());
            let is_cut_off = self.run.cuts.is_on() || self.connection.outages.is_on();
            if (left.is_zero() || self.run.is_over()) && !is_cut_off {
                return;
            }
            let step = if left.is_zero() { GLANCE } else { GLANCE.min(left) };
            let _ = tokio::time::timeout(step, guard.lost()).await;
        }
        self.note(Step::Lost);
    }
}
