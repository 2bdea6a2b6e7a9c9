//! Three servers, of which the leader is lost.

use std::time::Duration;

use leasehold_servers::consul::Trio;
use tokio::time::{sleep, timeout};

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_neither_the_holder_nor_fifty_who_wait() {
    let mut trio = Trio::start();
    let (holder, waiter) = (client(&trio.url(), LEASE).await, client(&trio.url(), LEASE).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 50, &witness).await;
    let leader = trio.leader();
    trio.servers()[leader].process().kill();
    still_held(&guard, LEASE).await;
    guard.release().await.expect("the others have a leader");
    all_served(waiting).await;
    nothing_is_left(|path| trio.ask("GET", path), vec![holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_makes_no_second_holder_when_it_wakes_up() {
    let mut trio = Trio::start();
    let (holder, waiter) = (client(&trio.url(), LEASE).await, client(&trio.url(), LEASE).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 10, &witness).await;
    let leader = trio.leader();
    trio.servers()[leader].process().freeze();
    sleep(Duration::from_secs(4)).await;
    trio.servers()[leader].process().thaw();
    still_held(&guard, LEASE).await;
    guard.release().await.expect("there is a leader");
    all_served(waiting).await;
    nothing_is_left(|path| trio.ask("GET", path), vec![holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_peers_grants_and_renews_nothing() {
    let mut trio = Trio::start();
    let lease = Duration::from_secs(3);
    // Only through the server that will be alone.
    let holder = client(&trio.servers()[0].url(), lease).await;
    let guard = acquire(&holder).await;
    for other in 1..3 {
        trio.servers()[other].process().freeze();
    }
    lost_in_time(&guard).await;
    let tried = holder.mutex("another").try_acquire().await;
    assert!(tried.is_err(), "one of three granted: {tried:?}");
    for other in 1..3 {
        trio.servers()[other].process().thaw();
    }
    let again = timeout(SERVED, acquire(&holder)).await.expect("the majority is back");
    assert!(again.token() > guard.token());
    drop(guard);
    again.release().await.expect("there is a leader");
    nothing_is_left(|path| trio.ask("GET", path), vec![holder]).await;
}
