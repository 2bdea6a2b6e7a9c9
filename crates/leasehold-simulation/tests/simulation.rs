//! Some schedules in every test run; the full number runs in a release build (`cargo xtask test`).

use std::sync::OnceLock;

use leasehold_simulation::{Coverage, Rates, Setup, Verdict, run};

const SCHEDULES: u64 = 200;

/// All schedules of this file, run once on two threads.
fn verdicts() -> &'static [Verdict] {
    static VERDICTS: OnceLock<Vec<Verdict>> = OnceLock::new();
    VERDICTS.get_or_init(|| {
        let half = |parity: u64| {
            let seeds = (1..=SCHEDULES).filter(move |seed| seed % 2 == parity);
            seeds.map(|seed| run(&Setup::default(), seed)).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(move || half(0));
            let mut all = half(1);
            all.extend(other.join().expect("the other half ran"));
            all
        })
    })
}

#[test]
fn no_schedule_breaks_a_law() {
    for verdict in verdicts() {
        if let Some(violation) = &verdict.violation {
            let (story, seed) = (verdict.story.join("\n"), verdict.seed);
            panic!(
                "{story}\nseed {seed}: {violation}\n\
                 cargo run -p leasehold-simulation --release -- --seed {seed} --trace"
            );
        }
    }
}

#[test]
fn everything_happens_in_some_schedule() {
    let mut total = Coverage::default();
    verdicts().iter().for_each(|verdict| total.add(&verdict.coverage));
    assert_eq!(total.missing(&Setup::default()), Vec::<&str>::new(), "\n{total}");
}

#[test]
fn a_schedule_has_at_least_two_hundred_events() {
    assert!(verdicts().iter().map(|verdict| verdict.coverage.events).min() >= Some(200));
}

#[test]
fn clocks_too_far_apart_are_reported() {
    let setup = Setup { rates: Rates::TooFarApart, ..Setup::default() };
    let violations = (1..=SCHEDULES).filter_map(|seed| run(&setup, seed).violation);
    // Other laws break too, and one schedule reports the first.
    let caught = violations.into_iter().find(|violation| violation.contains("believe"));
    assert!(caught.is_some(), "clocks at 0.9 and 1.1 must be reported: does the checker bite?");
}

#[test]
fn a_store_that_believes_forged_promotions_is_found() {
    let setup = Setup { believes_forgeries: true, ..Setup::default() };
    let is_found = (1..=SCHEDULES).any(|seed| run(&setup, seed).is_false_belief());
    assert!(is_found, "a stranger's message makes a holder, and nobody notices");
}
