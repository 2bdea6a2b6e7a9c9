//! Waits that end while the store is out of reach.

use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold_servers::etcd::Etcd;
use leasehold_servers::redis::Redis;

use super::util::{Place, code, finish, text};

/// How long the command waits, as its option says it and as a length.
const WAIT: &str = "4s";
const LIMIT: Duration = Duration::from_secs(4);
/// What the process takes to start and to end, beside the second that the end of a wait may take.
const START: Duration = Duration::from_secs(1);

/// What the command prints when its wait for a held lock ends after the server has gone.
fn waits_in_vain(url: &str, command: &str, server_goes: impl FnOnce()) -> String {
    let place = Place::on(url);
    let _holder = place.hold("run k");
    let start = Instant::now();
    let mut waiter = place.leasehold(command);
    let mut waiter = waiter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.wait_for_waiters("k", 1);
    server_goes();
    let output = finish(&mut waiter).expect("must give up");
    let took = start.elapsed();
    let said = text(&output.stderr).to_owned();
    assert_eq!(code(&output), 69, "{said}");
    assert!(took < LIMIT + Duration::from_secs(1) + START, "{took:?}: {said}");
    assert!(!said.contains("busy"), "{said}");
    said
}

#[test]
fn server_that_is_gone_is_not_busy() {
    let mut server = Redis::start();
    let port = server.port().to_string();
    let said =
        waits_in_vain(&server.url(), &format!("run --wait {WAIT} k -- true"), || server.process().kill());
    assert!(said.contains("redis") && said.contains(&port), "{said}");
}

#[test]
fn server_that_stands_still_is_not_busy() {
    let mut server = Redis::start();
    let said =
        waits_in_vain(&server.url(), &format!("elect --wait {WAIT} k -- true"), || server.process().freeze());
    assert!(said.contains("redis") && said.contains("not answered"), "{said}");
}

#[test]
fn etcd_that_stands_still_is_not_busy() {
    let mut server = Etcd::start();
    let said =
        waits_in_vain(&server.url(), &format!("run --wait {WAIT} k -- true"), || server.process().freeze());
    assert!(said.contains("etcd") && said.contains("not answered"), "{said}");
}
