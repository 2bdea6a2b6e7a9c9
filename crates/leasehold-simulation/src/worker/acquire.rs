//! Acquiring, in all ways that there are.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Guard, Multi, Options, Part, Request, Result};

use super::{Holding, Worker};
use crate::attempts::Fairness;
use crate::beliefs::Asker;
use crate::cancel::{Patience, unless_cancelled, unless_forgotten};
use crate::held::Held;
use crate::setup::{Act, CALL_TIMEOUT, LONGEST_LEASE, PERMITS, Spot};

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    Not,
    Within(Duration),
    Forever,
}

type Asking = Pin<Box<dyn Future<Output = Result<Option<Held>>> + Send>>;

/// Runs a request.
fn ask<G: From<Guard> + Into<Held> + Send + 'static>(request: Request<G>, wait: Wait) -> Asking {
    Box::pin(async move {
        let got = match wait {
            Wait::Not => request.try_acquire().await?,
            Wait::Within(limit) => request.acquire_within(limit).await?,
            Wait::Forever => Some(request.acquire().await?),
        };
        Ok(got.map(Into::into))
    })
}

impl Worker {
    pub(super) async fn acquire_one(&mut self, act: Act) {
        let spot = match act {
            Act::Permits => Spot::PERMITS,
            Act::ReadWrite => Spot::READ_WRITE,
            Act::Election => Spot::THRONE,
            _ => Spot::MUTEXES[self.random.usize(0..2)],
        };
        let has_owner = act == Act::Mutex && self.random.u32(0..4) == 0;
        let barges = !has_owner && self.random.u32(0..self.world.scene.barging) == 0;
        let fairness = if barges { Fairness::Past } else { Fairness::Fair };
        let mut asker = self.begin(spot, fairness, has_owner);
        let mut options = self.options(&mut asker);
        if has_owner {
            options = options.owner(&self.owner);
        }
        if barges {
            options = options.barging();
        }
        let wait = self.wait();
        let asking = self.asking(&self.machine().client.clone(), spot, options, wait);
        self.settle(asker, asking, wait).await;
    }

    fn asking(&mut self, client: &Client, spot: Spot, options: Options, wait: Wait) -> Asking {
        let name = spot.name();
        match spot {
            Spot::PERMITS => {
                let permits = client.semaphore(name, PERMITS).with(options);
                let n = self.random.u64(1..=PERMITS);
                ask(if self.random.bool() { permits.permits(n) } else { permits.up_to(n) }, wait)
            }
            Spot::READ_WRITE => {
                let lock = client.rwlock(name).with(options);
                match self.random.u32(0..4) {
                    0 | 1 => ask(lock.read(), wait),
                    2 => ask(lock.upgradable(), wait),
                    _ => ask(lock.write(), wait),
                }
            }
            Spot::THRONE => {
                let election = client.election(name).with(options);
                ask(election.candidate(self.me.to_string()), wait)
            }
            _ => ask(client.mutex(name).with(options).into_request(), wait),
        }
    }

    /// Several mutexes at once, named in any order.
    pub(super) async fn acquire_many(&mut self) {
        let how_many = self.random.usize(2..=3);
        let spots = self.random.choose_multiple(Spot::MUTEXES, how_many);
        let client = self.machine().client.clone();
        let (mut multi, mut askers) = (Multi::new(), Vec::new());
        for spot in spots {
            let mut asker = self.begin(spot, Fairness::Fair, false);
            let options = self.options(&mut asker);
            multi = multi.and(client.mutex(spot.name()).with(options));
            askers.push(asker);
        }
        // Guards come back in the order of their keys.
        askers.sort_by_key(|asker| asker.spot);
        let (wait, patience) = (self.wait(), self.patience());
        let asking = async move {
            match wait {
                Wait::Not => multi.try_acquire().await,
                Wait::Within(limit) => multi.acquire_within(limit).await,
                Wait::Forever => multi.acquire().await.map(Some),
            }
        };
        match unless_cancelled(asking, patience).await {
            None => askers.iter().for_each(|asker| self.cancelled(asker.spot, asker.attempt)),
            Some(Ok(Some(guards))) => {
                let parts = askers.iter().zip(guards.guards());
                let attempts =
                    parts.map(|(asker, guard)| self.world.granted(asker, guard, guard.units())).collect();
                let (spot, held) = (askers[0].spot, Held::Many(guards));
                self.held.push(Holding { attempts, spot, held, owned: false, rests_until: None });
            }
            Some(other) => {
                if let Err(error) = other {
                    self.judge("multi", &error);
                }
                askers.iter().for_each(|asker| self.failed(asker));
            }
        }
    }

