//! What happened in all schedules together: a simulation in which nothing happens finds nothing.

use std::fmt;

use leasehold_core::Loss;
use leasehold_core::layers::Injected;

use crate::setup::{Setup, Trouble};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// How often what happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Coverage { $($(#[$doc])* pub $name: u64),+ }

        impl Coverage {
            /// Adds what happened elsewhere.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }

            /// Every counter with its name.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    /// Schedules that were run.
    schedules,
    /// Things that workers and the director did.
    events,
    /// Calls that clients made.
    calls,
    /// Guards that were handed out.
    grants,
    /// Promotions that the store announced.
    promotions,
    /// Guards lost because they were not renewed in time.
    lost_expired,
    /// Guards lost because the store had ended them.
    lost_gone,
    /// Guards lost to `max_hold`.
    lost_held_too_long,
    /// Guards lost because their client was closed.
    lost_closed,
    /// Replies that never came, though the request was carried out.
    lost_replies,
    /// Requests that never arrived.
    lost_requests,
    /// Requests or replies that were late.
    late,
    /// Requests that arrived twice.
    duplicated,
    /// Hints that never came.
    hints_dropped,
    /// Hints that came late or twice.
    hints_late,
    /// Futures dropped half-way.
    cancellations,
    /// Requests carried out after their caller had gone.
    orphaned,
    /// Claims that arrived when nobody wanted them any more.
    ghosts,
    /// Renewals that found a claim gone, or withdrew a ghost.
    reconciliations,
    /// Holds ended by an administrator.
    evictions,
    /// Tickets adopted.
    hand_overs,
    /// Tickets adopted by one of two, and not by the other.
    second_adopters,
    /// Readers that became writers.
    upgrades,
    /// Writers that became readers.
    downgrades,
    /// Holds that their owner joined.
    joins,
    /// Waiters that passed a latch.
    latch_passes,
    /// Terms of a leader who published more than once.
    proclamations,
    /// Semaphores that got another size.
    resizes,
    /// Processes that were stopped for a while.
    pauses,
    /// Clocks that jumped.
    jumps,
    /// Clients that were closed in use.
    closings,
    /// Clients that died without a word.
    crashes,
    /// Networks that were cut for a while.
    cuts,
    /// Connections that were opened again.
    reconnects,
    /// Promotions that a stranger sent.
    forgeries,
    /// Futures that were polled again after they had been left alone.
    forgotten,
    /// Rounds of a latch that was set again and again.
    latch_rounds,
    /// Those of them that a deletion ended.
    latch_deletions,
    /// Those of them that ended by themselves, because the latch was set for some time.
    latch_timeouts,
}

impl Coverage {
    /// What no run of this setup may be without.
    pub fn missing(&self, setup: &Setup) -> Vec<&'static str> {
        let is_of_rounds = |name: &str| ["latch_rounds", "latch_deletions", "latch_timeouts"].contains(&name);
        let is_left_out = |name: &str| is_of_rounds(name) && !setup.has(Trouble::LatchRounds);
        let never = self.all().into_iter().filter(|(_, n)| *n == 0).map(|(name, _)| name);
        never.filter(|name| !is_left_out(name)).collect()
    }

    pub(crate) fn lost(&mut self, loss: Loss) {
        match loss {
            Loss::Expired => self.lost_expired += 1,
            Loss::Gone => self.lost_gone += 1,
            Loss::HeldTooLong => self.lost_held_too_long += 1,
            Loss::Closed => self.lost_closed += 1,
            _ => {}
        }
    }

    pub(crate) fn injected(&mut self, by: &Injected) {
        self.calls += by.calls;
        self.late += by.late;
        self.lost_requests += by.requests_lost;
        self.lost_replies += by.replies_lost;
        self.duplicated += by.duplicated;
        self.orphaned += by.orphaned;
        self.hints_dropped += by.wakes_dropped;
        self.hints_late += by.wakes_late;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.all();
        for (index, (name, n)) in words.iter().enumerate() {
            let end = if index % 4 == 3 || index + 1 == words.len() { "\n" } else { "  " };
            write!(f, "{:>18} {n:>10}{end}", name.replace('_', " "))?;
        }
        Ok(())
    }
}
