//! Counting down, and waiting for zero.

use std::time::Duration;

use leasehold_core::ErrorKind;

use super::Worker;
use crate::cancel::unless_cancelled;
use crate::setup::Spot;

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
