//! Leaders that die or freeze, and members that are restarted one by one.

use std::time::Duration;

use leasehold_servers::etcd::{Cluster, Etcd};
use tokio::time::{sleep, timeout};

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_neither_the_holder_nor_those_who_wait() {
    let mut cluster = Cluster::start();
    let (holder, waiter) = (client_with(&cluster.url(), LONG).await, client_with(&cluster.url(), LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 50, &witness).await;
    still_held(&guard, LONG).await;
    let leader = cluster.leader();
    cluster.member(leader).process().kill();
    still_held(&guard, LONG).await;
    guard.release().await.expect("there is a new leader");
    all_served(waiting).await;
    goes_on(&holder, &witness).await;
    nothing_is_left(|words| cluster.ctl(words), [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_can_be_had_again_within_five_seconds_of_the_loss_of_a_leader() {
    const LAW: Duration = Duration::from_secs(5);
    let mut cluster = Cluster::start();
    let client = client_with(&cluster.url(), LONG).await;
    acquire(&client).await.release().await.unwrap();
    let leader = cluster.leader();
    cluster.member(leader).process().kill();
    let guard = timeout(LAW + ROOM, acquire(&client)).await.expect("the others elect a leader");
    guard.release().await.expect("there is a new leader");
    nothing_is_left(|words| cluster.ctl(words), [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_costs_neither_the_holder_nor_those_who_wait() {
    let mut cluster = Cluster::start();
    let (holder, waiter) = (client_with(&cluster.url(), LONG).await, client_with(&cluster.url(), LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    still_held(&guard, LONG).await;
    let leader = cluster.leader();
    cluster.member(leader).process().freeze();
    still_held(&guard, LONG).await;
    guard.release().await.expect("there is a new leader");
    all_served(waiting).await;
    // Before its leases end: releases before 3.4.31 revoke them when they come back.
    cluster.member(leader).process().thaw();
    goes_on(&waiter, &witness).await;
    nothing_is_left(|words| cluster.ctl(words), [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_costs_nobody_anything() {
    let mut cluster = Cluster::start();
    let (holder, waiter) = (client_with(&cluster.url(), LONG).await, client_with(&cluster.url(), LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 10, &witness).await;
    for at in 0..cluster.members().len() {
        cluster.member(at).process().stop();
        still_held(&guard, LONG).await;
        cluster.start_again(at);
        cluster.wait();
        still_held(&guard, LONG).await;
    }
    guard.release().await.expect("all members are back");
    all_served(waiting).await;
    nothing_is_left(|words| cluster.ctl(words), [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_that_is_away_for_longer_than_a_lease_loses_the_holder_and_serves_the_next() {
    let mut server = Etcd::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 10, &witness).await;
    server.process().freeze();
    lost_in_time(&guard).await;
    sleep(LEASE).await;
    server.process().thaw();
    all_served(waiting).await;
    drop(guard);
    nothing_is_left(|words| server.ctl(words), [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_comes_back_has_forgotten_nothing() {
    let mut server = Etcd::start();
    let (holder, waiter) = (client_with(&server.url(), LONG).await, client_with(&server.url(), LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 10, &witness).await;
    still_held(&guard, LONG).await;
    server.restart();
    still_held(&guard, LONG).await;
    guard.release().await.expect("the server is back");
    all_served(waiting).await;
    nothing_is_left(|words| server.ctl(words), [holder, waiter]).await;
}
