//! Giving back.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{ErrorKind, Loss, LossSignal, Released};

use super::{Holding, Worker};
use crate::cancel::{Patience, unless_cancelled};
use crate::setup::{LEASES, LONGEST_LEASE, Leases, Trouble};

impl Worker {
    pub(super) async fn release(&mut self, holding: Holding) {
        let patience = self.patience();
        self.give_back(holding, patience).await;
    }

    pub(super) fn drop_it(&mut self, holding: Holding) {
        self.note("drops", holding.spot, holding.attempts[0], 0);
        drop(holding);
    }

    /// Releases, and judges what the store says that it found.
    pub(super) async fn give_back(&mut self, holding: Holding, patience: Patience) {
        let Holding { attempts, spot, held, rests_until, .. } = holding;
        self.note("releases", spot, attempts[0], 0);
        let was_valid = held.guards().iter().map(|guard| guard.valid_for()).min().unwrap_or_default();
        let signals: Vec<LossSignal> = held.guards().iter().map(|guard| guard.signal()).collect();
        let (started, jumps) = (self.world.now(), self.world.jumps());
        let Some(found) = unless_cancelled(held.release(), patience).await else {
            return self.cancelled(spot, attempts[0]);
        };
        // In the client's time, which may be the faster one.
        let took = (self.world.now() - started).mul_f64(1.2) + Duration::from_millis(2);
        // Perhaps while the release was under way.
        let evicted = self.world.was_evicted(&attempts);
        // Several are given back one after the other: the last may be lost to a closed client or a clock that jumped.
        let is_lost =
            |signal: &LossSignal| signal.lost().now_or_never().is_some_and(|why| why != Loss::Released);
        let lost = signals.iter().any(is_lost);
        // If the client's clock jumped past the lease, the keeper stops naming the claim in the renewals of its session,
        // and the store withdraws it before a late release arrives.
        let jumped = self.world.jumps() != jumps;
        match found {
            Ok(Released::Held) => {
                if let Some(at) = rests_until.filter(|_| !evicted) {
                    self.world.job_rests_until(at);
                }
            }
            Ok(found) if took < was_valid && !evicted && !lost && !jumped => {
                let message = format!("attempt {} was valid, and its release found {found:?}", attempts[0]);
                self.world.violated(message);
            }
            Ok(_) => {}
            Err(error) => self.judge("release", &error),
        }
    }

    pub(super) async fn renew(&mut self, holding: Holding) {
        let shorter = self.world.setup.has(Trouble::ShorterRenewals);
        let lease = if shorter { LEASES[self.random.usize(0..LEASES.len())] } else { LONGEST_LEASE };
        let (patience, on_session) = (self.patience(), self.world.scene.leases == Leases::Sessions);
        self.note("renews", holding.spot, holding.attempts[0], 0);
        self.world.state().attempts.set_fixed(holding.attempts[0], false);
        if let [guard] = holding.held.guards()[..] {
            match unless_cancelled(guard.renew(lease), patience).await {
                None => self.world.count(|coverage| coverage.cancellations += 1),
                Some(Ok(_)) => {}
                // No lease becomes longer than that of the session which carries the claim.
                Some(Err(error)) if on_session && error.kind() == ErrorKind::Unsupported => {}
                Some(Err(error)) => self.judge("renew", &error),
            }
        }
        self.world.look(holding.spot);
        self.held.push(holding);
    }
}
