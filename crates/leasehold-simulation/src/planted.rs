//! Planted bugs, and the first schedule that finds one.

use std::time::{Duration, Instant};

use leasehold_core::mutant::Mutant;

use crate::{Leases, Setup, run, run_quorum};

/// The findings of the attack that the simulation must find again, each with the bug that its fix removed.
pub const FINDINGS: [(&str, Mutant); 8] = [
    ("C2", Mutant::QuorumReusesIds),
    ("C6c", Mutant::UnpolledClaimHolds),
    ("C7a", Mutant::EndedLatchIsForgotten),
    ("C7b", Mutant::CountKnowsNoRound),
    ("C7c", Mutant::SetHasNoEnd),
    ("C8", Mutant::PollExtendsFixedLease),
    ("C9", Mutant::BusyForgetsLateCopies),
    ("C10", Mutant::QuorumTakesOnlyItsOwnNumber),
];

/// Bugs that only stores with sessions can show.
const SESSIONS: &[Mutant] = &[Mutant::UnpolledClaimHolds];

/// Bugs of the quorum that its own schedules find.
const QUORUM: &[Mutant] = &[Mutant::QuorumReusesIds, Mutant::QuorumTakesOnlyItsOwnNumber];

/// A schedule that finds a planted bug.
#[derive(Debug)]
pub struct Found {
    /// The seed of the schedule.
    pub seed: u64,
    /// Whether it is a schedule of the quorum.
    pub is_quorum: bool,
    /// The violation that it reports.
    pub violation: String,
    /// How long all schedules took, up to this one.
    pub took: Duration,
}

/// Looks for a schedule that goes wrong with the bug and not without it, in the order of these seeds.
pub fn find(mutant: Mutant, mut seeds: impl Iterator<Item = u64>) -> Option<Found> {
    let start = Instant::now();
    let is_quorum = QUORUM.contains(&mutant);
    let leases = SESSIONS.contains(&mutant).then_some(Leases::Sessions);
    let setup = Setup { leases, ..Setup::default() };
    let violation = |seed| if is_quorum { run_quorum(seed).violation } else { run(&setup, seed).violation };
    seeds.find_map(|seed| {
        let violation_of_bug = mutant.plant(|| violation(seed))?;
        let took = start.elapsed();
        // Twice: a seed does not decide everything.
        let is_sound = (0..2).all(|_| violation(seed).is_none());
        is_sound.then_some(Found { seed, is_quorum, violation: violation_of_bug, took })
    })
}