    /// Starts a job, if nobody runs it.
    pub(super) async fn start_job(&mut self) {
        let mut asker = self.begin(Spot::JOB, Fairness::Fair, false);
        let at_least = LONGEST_LEASE.mul_f64(self.random.f64() / 2.0);
        // Most jobs are allowed far more time than they take.
        let longer = if self.random.bool() { 5.0 } else { 0.5 };
        let at_most = at_least + LONGEST_LEASE.mul_f64(0.1 + self.random.f64() * longer);
        (asker.lease, asker.max_hold) = (asker.lease.max(at_least), Some(at_most));
        let job = self.machine().client.job(Spot::JOB.name()).at_least(at_least).at_most(at_most);
        let job = job.label(asker.attempt.to_string());
        let before = self.held.len();
        let asking: Asking = Box::pin(async move { Ok(job.start().await?.map(Held::Plain)) });
        self.settle(asker, asking, Wait::Not).await;
        if let Some(started) = self.held.get_mut(before) {
            // By a clock that may be fast.
            let rests_until = self.world.now() + at_least.mul_f64(0.9);
            started.rests_until = Some(rests_until);
            let is_evicted = self.world.was_evicted(&started.attempts);
            if !is_evicted && self.world.raw.store().info().keeps_at_least() {
                // Whatever becomes of the process.
                self.world.job_rests_until(rests_until);
            }
        }
    }

    /// Acquires again, on behalf of the same owner, what that holds already.
    pub(super) async fn enter_again(&mut self, outer: Holding) {
        let mut asker = self.begin(outer.spot, Fairness::Fair, true);
        let options = self.options(&mut asker).owner(&self.owner);
        let asking = self.asking(&self.machine().client.clone(), outer.spot, options, Wait::Not);
        self.held.push(outer);
        self.settle(asker, asking, Wait::Not).await;
    }

    /// Asks, unless it is given up, and takes what comes of it.
    async fn settle(&mut self, asker: Asker, asking: Asking, wait: Wait) {
        let (patience, started) = (self.patience_to_acquire(), self.world.now());
        let (world, forgotten) = (self.world.clone(), asker);
        let outcome = unless_forgotten(asking, patience, move || world.remembered(&forgotten)).await;
        if matches!(patience, Patience::Endless) {
            self.check_time(&asker, wait, self.world.now() - started);
        }
        match outcome {
            None => self.cancelled(asker.spot, asker.attempt),
            Some(Ok(Some(held))) => self.take(asker, held),
            Some(Ok(None)) => self.failed(&asker),
            Some(Err(error)) => {
                let is_too_much = asker.spot == Spot::PERMITS
                    && !self.world.scene.all_permits_fit()
                    && matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Invalid);
                if !is_too_much {
                    self.judge("acquire", &error);
                }
                self.failed(&asker);
            }
        }
    }

    pub(super) fn take(&mut self, asker: Asker, held: Held) {
        let guards = held.guards();
        let units = held.promises().unwrap_or_else(|| guards[0].units());
        let attempts = vec![self.world.granted(&asker, guards[0], units)];
        let (spot, owned) = (asker.spot, asker.has_owner);
        self.held.push(Holding { attempts, spot, held, owned, rests_until: None });
    }

    /// Every wait ends when it should, whatever the store does.
    fn check_time(&self, asker: &Asker, wait: Wait, took: Duration) {
        let most = match wait {
            Wait::Forever => return,
            Wait::Not => (CALL_TIMEOUT * 2).mul_f64(1.2),
            // A slow clock, and a second to find out whether the store is out of reach.
            Wait::Within(limit) => limit.mul_f64(1.2) + Duration::from_millis(1_100),
        };
        if took > most {
            let Asker { attempt, spot, .. } = asker;
            self.world.violated(format!("attempt {attempt} on {} took {took:?}: {wait:?}", spot.name()));
        }
    }

    fn wait(&mut self) -> Wait {
        match self.random.u32(0..10) {
            0..3 => Wait::Not,
            // Who holds something does not wait for ever: that is how deadlocks are made.
            3..6 if self.held.is_empty() => Wait::Forever,
            _ => Wait::Within(Duration::from_micros(self.random.u64(0..3_000_000))),
        }
    }

    pub(super) fn begin(&self, spot: Spot, fairness: Fairness, has_owner: bool) -> Asker {
        let now = self.world.now();
        let attempt = self.world.state().attempts.begin(spot, fairness, now);
        self.note("asks", spot, attempt, 0);
        Asker { who: self.me, attempt, spot, has_owner, max_hold: None, lease: LONGEST_LEASE }
    }

    pub(super) fn failed(&self, asker: &Asker) {
        self.note("does not get it", asker.spot, asker.attempt, 0);
        self.over(asker.attempt);
    }
}
