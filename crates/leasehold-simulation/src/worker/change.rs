//! Holds that change: other units, another value, another owner.

use futures_util::future::join;
use leasehold_core::{ErrorKind, Guard, Result, Ticket, WHOLE};

use super::{Holding, Worker};
use crate::attempts::Fairness;
use crate::beliefs::Asker;
use crate::cancel::{Patience, unless_cancelled};
use crate::held::{Held, UPGRADABLE};
use crate::setup::{CALL_TIMEOUT, Leases, Spot};

impl Worker {
    /// Upgrades or downgrades.
    pub(super) async fn change_units(&mut self, holding: Holding) {
        let Holding { attempts, spot, held, owned, rests_until } = holding;
        let attempt = attempts[0];
        let mut way = self.random.u32(0..4);
        if way == 1 && self.held.iter().any(|other| other.spot == spot) {
            // It would wait for itself to stop reading, for ever.
            way = 3;
        }
        let least = match (&held, way) {
            (Held::Upgradable(_), 0) | (Held::Writer(_), 0 | 1) => 1,
            (Held::Writer(_), _) => UPGRADABLE,
            _ => u64::MAX,
        };
        self.note("changes its units", spot, attempt, least);
        self.world.changing(attempt, least);
        let limit = std::time::Duration::from_micros(self.random.u64(0..2_000_000));
        let patience = self.patience();
        let change = async move {
            Ok::<Held, leasehold_core::Error>(match (held, way) {
                (Held::Upgradable(guard), 0) => guard.downgrade().await?.into(),
                (Held::Upgradable(guard), 1) => guard.upgrade().await?.into(),
                (Held::Upgradable(guard), 2) => {
                    guard.try_upgrade().await?.map_or_else(Into::into, Into::into)
                }
                (Held::Upgradable(guard), _) => {
                    guard.upgrade_within(limit).await?.map_or_else(Into::into, Into::into)
                }
                (Held::Writer(guard), 0 | 1) => guard.downgrade().await?.into(),
                (Held::Writer(guard), _) => guard.downgrade_to_upgradable().await?.into(),
                (other, _) => other,
            })
        };
        match unless_cancelled(change, patience).await {
            None => self.cancelled(spot, attempt),
            Some(Err(error)) => self.judge("a change of units", &error),
            Some(Ok(held)) => {
                let units = held.promises().unwrap_or(WHOLE);
                self.world.changed(self.me, attempt, held.guards()[0], units);
                self.world.count(|coverage| match units {
                    WHOLE => coverage.upgrades += 1,
                    _ => coverage.downgrades += 1,
                });
                self.held.push(Holding { attempts, spot, held, owned, rests_until });
            }
        }
    }

    pub(super) async fn proclaim(&mut self, holding: Holding) {
        if let Held::Leader(leader) = &holding.held {
            let patience = self.patience();
            match unless_cancelled(leader.proclaim("again"), patience).await {
                None => self.world.count(|coverage| coverage.cancellations += 1),
                Some(Ok(())) => self.world.count(|coverage| coverage.proclamations += 1),
                Some(Err(error)) => self.judge("proclaim", &error),
            }
        }
        self.held.push(holding);
    }

    /// Hands over by ticket, to two who both want it.
    pub(super) async fn hand_over(&mut self, holding: Holding) {
        let Holding { held: Held::Plain(guard), attempts, spot, owned: false, rests_until: None } = holding
        else {
            return self.held.push(holding);
        };
        self.note("hands over", spot, attempts[0], 0);
        self.world.state().attempts.set_fixed(attempts[0], false);
        let patience = self.patience();
        let ticket = match unless_cancelled(guard.hand_over(), patience).await {
            None => return self.cancelled(spot, attempts[0]),
            Some(Err(error)) => {
                // A session does not outlive its client, so nothing on it can be handed over.
                let on_session = self.world.scene.leases == Leases::Sessions;
                if !(on_session && error.kind() == ErrorKind::Unsupported) {
                    self.judge("hand over", &error);
                }
                return;
            }
            Some(Ok(ticket)) => ticket.to_string(),
        };
        let Ok(ticket) = ticket.parse::<Ticket>() else {
            return self.world.violated("a ticket cannot be read back");
        };
        let ((one, got_one), (two, got_two)) = {
            let (first, second) = (self.adopt(&ticket, spot), self.adopt(&ticket, spot));
            join(first, second).await
        };
        let adopted = usize::from(matches!(got_one, Some(Ok(Some(_)))))
            + usize::from(matches!(got_two, Some(Ok(Some(_)))));
        if adopted == 2 {
            self.world.violated(format!("both {} and {} adopted one ticket", one.attempt, two.attempt));
        }
        self.world.count(|coverage| {
            coverage.hand_overs += u64::from(adopted > 0);
            coverage.second_adopters += u64::from(adopted == 1);
        });
        for (asker, got) in [(one, got_one), (two, got_two)] {
            match got {
                None => self.cancelled(spot, asker.attempt),
                Some(Ok(Some(guard))) => {
                    let (attempts, held) = (vec![asker.attempt], Held::Plain(guard));
                    self.held.push(Holding { attempts, spot, held, owned: false, rests_until: None });
                }
                Some(Ok(None)) => self.failed(&asker),
                Some(Err(error)) => {
                    // A late copy of the giver's claim can bring its id back: then the heir is in the way.
                    if error.kind() != ErrorKind::Conflict {
                        self.judge("adopt", &error);
                    }
                    self.failed(&asker);
                }
            }
        }
    }

    /// One who adopts, on any machine.
    fn adopt(
        &mut self,
        ticket: &Ticket,
        spot: Spot,
    ) -> impl Future<Output = (Asker, Option<Result<Option<Guard>>>)> + Send + use<> {
        let mut asker = self.begin(spot, Fairness::Past, false);
        let (options, mut patience) = (self.options(&mut asker), self.patience());
        if matches!(patience, Patience::Endless) {
            // Its machine may be killed, and this worker lives elsewhere.
            patience = Patience::For(CALL_TIMEOUT * 10);
        }
        let machine = self.slots[self.random.usize(0..self.slots.len())].now();
        let ticket = ticket.clone();
        let world = self.world.clone();
        async move {
            let adopting = machine.client.adopt_with(&ticket, options);
            let adopted = unless_cancelled(adopting, patience).await;
            if let Some(Ok(Some(guard))) = &adopted {
                world.granted(&asker, guard, guard.units());
            }
            (asker, adopted)
        }
    }
}
