//! What workers did and when, and whether a lock can explain it.
//!
//! Workers (tasks, threads or processes) write down what they asked for and what they were told, with the time
//! since boot: one clock for everybody on a machine, so that the checker only has to sort. It looks from the
//! outside: it knows what a holder *believed*, and nothing of stores.
//!
//! A limit that changes is part of the history. So are snapshots of the store and, on stores that keep their own
//! history, what they say about each grant: an observer writes them down like a worker.

mod check;
mod limits;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{BootClock, Clock, Guard, Released};
use serde::{Deserialize, Serialize};

pub use check::{Rules, Violation, check};

/// Something that a worker did or was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in microseconds since boot.
    pub at: u64,
    /// Who. A worker makes one attempt at a time on a key.
    pub worker: u64,
    /// On which lock.
    pub key: String,
    /// What.
    pub step: Step,
}

/// A step of an attempt to hold a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// It is about to ask.
    Asks {
        /// For how many units.
        units: u64,
    },
    /// It has a place in the queue.
    Queued,
    /// It holds.
    Acquired {
        /// With this token.
        token: u64,
        /// This many units.
        units: u64,
        /// Until this moment, in microseconds since boot, unless it is renewed.
        deadline: u64,
    },
    /// It was told that it does not hold, and has no place any more.
    Failed,
    /// It does not know whether it holds; if so, until its lease ends.
    Unknown,
    /// It still holds, now until this moment.
    Renewed {
        /// In microseconds since boot.
        deadline: u64,
    },
    /// It was told that it does not hold any more.
    Lost,
    /// It is about to release.
    Releases,
    /// The release was answered.
    Released {
        /// Whether the store still had it.
        found: Found,
    },
    /// It is about to give the lock another limit.
    Resizes {
        /// The limit in force from some moment of the call on.
        limit: u64,
    },
    /// The resize was answered. Without this its outcome is unknown.
    Resized,
    /// It is about to evict the holder with this token.
    Evicts {
        /// The token.
        token: u64,
    },
    /// The store showed these holders in one snapshot.
    Saw {
        /// When the snapshot was asked for, in microseconds since boot.
        asked: u64,
        /// Token and units of each holder.
        holders: Vec<(u64, u64)>,
    },
    /// The store's own history says how the lock stood right after it granted a token.
    Account {
        /// The token.
        token: u64,
        /// The units that all holders had then.
        units: u64,
        /// The limit in force then.
        limit: u64,
    },
}

/// What a release found, as far as the worker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// The claim.
    Held,
    /// Nothing.
    Gone,
    /// Nobody knows.
    Unknown,
}

impl From<Released> for Found {
    fn from(released: Released) -> Self {
        match released {
            Released::Held => Self::Held,
            Released::Waiting | Released::Gone => Self::Gone,
        }
    }
}

/// Microseconds since boot.
pub fn now() -> u64 {
    BootClock.now().as_micros()
}

/// Until when a guard may be relied on without a renewal, in microseconds since boot. `None` once it is lost.
pub fn believed_until(guard: &Guard) -> Option<u64> {
    // The clock is read first: if the thread is paused between the two readings, the deadline is too early, which
    // hides a violation at most. Too late a deadline would invent one.
    let now = BootClock.now();
    let left = guard.valid_for();
    (!left.is_zero()).then(|| (now + left).as_micros())
}

/// Collects the events of many workers. Clones write to the same history.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Vec<Event>>>);

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes down that this happened now.
    pub fn record(&self, worker: u64, key: &str, step: Step) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the order of writing is the order of time.
        events.push(Event { at: now(), worker, key: key.to_owned(), step });
    }

    /// Writes down that this happened earlier: what another process has reported, for instance.
    pub fn record_at(&self, at: u64, worker: u64, key: &str, step: Step) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let later = events.partition_point(|event| event.at <= at);
        events.insert(later, Event { at, worker, key: key.to_owned(), step });
    }

    /// Everything so far, in order.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the history to a temporary file, for a look at what went wrong.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self) -> std::io::Result<PathBuf> {
        let name = format!("leasehold-history-{}-{}.json", std::process::id(), now());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, serde_json::to_vec_pretty(&self.events())?)?;
        Ok(path)
    }
}
