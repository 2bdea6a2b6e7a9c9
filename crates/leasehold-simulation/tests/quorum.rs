//! Some schedules of the quorum in every test run; more of them run in a release build (`--quorum`).

use leasehold_simulation::{QuorumCoverage, run_quorum};

const SCHEDULES: u64 = 100;

#[test]
fn no_quorum_schedule_breaks_a_law() {
    let mut total = QuorumCoverage::default();
    for seed in 1..=SCHEDULES {
        let verdict = run_quorum(seed);
        if let Some(violation) = &verdict.violation {
            let story = verdict.story.join("\n");
            panic!("{story}\nquorum seed {seed}: {violation}");
        }
        total.add(&verdict.coverage);
    }
    assert_eq!(total.missing(), Vec::<&str>::new(), "\n{total}");
}
