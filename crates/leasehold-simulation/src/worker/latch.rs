//! Counting down, and waiting for zero.

use std::time::Duration;

use leasehold_core::ErrorKind;

use super::Worker;
use crate::cancel::unless_cancelled;
use crate::setup::{CALL_TIMEOUT, Spot};

impl Worker {
    pub(super) async fn use_latch(&mut self) {
        let latch = self.machine().client.latch(Spot::LATCH.name());
        let patience = self.patience();
        let limit = Duration::from_micros(self.random.u64(0..3_000_000));
        let outcome = match self.random.u32(0..10) {
            0..2 => {
                // Before it is sent: whatever becomes of it, it may count.
                self.world.state().latch.given += 1;
                self.note("counts down", Spot::LATCH, 0, 0);
                unless_cancelled(latch.count_down(), patience).await.map(|left| left.map(|_| false))
            }
            2..4 if self.held.is_empty() => {
                self.note("waits for the latch", Spot::LATCH, 0, 0);
                unless_cancelled(latch.wait(), patience).await.map(|passed| passed.map(|()| true))
            }
            _ => unless_cancelled(latch.wait_within(limit), patience).await,
        };
        match outcome {
            None => self.world.count(|coverage| coverage.cancellations += 1),
            Some(Ok(true)) => self.passed(),
            Some(Ok(false)) => {}
            Some(Err(error)) => {
                self.judge("latch", &error);
                if error.kind() == ErrorKind::Lost {
                    self.note("the latch is gone", Spot::LATCH, 0, 0);
                }
            }
        }
    }

    /// Sets, counts down, deletes or passes the latch that has many rounds.
    pub(super) async fn use_rounds(&mut self) {
        let mut latch = self.machine().client.latch(Spot::ROUNDS.name());
        let (patience, started) = (self.patience(), self.world.now());
        let limit = Duration::from_micros(self.random.u64(0..1_000_000));
        let outcome = match self.random.u32(0..20) {
            0..6 => {
                let count = self.random.u64(1..=2);
                if self.random.u32(0..3) == 0 {
                    // Mostly short: late copies of the request arrive when the latch has ended.
                    let most = if self.random.u32(0..4) == 0 { 3_000 } else { 300 };
                    latch = latch.lives_for(Duration::from_millis(self.random.u64(1..most)));
                }
                self.note("sets the latch", Spot::ROUNDS, 0, count);
                let set = unless_cancelled(latch.set(count), patience).await;
                let took = self.world.now() - started;
                if took > (CALL_TIMEOUT * 3).mul_f64(1.2) {
                    self.world.violated(format!("{} needed {took:?} to set a latch", self.me));
                }
                set.map(|set| set.map(drop))
            }
            6..13 => {
                self.note("counts down", Spot::ROUNDS, 0, 0);
                unless_cancelled(latch.count_down(), patience).await.map(|left| left.map(drop))
            }
            13 => {
                self.note("deletes the latch", Spot::ROUNDS, 0, 0);
                unless_cancelled(latch.delete(), patience).await.map(|was_set| was_set.map(drop))
            }
            _ => unless_cancelled(latch.wait_within(limit), patience).await.map(|passed| passed.map(drop)),
        };
        match outcome {
            None => self.world.count(|coverage| coverage.cancellations += 1),
            Some(Ok(())) => {}
            Some(Err(error)) => self.judge("latch rounds", &error),
        }
    }

    fn passed(&self) {
        let given = {
            let mut state = self.world.state();
            state.coverage.latch_passes += 1;
            if state.latch.deleted { u64::MAX } else { state.latch.given }
        };
        self.note("passes the latch", Spot::LATCH, 0, given);
        if given < self.world.scene.latch_count {
            let count = self.world.scene.latch_count;
            self.world.violated(format!("{} passed a latch of {count} after {given}", self.me));
        }
    }
}
