//! A run inside a run of the same key.

use std::process::Output;

use super::util::{Place, code, text};

/// Runs `inner` inside of `outer`, on the same store.
fn nested(place: &Place, outer: &str, inner: &str) -> Output {
    let bin = env!("CARGO_BIN_EXE_leasehold");
    place.run_script(outer, &format!("exec {bin} {inner} -- true")).output().unwrap()
}

#[test]
fn run_that_would_wait_for_itself_is_refused() {
    let place = Place::new();
    for (outer, inner) in [
        ("run k", "run k"),
        ("run k", "run --wait 1h k"),
        ("run k", "elect k"),
        ("elect k", "run k"),
        ("run k", "run --shared k"),
        ("run --shared k", "run k"),
        ("run --permits 2/3 permits", "run --permits 2/3 permits"),
    ] {
        let output = nested(&place, outer, inner);
        let said = text(&output.stderr);
        assert_eq!(code(&output), 64, "{outer}, {inner}: {said}");
        assert!(said.contains("`leasehold run` that started this program"), "{outer}, {inner}: {said}");
    }
}

#[test]
fn run_that_fits_beside_the_outer_one_is_not_refused() {
    let (place, other) = (Place::new(), Place::new());
    let elsewhere = format!("run --store {} k", other.url());
    for (outer, inner, status) in [
        ("run k", "run other", 0),
        ("run k", elsewhere.as_str(), 0),
        ("run --shared k", "run --shared k", 0),
        ("run --permits 1/3 permits", "run --permits 2/3 permits", 0),
        // These do not wait, so they say what is so.
        ("run k", "run --try k", 75),
        ("run k", "run --at-least 1s k", 75),
    ] {
        let output = nested(&place, outer, inner);
        assert_eq!(code(&output), status, "{outer}, {inner}: {output:?}");
    }
}

#[test]
fn environment_of_a_run_that_has_ended_means_nothing() {
    let place = Place::new();
    let output = place.leasehold("run k -- env").output().unwrap();
    let variables = text(&output.stdout).lines().filter_map(|line| line.split_once('='));
    let variables: Vec<_> = variables.filter(|(name, _)| name.starts_with("LEASEHOLD_")).collect();
    assert!(variables.iter().any(|(name, _)| *name == "LEASEHOLD_HELD_ON"), "{variables:?}");
    let holder = place.hold("run k");
    let mut later = place.leasehold("run --wait 100ms k -- true");
    let output = later.envs(variables).output().unwrap();
    assert_eq!(code(&output), 75, "it waits for another runner: {output:?}");
    drop(holder);
}

#[test]
fn password_is_not_exported_with_the_store() {
    // The server trusts everybody on this machine, and looks at no password.
    let server = leasehold_servers::postgres::Postgres::start();
    let place = Place::on(&server.url().replace("postgres@", "postgres:hunter2@"));
    let output = place.leasehold("run k -- env").output().unwrap();
    let variables = text(&output.stdout);
    assert!(variables.contains("LEASEHOLD_HELD_ON=postgres://postgres:***@127.0.0.1:"), "{output:?}");
    assert!(!variables.contains("hunter2"), "{variables}");
}
