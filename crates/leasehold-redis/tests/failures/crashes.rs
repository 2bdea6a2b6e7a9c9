//! Servers that die and come back, and servers that say nothing for a while.

use std::time::Duration;

use leasehold_core::Loss;
use leasehold_servers::redis::Redis;
use tokio::time::{sleep, timeout};

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_grants_again_with_a_larger_token_and_the_holder_learns_of_it() {
    let mut server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    server.restart();
    let second = timeout(SERVED, acquire(&waiter)).await.expect("it is free");
    witness.granted_again(&second);
    assert_eq!(lost_in_time(&guard).await, Loss::Gone);
    still_held(&second, LEASE).await;
    drop((guard, second));
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_on_a_server_that_comes_back_empty_is_served() {
    let mut server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let guard = acquire(&holder).await;
    let witness = Witness::default();
    let waiting = queue(&waiter, 100, &witness).await;
    server.restart();
    all_served(waiting).await;
    assert_eq!(lost_in_time(&guard).await, Loss::Gone);
    drop(guard);
    nothing_is_left(&server, [holder, waiter]).await;
}

async fn a_killed_server_with_a_log_keeps_the_holder_and_the_queue(fsync: &str) {
    const LONG: Duration = Duration::from_secs(10);
    let mut server = Redis::with(&["--appendonly", "yes", "--appendfsync", fsync]);
    let (holder, waiter) = (client_on(&server.url(), LONG).await, client_on(&server.url(), LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    server.restart();
    still_held(&guard, LONG).await;
    guard.release().await.expect("the server is back");
    all_served(waiting).await;
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_syncs_always_comes_back_with_the_holder_and_the_queue() {
    a_killed_server_with_a_log_keeps_the_holder_and_the_queue("always").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_syncs_every_second_comes_back_with_the_holder_and_the_queue() {
    a_killed_server_with_a_log_keeps_the_holder_and_the_queue("everysec").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_for_half_a_lease_costs_nobody_anything() {
    let mut server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    still_held(&guard, LEASE).await;
    server.process().freeze();
    sleep(LEASE / 2).await;
    server.process().thaw();
    still_held(&guard, LEASE).await;
    guard.release().await.expect("the server is back");
    all_served(waiting).await;
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_for_two_leases_loses_the_holder_by_its_deadline_and_serves_the_next() {
    let mut server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    server.process().freeze();
    let thawed = tokio::time::Instant::now() + 2 * LEASE;
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    tokio::time::sleep_until(thawed).await;
    server.process().thaw();
    all_served(waiting).await;
    drop(guard);
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_through_restarts_and_then_the_loss_of_everything() {
    let mut server = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut last = 0;
    for round in 0..6 {
        if round == 5 {
            server.cli(&["flushall"]);
        } else if round > 0 {
            server.restart();
        }
        // A new client each time: nobody remembers the tokens for the server.
        let client = client(&server.url()).await;
        let guard = acquire(&client).await;
        assert!(guard.token() > last, "round {round}: token {} after {last}", guard.token());
        last = guard.token();
        guard.release().await.expect("the server answers");
        client.close().await.expect("a client can be closed");
    }
    nothing_is_left(&server, []).await;
}
