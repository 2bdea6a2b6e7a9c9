//! The network of one client: how it is now, and what that does to a call.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::layers::{Call, Fault, Hint, Reply, Request, Verb, WakeFault};
use tokio::time::Instant;

use crate::setup::{LONGEST_DELAY, Leases, Trouble};
use crate::world::World;

/// How the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sky {
    /// Nothing goes wrong.
    Clear,
    /// Some delays.
    Fair,
    /// Everything that can happen to a message happens to some.
    Rough,
    /// Nothing gets through.
    Cut,
}

#[derive(Debug)]
pub(crate) struct Weather {
    state: Mutex<State>,
    /// Whether changes of a claim may arrive twice.
    repeats_changes: bool,
    /// Whether renewals may arrive late.
    delays_renewals: bool,
}

#[derive(Debug)]
struct State {
    sky: Sky,
    /// The process is stopped until then: what it sends leaves then, what it is told arrives then.
    stopped_until: Option<Instant>,
    random: Rng,
}

impl Weather {
    pub(crate) fn new(random: Rng, world: &World) -> Self {
        let late_rounds = world.setup.has(Trouble::LateRounds);
        Self {
            state: Mutex::new(State { sky: Sky::Clear, stopped_until: None, random }),
            repeats_changes: world.setup.has(Trouble::RepeatedChanges),
            delays_renewals: late_rounds || world.scene.leases == Leases::PerClaim,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn turn(&self, sky: Sky) {
        self.lock().sky = sky;
    }

    /// Stops the process for so long.
    pub(crate) fn stop_for(&self, length: Duration) {
        let until = Instant::now() + length;
        let mut state = self.lock();
        // Never shorter: what is on its way leaves when the process goes on.
        state.stopped_until = state.stopped_until.max(Some(until));
    }

    /// For how long the process is still stopped.
    pub(crate) fn stopped_for(&self) -> Duration {
        self.lock().stopped_for()
    }

    pub(crate) fn fault(&self, call: &Call) -> Fault {
        let mut state = self.lock();
        let mut fault = match state.sky {
            Sky::Clear => Fault::default(),
            Sky::Fair => fair(&mut state.random),
            Sky::Rough => rough(&mut state.random),
            Sky::Cut => Fault { request: Request::Lost, reply: Reply::Never, ..Fault::default() },
        };
        fault.before += state.stopped_for();
        if call.verb == Verb::Amend && !self.repeats_changes {
            fault.again_after = None;
        }
        if call.verb == Verb::Renew && !self.delays_renewals {
            // Whatever is done to it makes it late: it is not sent at all.
            let refused = Fault { request: Request::Refused, ..Fault::default() };
            return if fault == Fault::default() { fault } else { refused };
        }
        fault
    }

    pub(crate) fn wake(&self, _: &Hint) -> WakeFault {
        let mut state = self.lock();
        let stopped = state.stopped_for();
        if !stopped.is_zero() {
            return WakeFault::Late(stopped);
        }
        let odds = state.random.u32(0..100);
        match state.sky {
            Sky::Clear => WakeFault::Deliver,
            Sky::Cut => WakeFault::Drop,
            Sky::Fair if odds < 80 => WakeFault::Deliver,
            Sky::Fair => WakeFault::Late(short(&mut state.random)),
            Sky::Rough => match odds {
                0..20 => WakeFault::Drop,
                20..45 => WakeFault::Late(any(&mut state.random)),
                45..60 => WakeFault::Twice(any(&mut state.random)),
                _ => WakeFault::Deliver,
            },
        }
    }
}

impl State {
    fn stopped_for(&self) -> Duration {
        self.stopped_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

fn short(random: &mut Rng) -> Duration {
    Duration::from_micros(random.u64(0..20_000))
}

fn any(random: &mut Rng) -> Duration {
    if random.bool() { short(random) } else { LONGEST_DELAY.mul_f64(random.f64()) }
}

fn fair(random: &mut Rng) -> Fault {
    match random.u32(0..100) {
        0..15 => Fault { before: short(random), ..Fault::default() },
        15..30 => Fault { after: short(random), ..Fault::default() },
        _ => Fault::default(),
    }
}

fn rough(random: &mut Rng) -> Fault {
    let mut fault = Fault::default();
    if random.u32(0..100) < 30 {
        fault.before = any(random);
    }
    if random.u32(0..100) < 30 {
        fault.after = any(random);
    }
    match random.u32(0..100) {
        0..5 => fault.request = Request::Refused,
        5..10 => fault.request = Request::Lost,
        10..19 => fault.reply = Reply::Lost,
        19..23 => fault.reply = Reply::Never,
        23..28 => (fault.reply, fault.again_after) = (Reply::Lost, Some(any(random))),
        28..36 => fault.again_after = Some(any(random)),
        _ => {}
    }
    fault
}
