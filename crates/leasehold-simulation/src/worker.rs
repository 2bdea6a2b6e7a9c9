//! Somebody who acquires, holds and gives back at random.

mod acquire;
mod change;
mod latch;
mod release;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Error, ErrorKind, Feature, Options, Owner};

use crate::beliefs::Asker;
use crate::cancel::Patience;
use crate::held::Held;
use crate::setup::{Act, LONGEST_LEASE, Spot, Trouble};
use crate::slot::{Machine, Slot};
use crate::trace::Who;
use crate::world::World;

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) world: Arc<World>,
    pub(crate) me: Who,
    /// All machines; a worker lives on one, but hands over to others.
    pub(crate) slots: Vec<Slot>,
    pub(crate) home: usize,
    pub(crate) random: Rng,
    pub(crate) owner: Owner,
    pub(crate) held: Vec<Holding>,
}

/// Something that a worker has in its hands.
#[derive(Debug)]
pub(crate) struct Holding {
    /// The attempts by which its beliefs are known, one per guard.
    attempts: Vec<u64>,
    spot: Spot,
    held: Held,
    /// Acquired on behalf of the worker's owner.
    owned: bool,
    /// When a job that was given back in good order may be started again.
    rests_until: Option<Duration>,
}

impl Worker {
    /// Does what it likes until the events are used up, then gives everything back.
    pub(crate) async fn run(mut self) {
        loop {
            self.machine().awake().await;
            if !self.world.next_event() {
                break;
            }
            let busy = self.held.len();
            match self.random.u32(0..100) {
                0..15 => self.rest().await,
                _ if busy >= 3 || (busy > 0 && self.random.u32(0..100) < 60) => self.use_one().await,
                _ => self.acquire_something().await,
            }
        }
        while let Some(holding) = self.held.pop() {
            self.give_back(holding, Patience::Endless).await;
        }
    }

    fn machine(&self) -> Arc<Machine> {
        self.slots[self.home].now()
    }

    /// Does something with what it holds.
    async fn use_one(&mut self) {
        let index = self.random.usize(0..self.held.len());
        let holding = self.held.swap_remove(index);
        for (attempt, guard) in holding.attempts.iter().zip(holding.held.guards()) {
            self.world.seen(*attempt, guard);
        }
        self.world.look(holding.spot);
        let upgrades = self.world.setup.has(Trouble::Upgrades);
        match self.random.u32(0..100) {
            0..35 => self.release(holding).await,
            35..50 => self.drop_it(holding),
            50..60 => self.renew(holding).await,
            60..70 if self.world.setup.has(Trouble::HandOvers) => self.hand_over(holding).await,
            70..80 if matches!(holding.held, Held::Leader(_)) => self.proclaim(holding).await,
            70..80 if holding.owned => self.enter_again(holding).await,
            _ if holding.spot == Spot::READ_WRITE && upgrades => self.change_units(holding).await,
            _ => {
                self.held.push(holding);
                self.rest().await;
            }
        }
    }

    async fn acquire_something(&mut self) {
        let act = self.world.scene.acts[self.random.usize(0..self.world.scene.acts.len())];
        match act {
            Act::Latch => self.use_latch().await,
            Act::LatchRounds => self.use_rounds().await,
            Act::Multi => self.acquire_many().await,
            Act::Job => self.start_job().await,
            _ => self.acquire_one(act).await,
        }
    }

    /// Lets time pass: a moment, a part of a lease, or several leases.
    async fn rest(&mut self) {
        let most = match self.random.u32(0..10) {
            0..5 => 10_000,
            5..9 => 500_000,
            _ => 4_000_000,
        };
        tokio::time::sleep(Duration::from_micros(self.random.u64(0..most))).await;
    }

    /// When a future is given up, if ever.
    fn patience(&mut self) -> Patience {
        if !self.world.setup.has(Trouble::Cancellations) {
            return Patience::Endless;
        }
        match self.random.u32(0..100) {
            0..12 => Patience::Polls(self.random.u32(1..8)),
            12..20 => Patience::For(Duration::from_micros(self.random.u64(0..1_500_000))),
            _ => Patience::Endless,
        }
    }

    /// The same, or when it is left alone. Not while it is a part of several: the others are held meanwhile.
    fn patience_to_acquire(&mut self) -> Patience {
        if !self.world.setup.has(Trouble::Forgetting) || self.random.u32(0..100) >= 10 {
            return self.patience();
        }
        let millis =
            if self.random.bool() { self.random.u64(0..4_000) } else { self.random.u64(16_000..20_000) };
        Patience::Forgets(self.random.u32(1..4), Duration::from_millis(millis))
    }

    /// Options of all kinds, with the attempt's number as the label.
    fn options(&mut self, asker: &mut Asker) -> Options {
        let lengths = &self.world.scene.lengths;
        let lease = lengths[self.random.usize(0..lengths.len())];
        let mut options = Options::new().lease(lease);
        match self.random.u32(0..100) {
            0..10 => {
                self.world.state().attempts.set_fixed(asker.attempt, true);
                options = options.fixed(lease);
            }
            10..18 => {
                let limit = LONGEST_LEASE.mul_f64(self.random.f64());
                asker.max_hold = Some(limit);
                options = options.max_hold(limit);
            }
            18..26 => {
                let delay = Duration::from_millis(self.random.u64(0..1000));
                if self.world.raw.store().info().supports(Feature::LockDelay) {
                    options = options.lock_delay(delay);
                }
            }
            _ => {}
        }
        options.label(asker.attempt.to_string())
    }

    /// Whether the error is one that a fault explains.
    fn judge(&self, what: &str, error: &Error) {
        use ErrorKind::{Indeterminate, Lost, Unavailable};
        if !matches!(error.kind(), Unavailable | Indeterminate | Lost) {
            self.world.violated(format!("{}: {what}: unexpected error: {error}", self.me));
        }
    }

    fn note(&self, what: &'static str, spot: Spot, attempt: u64, number: u64) {
        self.world.note(self.me, what, Some(spot), attempt, number);
    }

    fn cancelled(&self, spot: Spot, attempt: u64) {
        self.note("cancelled", spot, attempt, 0);
        self.world.count(|coverage| coverage.cancellations += 1);
        self.over(attempt);
    }

    /// An attempt has ended without a guard.
    fn over(&self, attempt: u64) {
        let now = self.world.now();
        let mut state = self.world.state();
        state.attempts.over(attempt);
        state.copies.over(attempt, now);
    }
}
