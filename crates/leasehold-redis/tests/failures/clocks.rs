//! Clocks that are set, and servers that take over with another clock.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use leasehold_core::{Answer, Claim, IfBusy, Key, Store as _, Units};
use leasehold_redis::Redis as Store;
use leasehold_servers::redis::Redis;
use leasehold_servers::wait_until;
use tokio::time::sleep;

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_grants_larger_tokens_although_its_clock_is_behind() {
    let mut primary = Redis::start();
    let replica = Redis::replica_behind(&primary, 5);
    let (before, after) = (client(&primary.url()).await, client(&replica.url()).await);
    let witness = Witness::default();
    goes_on(&before, &witness).await;
    let fence = ["get", "leasehold.fence"];
    wait_until("the replica has what was so far", SERVED, || replica.cli(&fence) == primary.cli(&fence));
    // And does not hear of the last grant any more.
    replica.cli(&["replicaof", "no", "one"]);
    let guard = acquire(&before).await;
    witness.granted(&guard);
    primary.process().kill();
    // This failover lost the grant, as docs/safety.md admits.
    let second = acquire(&after).await;
    witness.granted_again(&second);
    lost_in_time(&guard).await;
    drop((guard, second));
    nothing_is_left(&replica, [before, after]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_connected_to_a_replica_does_not_take_it_for_its_primary_when_it_is_promoted() {
    let primary = Redis::start();
    // Its seconds come round again after the failover: nothing but its name tells that it is another server.
    let replica = Redis::replica_behind(&primary, 3);
    let (before, after) = (client(&primary.url()).await, client(&replica.url()).await);
    let witness = Witness::default();
    goes_on(&before, &witness).await;
    // In the second for which the fence says who wrote it.
    let second = Duration::from_secs(wall_clock().as_secs() + 2);
    sleep_until(second + Duration::from_millis(50)).await;
    goes_on(&before, &witness).await;
    let fence = ["get", "leasehold.fence"];
    wait_until("the replica has what was so far", SERVED, || replica.cli(&fence) == primary.cli(&fence));
    replica.cli(&["replicaof", "no", "one"]);
    goes_on(&before, &witness).await;
    sleep_until(second + Duration::from_millis(3_300)).await;
    goes_on(&after, &witness).await;
    nothing_is_left(&replica, [before, after]).await;
}

/// A primary whose clock is so many seconds behind, and what it replicated from: that must outlive it.
fn primary_behind(seconds: u32) -> (Redis, Redis) {
    let origin = Redis::start();
    let primary = Redis::replica_behind(&origin, seconds);
    primary.cli(&["replicaof", "no", "one"]);
    (primary, origin)
}

/// Sets the clock of a running server, which [`primary_behind`] has started.
fn set_clock(server: &Redis, ahead: i64) {
    // The server has mapped this file.
    let file =
        File::options().write(true).open(server.directory().join("clock")).expect("it has such a clock");
    file.write_all_at(&ahead.to_ne_bytes(), 0).expect("the file is ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_end_early_after_a_failover_to_a_server_whose_clock_is_ahead() {
    let (mut primary, _origin) = primary_behind(5);
    let replica = Redis::start();
    replica.cli(&["replicaof", "127.0.0.1", &primary.port().to_string()]);
    let lock = ["exists", "leasehold{:orders/42}"];
    wait_until("the replica follows", SERVED, || {
        primary.cli(&["info", "replication"]).contains("state=online")
    });
    let url = format!("{}?min_replicas=1", primary.url());
    let (before, after) = (client(&url).await, client(&replica.url()).await);
    let witness = Witness::default();
    let guard = acquire(&before).await;
    witness.granted(&guard);
    // By the replica's clock, what it was told ended seconds ago: it has the key, and does not show it.
    assert_eq!((primary.cli(&lock), replica.cli(&lock)), ("1".to_owned(), "0".to_owned()));
    primary.process().kill();
    replica.cli(&["replicaof", "no", "one"]);
    let second = acquire(&after).await;
    assert!(guard.is_valid(), "the safety page is too strict");
    witness.granted_again(&second);
    lost_in_time(&guard).await;
    drop((guard, second));
    nothing_is_left(&replica, [before, after]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_end_early_when_the_clock_is_set_forward_and_tokens_rise() {
    let (server, _origin) = primary_behind(0);
    let (holder, next) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    set_clock(&server, 10);
    let second = acquire(&next).await;
    witness.granted_again(&second);
    lost_in_time(&guard).await;
    still_held(&second, LEASE).await;
    drop((guard, second));
    nothing_is_left(&server, [holder, next]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_last_longer_when_the_clock_is_set_back_and_tokens_rise() {
    const SHORT: Duration = Duration::from_secs(1);
    const BACK: Duration = Duration::from_secs(3);
    let (server, _origin) = primary_behind(0);
    let store = Store::from_url(&server.url()).expect("the URL makes sense");
    let claim = || {
        let claim = Claim::new(Key::new(KEY).expect("a name"), 1, Units::Exactly(1)).expect("it fits");
        Claim { lease: Some(SHORT), if_busy: IfBusy::Leave, ..claim }
    };
    let Answer::Granted(first) = store.claim(&claim()).await.expect("the server answers") else {
        panic!("it is free")
    };
    set_clock(&server, -3);
    sleep(SHORT + BACK / 2).await;
    assert_eq!(store.claim(&claim()).await.expect("the server answers"), Answer::Busy);
    sleep(BACK).await;
    let Answer::Granted(second) = store.claim(&claim()).await.expect("the server answers") else {
        panic!("the lease has ended by the clock")
    };
    assert!(second.token > first.token, "{} after {}", second.token, first.token);
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970")
}

async fn sleep_until(at: Duration) {
    tokio::time::sleep(at.saturating_sub(wall_clock())).await;
}
