//! Servers that die and come back, and servers that say nothing for a while.

use std::time::Duration;

use leasehold_core::Loss;
use leasehold_servers::postgres::Postgres;
use tokio::time::sleep;

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_comes_back_with_the_holder_and_the_queue() {
    const LONG: Duration = Duration::from_secs(20);
    let mut server = Postgres::start();
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
async fn a_server_frozen_for_half_a_lease_costs_nobody_anything() {
    let server = Postgres::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    still_held(&guard, LEASE).await;
    server.freeze();
    sleep(LEASE / 2).await;
    server.thaw();
    still_held(&guard, LEASE).await;
    guard.release().await.expect("the server is back");
    all_served(waiting).await;
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_for_two_leases_loses_the_holder_by_its_deadline_and_serves_the_next() {
    let server = Postgres::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    server.freeze();
    let thawed = tokio::time::Instant::now() + 2 * LEASE;
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    tokio::time::sleep_until(thawed).await;
    server.thaw();
    all_served(waiting).await;
    drop(guard);
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_terminated_all_the_time_cost_nobody_anything() {
    let server = Postgres::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    let end =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    for _ in 0..5 {
        server.sql(end);
        still_held(&guard, LEASE).await;
    }
    guard.release().await.expect("the server answers");
    for _ in 0..5 {
        server.sql(end);
    }
    all_served(waiting).await;
    nothing_is_left(&server, [holder, waiter]).await;
}
