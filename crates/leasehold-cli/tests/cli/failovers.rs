//! Starts while servers of the store answer, but none can serve.

use std::fs::{self, File};
use std::process::Child;
use std::time::{Duration, Instant};

use leasehold_servers::free_port;
use leasehold_servers::redis::{Redis, Sentinel};

use super::util::{Place, code, eventually, finish, text};

/// What the process takes to start and to end, beside the second that the end of a wait may take.
const START: Duration = Duration::from_secs(2);

/// Sentinels that answer, and servers that do not.
fn without_a_primary() -> Sentinel {
    let mut servers = Sentinel::start();
    servers.servers().iter_mut().for_each(|server| server.process().kill());
    servers
}

/// A command that has said that it waits for the store.
fn waiting(place: &Place, name: &str, words: &str) -> Child {
    let said = place.path(name);
    let child = place.leasehold(words).stderr(File::create(&said).unwrap()).spawn().unwrap();
    eventually("a word about the store", || {
        fs::read_to_string(&said).unwrap().contains("waiting for the store: redis: ").then_some(())
    });
    child
}

#[test]
fn start_waits_until_a_server_can_serve() {
    let mut servers = without_a_primary();
    let place = Place::on(&servers.url());
    let starts = ["run --wait 90s a -- true", "run b -- true", "elect --wait 90s c -- true"];
    let starting = starts.iter().enumerate().map(|(n, words)| waiting(&place, &format!("said {n}"), words));
    let mut starting: Vec<Child> = starting.collect();
    servers.servers().iter_mut().for_each(Redis::start_again);
    for start in &mut starting {
        assert_eq!(code(&finish(start).expect("must run its program")), 0);
    }
}

#[test]
fn start_ends_with_its_limit() {
    let servers = without_a_primary();
    let place = Place::on(&servers.url());
    for (words, limit) in [("run --try k -- true", 0), ("run --wait 3s k -- true", 3)] {
        let start = Instant::now();
        let output = place.leasehold(words).output().unwrap();
        let (took, said) = (start.elapsed(), text(&output.stderr));
        assert_eq!(code(&output), 69, "{words}: {said}");
        assert!(said.contains("onnection refused") && !said.contains("busy"), "{words}: {said}");
        assert!(took < Duration::from_secs(limit + 1) + START, "{words}: {took:?}: {said}");
    }
}

#[test]
fn single_server_that_refuses_is_not_waited_for() {
    let place = Place::on(&format!("redis://127.0.0.1:{}", free_port()));
    let output = place.leasehold("run --wait 90s k -- true").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(code(&output), 69, "{said}");
    assert!(!said.contains("waiting"), "{said}");
}
