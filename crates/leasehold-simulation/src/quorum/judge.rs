//! Watches the guards: no two of them are valid, and tokens rise.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{Guard, LossSignal};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::QuorumCoverage;

#[derive(Debug)]
pub(super) struct Judge {
    start: Instant,
    state: Mutex<State>,
    /// A violation was found.
    pub(super) failed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The guards that may be valid: whose they are, and their tokens.
    held: Vec<(usize, u64, LossSignal)>,
    last: u64,
    violation: Option<String>,
    story: Vec<String>,
    coverage: QuorumCoverage,
}

impl Default for Judge {
    fn default() -> Self {
        // Outside of the runtime; simulated time starts about now.
        Self { start: Instant::now(), state: Mutex::default(), failed: Notify::new() }
    }
}

impl Judge {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, client: usize, what: &str) {
        let at = self.start.elapsed().as_secs_f64();
        self.lock().story.push(format!("{at:9.4}  client {client} {what}"));
    }

    pub(super) fn count(&self, what: impl FnOnce(&mut QuorumCoverage)) {
        what(&mut self.lock().coverage);
    }

    /// A law is broken. Only the first violation is reported: later ones may follow from it.
    pub(super) fn violated(&self, what: &str) {
        let at = self.start.elapsed().as_secs_f64();
        self.lock().violation.get_or_insert(format!("at {at:.4}: {what}"));
        self.failed.notify_one();
    }

    /// A guard was handed out. A second valid guard can only appear now, so this is the moment to look at the others.
    pub(super) fn granted(&self, client: usize, guard: &Guard) {
        let token = guard.token();
        self.note(client, &format!("holds, token {token}"));
        let problem = {
            let mut state = self.lock();
            state.coverage.grants += 1;
            state.held.retain(|(_, _, signal)| !signal.is_lost());
            let other = state.held.first().map(|(holder, other, _)| {
                format!("two valid guards: client {holder} with token {other}, client {client} with {token}")
            });
            let fell = (token <= state.last)
                .then(|| format!("client {client} got token {token} after {}", state.last));
            state.last = state.last.max(token);
            state.held.push((client, token, guard.signal()));
            other.or(fell)
        };
        if let Some(problem) = problem.filter(|_| guard.is_valid()) {
            self.violated(&problem);
        }
    }

    pub(super) fn verdict(&self) -> (Option<String>, Vec<String>, QuorumCoverage) {
        let mut state = self.lock();
        (state.violation.take(), std::mem::take(&mut state.story), state.coverage)
    }
}
