//! Everything that the parts of one schedule share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::sessions::Sessions;
use leasehold_core::{Fut, Key, Memory, Result, Snapshot, Store, TestClock};
use tokio::sync::Notify;
use tokio::time::Instant;

use futures_util::FutureExt;

use crate::attempts::{Arrivals, Attempts};
use crate::beliefs::Beliefs;
use crate::copies::Copies;
use crate::coverage::Coverage;
use crate::rounds::Rounds;
use crate::setup::{Leases, Scene, Setup, Spot};
use crate::trace::{Line, Who};

/// A schedule has some thousand lines; with this many somebody asks again and again without letting time pass.
const MOST_LINES: usize = 50_000;

/// A store that can say what is left in it.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Memory(Memory),
    Sessions(Sessions),
}

impl Raw {
    pub(crate) fn store(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store,
            Self::Sessions(store) => store,
        }
    }

    pub(crate) fn residue(&self) -> usize {
        match self {
            Self::Memory(store) => store.residue(),
            Self::Sessions(store) => store.residue(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) scene: Scene,
    pub(crate) raw: Raw,
    start: Instant,
    events_left: AtomicU32,
    state: Mutex<State>,
    /// Somebody found a violation.
    pub(crate) failed: Notify,
}

/// What is written down. Never locked while a store is called: stores call back.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) attempts: Attempts,
    pub(crate) arrivals: Arrivals,
    pub(crate) beliefs: Beliefs,
    pub(crate) coverage: Coverage,
    pub(crate) latch: Latch,
    pub(crate) copies: Copies,
    /// The rounds of the latch that is set again and again.
    pub(crate) rounds: Rounds,
    pub(crate) violation: Option<String>,
    lines: Vec<Line>,
}

/// What is known of the latch.
#[derive(Debug, Default)]
pub(crate) struct Latch {
    /// How far it may have been counted down.
    pub(crate) given: u64,
    /// It may have been deleted.
    pub(crate) deleted: bool,
}

impl World {
    pub(crate) fn new(setup: Setup, scene: Scene) -> Arc<Self> {
        let clock = Arc::new(TestClock::with_rate(scene.store_rate));
        let raw = match scene.leases {
            Leases::PerClaim => Raw::Memory(Memory::with_clock(clock)),
            Leases::Sessions => Raw::Sessions(Sessions::new(clock)),
        };
        let events_left = AtomicU32::new(setup.events);
        let (start, failed) = (Instant::now(), Notify::new());
        Arc::new(Self { setup, scene, raw, start, events_left, state: Mutex::default(), failed })
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one event from those that are left.
    pub(crate) fn next_event(&self) -> bool {
        let taken = self.events_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        self.state().coverage.events += u64::from(taken.is_ok());
        taken.is_ok()
    }

    pub(crate) fn note(&self, who: Who, what: &'static str, spot: Option<Spot>, attempt: u64, number: u64) {
        let line = Line { at: self.now(), who, what, spot, attempt, number };
        let lines = {
            let mut state = self.state();
            state.lines.push(line);
            state.lines.len()
        };
        if lines == MOST_LINES {
            self.violated("the clients and the store talk without end");
            // It may be one task that never lets go of the thread: this ends it.
            panic!("{}", line);
        }
    }

    pub(crate) fn count(&self, what: impl FnOnce(&mut Coverage)) {
        what(&mut self.state().coverage);
    }

    /// How often a client's clock has jumped so far.
    pub(crate) fn jumps(&self) -> u64 {
        self.state().coverage.jumps
    }

    /// A law is broken. The first word counts.
    pub(crate) fn violated(&self, what: impl Into<String>) {
        let at = self.now().as_secs_f64();
        self.state().violation.get_or_insert(format!("at {at:.4}: {}", what.into()));
        self.events_left.store(0, Ordering::Relaxed);
        self.failed.notify_one();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.state().lines.iter().map(ToString::to_string).collect()
    }

    /// Asks the store itself, past all faults. It never waits.
    pub(crate) fn ask<T>(&self, call: Fut<'_, T>) -> Result<T> {
        call.now_or_never().expect("a store in memory is always ready")
    }

    pub(crate) fn inspect(&self, spot: Spot) -> Option<Snapshot> {
        let key = Key::new(spot.name()).expect("a short name");
        let seen = self.ask(self.raw.store().inspect(&key));
        seen.unwrap_or_else(|error| {
            self.violated(format!("the store cannot be inspected: {error}"));
            None
        })
    }
}
