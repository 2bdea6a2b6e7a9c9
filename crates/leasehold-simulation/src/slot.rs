//! A client with its own clock and its own network, and the place where its workers find it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::layers::{Faults, Hint};
use leasehold_core::{Client, Options, Result, TestClock};

use crate::sender::Sender;
use crate::setup::{CALL_TIMEOUT, LEASES};
use crate::spy::Spied;
use crate::weather::Weather;
use crate::world::World;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) client: Client,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) weather: Arc<Weather>,
    pub(crate) sender: Sender,
    faults: Faults<Spied>,
    world: Arc<World>,
}

impl Machine {
    /// A process that has just started.
    pub(crate) async fn start(world: &Arc<World>, rate: u64, random: &mut Rng) -> Result<Arc<Self>> {
        let clock = Arc::new(TestClock::with_rate(rate));
        let weather = Arc::new(Weather::new(random.fork(), world));
        let faults = Faults::new(Spied(world.clone()));
        let defaults = Options::new().lease(LEASES[random.usize(0..LEASES.len())]);
        let builder = Client::builder().clock(clock.clone()).call_timeout(CALL_TIMEOUT).defaults(defaults);
        let sender = Sender::new(faults.clone(), world.clone());
        let client = builder.connect(sender.clone()).await?;

        let (sky, ticking) = (weather.clone(), clock.clone());
        faults.plan(move |call| {
            // Every request takes some time. The runtime needs that to tell old answers from new ones.
            ticking.jump(Duration::from_nanos(1));
            sky.fault(call)
        });
        // Weak: the store keeps its hints' way for ever, and is a part of the world itself.
        let (sky, notes) = (weather.clone(), Arc::downgrade(world));
        faults.plan_wakes(move |hint| {
            if let (Hint::Promoted(_), Some(world)) = (hint, notes.upgrade()) {
                world.count(|coverage| coverage.promotions += 1);
            }
            sky.wake(hint)
        });
        Ok(Arc::new(Self { client, clock, weather, sender, faults, world: world.clone() }))
    }

    /// Waits while the process is stopped.
    pub(crate) async fn awake(&self) {
        loop {
            let left = self.weather.stopped_for();
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let injected = self.faults.injected();
        self.world.count(|coverage| coverage.injected(&injected));
    }
}

/// Where a machine stands; another may take its place.
#[derive(Clone, Debug)]
pub(crate) struct Slot(Arc<Mutex<Arc<Machine>>>);

impl Slot {
    pub(crate) fn new(machine: Arc<Machine>) -> Self {
        Self(Arc::new(Mutex::new(machine)))
    }

    pub(crate) fn now(&self) -> Arc<Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace(&self, machine: Arc<Machine>) -> Arc<Machine> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), machine)
    }
}
