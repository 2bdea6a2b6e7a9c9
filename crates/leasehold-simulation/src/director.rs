//! Whoever makes things go wrong.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Inbox, Key, Promotion, Result};
use tokio::task::JoinHandle;

use crate::setup::{CLIENTS, LONGEST_LEASE, LONGEST_STOP, MOST_PERMITS, Spot, Trouble, WORKERS};
use crate::slot::{Machine, Slot};
use crate::trace::Who;
use crate::weather::Sky;
use crate::worker::Worker;
use crate::world::World;

/// How long closing a client may take: some calls to a store that does not answer.
const CLOSING: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Director {
    pub(crate) world: Arc<World>,
    pub(crate) random: Rng,
    pub(crate) slots: Vec<Slot>,
    pub(crate) workers: Vec<(usize, JoinHandle<()>)>,
    /// A client on a good network, for what administrators do.
    pub(crate) office: Arc<Machine>,
    hired: usize,
}

impl Director {
    /// Starts the machines and their workers.
    pub(crate) async fn start(world: Arc<World>, mut random: Rng) -> Result<Self> {
        let office = Machine::start(&world, 1000, &mut random).await?;
        let mut slots = Vec::new();
        for rate in world.scene.client_rates {
            slots.push(Slot::new(Machine::start(&world, rate, &mut random).await?));
        }
        office.client.latch(Spot::LATCH.name()).set(world.scene.latch_count).await?;
        let workers = Vec::new();
        let mut director = Self { world, random, slots, workers, office, hired: 0 };
        for home in 0..CLIENTS {
            director.hire(home);
        }
        Ok(director)
    }

    /// Puts workers on a machine.
    fn hire(&mut self, home: usize) {
        for _ in 0..WORKERS {
            let (world, slots, random) = (self.world.clone(), self.slots.clone(), self.random.fork());
            let me = Who::Worker(home, self.hired);
            self.hired += 1;
            let (owner, held) = Default::default();
            let worker = Worker { world, me, slots, home, random, owner, held };
            self.workers.push((home, tokio::spawn(worker.run())));
        }
    }

    /// Makes trouble until the events are used up.
    pub(crate) async fn run(&mut self) -> Result<()> {
        loop {
            tokio::time::sleep(Duration::from_micros(self.random.u64(0..300_000))).await;
            if !self.world.next_event() {
                return Ok(());
            }
            let home = self.random.usize(0..CLIENTS);
            let machine = self.slots[home].now();
            let setup = &self.world.setup;
            match self.random.u32(0..100) {
                0..35 => self.turn(home, &machine),
                35..55 if setup.has(Trouble::Evictions) => self.evict(),
                55..67 => self.stop(home, &machine),
                67..75 => {
                    let by = LONGEST_LEASE.mul_f64(self.random.f64());
                    self.world.note(Who::Director, "jumps the clock, ms", None, home as u64, millis(by));
                    machine.clock.jump(by);
                    self.world.count(|coverage| coverage.jumps += 1);
                }
                75..79 if setup.has(Trouble::Closing) => self.close(home, &machine).await?,
                79..83 if setup.has(Trouble::Crashes) => self.crash(home).await?,
                83..90 => self.resize().await?,
                90..92 => self.delete_latch().await?,
                92..96 => {
                    self.world.note(Who::Director, "breaks a connection", None, home as u64, 0);
                    self.world.count(|coverage| coverage.reconnects += 1);
                    machine.sender.reconnected();
                }
                _ if setup.has(Trouble::Forgeries) => self.forge(),
                _ => {}
            }
        }
    }

    fn turn(&mut self, home: usize, machine: &Machine) {
        let (sky, what) = match self.random.u32(0..10) {
            0..2 => (Sky::Clear, "clear sky"),
            2..5 => (Sky::Fair, "fair sky"),
            5..8 => (Sky::Rough, "rough sky"),
            _ => (Sky::Cut, "cut off"),
        };
        self.world.note(Who::Director, what, None, home as u64, 0);
        self.world.count(|coverage| coverage.cuts += u64::from(sky == Sky::Cut));
        machine.weather.turn(sky);
    }

