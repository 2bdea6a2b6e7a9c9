//! The command on servers that are several, which it must find among each other.

use std::fs;

use leasehold_servers::redis::{Cluster, Sentinel};

use super::util::{Place, code, finish, text};

/// A second runner waits for the first, and has a larger token.
fn hands_over_on(url: &str) {
    let place = Place::on(url);
    let holder =
        place.hold_with("run k", "echo $LEASEHOLD_TOKEN >first; while [ ! -e go ]; do sleep 0.01; done");
    let mut waiter = place.run_script("run k", "cat first; echo $LEASEHOLD_TOKEN");
    let mut waiter = waiter.stdout(std::process::Stdio::piped()).spawn().unwrap();
    place.wait_for_waiters("k", 1);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(code(&holder.finish()), 0);
    let output = finish(&mut waiter).expect("must get its turn");
    let tokens: Vec<u64> = text(&output.stdout).lines().map(|line| line.parse().unwrap()).collect();
    assert!(matches!(tokens[..], [first, second] if first < second), "{tokens:?}");
}

#[test]
fn run_hands_over_where_sentinels_know_the_server() {
    hands_over_on(&Sentinel::start().url());
}

#[test]
fn run_hands_over_on_a_cluster() {
    hands_over_on(&Cluster::start().url());
}
