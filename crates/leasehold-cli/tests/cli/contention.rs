//! Exclusion, proven bluntly.

use std::fs;

use super::util::{Place, code, finish};

const PROCESSES: usize = 16;
const TURNS: usize = 10;

#[test]
fn an_unprotected_counter_counts_every_increment() {
    let place = Place::new();
    fs::write(place.path("counter"), "0").unwrap();
    let bin = env!("CARGO_BIN_EXE_leasehold");
    let increment = "n=$(cat counter); echo $((n + 1)) >counter";
    let turns = format!("for i in $(seq {TURNS}); do {bin} run k -- sh -c '{increment}' || exit 1; done");
    let worker = || {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &turns]).env("LEASEHOLD_STORE", place.url()).current_dir(place.path(""));
        shell.spawn().unwrap()
    };
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| worker()).collect();
    for worker in &mut workers {
        assert_eq!(code(&finish(worker).expect("must end")), 0);
    }
    let counted = fs::read_to_string(place.path("counter")).unwrap();
    assert_eq!(counted.trim(), (PROCESSES * TURNS).to_string());
}