    /// Stops a process for a while; sometimes its clock tells it afterwards that it was longer.
    fn stop(&mut self, home: usize, machine: &Machine) {
        let length = LONGEST_STOP.mul_f64(self.random.f64());
        self.world.note(Who::Director, "stops the process, ms", None, home as u64, millis(length));
        machine.weather.stop_for(length);
        self.world.count(|coverage| coverage.pauses += 1);
    }

    /// Ends somebody's hold.
    fn evict(&mut self) {
        let spot = Spot::ALL[self.random.usize(0..Spot::LATCH.0)];
        let Some(seen) = self.world.inspect(spot) else { return };
        let Some(victim) = self.random.choice(&seen.holders) else { return };
        let attempt = victim.label.parse().unwrap_or(u64::MAX);
        self.world.note(Who::Director, "evicts, token", Some(spot), attempt, victim.token);
        self.world.evicting(attempt, victim.token);
        if spot == Spot::JOB {
            self.world.job_rests_until(Duration::ZERO);
        }
        let key = Key::new(spot.name()).expect("a short name");
        if let Err(error) = self.world.ask(self.world.raw.store().evict(&key, victim.token)) {
            self.world.violated(format!("eviction failed: {error}"));
        }
    }

    /// A stranger reads who waits for what, and tells everybody that the claim holds.
    fn forge(&mut self) {
        let spot = Spot::ALL[self.random.usize(0..Spot::LATCH.0)];
        let waiters = self.world.inspect(spot).map_or_else(Vec::new, |seen| seen.waiters);
        let Some(victim) = self.random.choice(&waiters) else { return };
        let attempt = victim.label.parse().unwrap_or(u64::MAX);
        let token = self.random.u64(1..u64::MAX / 2);
        self.world.note(Who::Director, "forges a promotion", Some(spot), attempt, token);
        self.world.count(|coverage| coverage.forgeries += 1);
        let key = Key::new(spot.name()).expect("a short name");
        // Nobody looks at the inbox of a message that has arrived.
        let (inbox, seat, units) = (Inbox(0), victim.seat, victim.units);
        let promotion = Promotion { key, inbox, seat, token, units };
        self.slots.iter().for_each(|slot| slot.now().sender.forged(&promotion));
    }

    /// Closes a client that is in use; another takes its place.
    async fn close(&mut self, home: usize, machine: &Machine) -> Result<()> {
        self.world.note(Who::Director, "closes the client", None, home as u64, 0);
        self.world.count(|coverage| coverage.closings += 1);
        if tokio::time::timeout(CLOSING, machine.client.close()).await.is_err() {
            self.world.violated(format!("client {home} does not close"));
        }
        let next = Machine::start(&self.world, self.world.scene.client_rates[home], &mut self.random).await?;
        self.slots[home].replace(next);
        Ok(())
    }

    /// A process dies: nothing that it sends arrives any more, and its guards are not given back.
    async fn crash(&mut self, home: usize) -> Result<()> {
        self.world.note(Who::Director, "kills the process", None, home as u64, 0);
        self.world.count(|coverage| coverage.crashes += 1);
        let next = Machine::start(&self.world, self.world.scene.client_rates[home], &mut self.random).await?;
        let dead = self.slots[home].replace(next);
        dead.weather.turn(Sky::Cut);
        for (_, worker) in self.workers.iter().filter(|(at, _)| *at == home) {
            worker.abort();
        }
        self.hire(home);
        Ok(())
    }

    async fn resize(&mut self) -> Result<()> {
        let permits = self.random.u64(self.world.scene.least_permits..=MOST_PERMITS);
        self.world.note(Who::Director, "resizes to", Some(Spot::PERMITS), 0, permits);
        self.world.count(|coverage| coverage.resizes += 1);
        self.office.client.semaphore(Spot::PERMITS.name(), crate::setup::PERMITS).resize(permits).await
    }

    async fn delete_latch(&mut self) -> Result<()> {
        self.world.note(Who::Director, "deletes the latch", Some(Spot::LATCH), 0, 0);
        self.world.state().latch.deleted = true;
        self.office.client.latch(Spot::LATCH.name()).delete().await.map(drop)
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
