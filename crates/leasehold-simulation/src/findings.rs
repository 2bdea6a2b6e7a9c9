//! Plants the findings of the attack one by one, and prints which seed finds each of them, and how soon.

use leasehold_simulation::planted::{FINDINGS, find};

/// How many schedules a finding may survive.
const SCHEDULES: u64 = 20_000;

/// Prints a row of a table per finding. Says whether all of them were found.
pub(crate) fn print_all() -> bool {
    println!("| finding | planted bug | seed | seconds | violation |\n|---|---|---|---|---|");
    let rows = FINDINGS.map(|(finding, mutant)| {
        let found = find(mutant, 1..=SCHEDULES);
        let row = found.as_ref().map_or_else(
            || format!("| not within {SCHEDULES} schedules | |"),
            |found| {
                let kind = if found.is_quorum { "quorum " } else { "" };
                let seconds = found.took.as_secs_f64();
                format!("| {kind}{} | {seconds:.2} | {}", found.seed, found.violation)
            },
        );
        println!("| {finding} | `{mutant:?}` {row} |");
        found.is_some()
    });
    rows.into_iter().all(|is_found| is_found)
}
