//! Three servers, of which the leader is lost.

use std::time::Duration;

use leasehold_core::Loss;
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
async fn a_lock_can_be_had_again_within_five_seconds_of_the_loss_of_a_leader() {
    const LAW: Duration = Duration::from_secs(5);
    let mut trio = Trio::start();
    let client = client(&trio.url(), LEASE).await;
    acquire(&client).await.release().await.expect("the servers answer");
    let leader = trio.leader();
    trio.servers()[leader].process().kill();
    let guard = timeout(LAW + ROOM, acquire(&client)).await.expect("the others elect a leader");
    guard.release().await.expect("there is a leader");
    nothing_is_left(|path| trio.ask("GET", path), vec![client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_costs_nobody_anything() {
    let mut trio = Trio::start();
    let (holder, waiter) = (client(&trio.url(), LEASE).await, client(&trio.url(), LEASE).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 10, &witness).await;
    for at in 0..3 {
        trio.servers()[at].process().stop();
        still_held(&guard, LEASE).await;
        trio.servers()[at].start_again();
        trio.wait();
        still_held(&guard, LEASE).await;
    }
    guard.release().await.expect("all servers are back");
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

/// The holder talks to this server only, which then hears nothing of the others.
async fn a_cut_off_server_extends_nothing(choose: impl FnOnce(&Trio) -> usize) {
    let lease = Duration::from_secs(3);
    let mut trio = Trio::apart();
    let at = choose(&trio);
    let holder = client(&trio.servers()[at].url(), lease).await;
    let other = client(&trio.servers()[(at + 1) % 3].url(), lease).await;
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    still_held(&guard, lease).await;
    trio.cut(at);
    let next = tokio::spawn({
        let other = other.clone();
        async move { acquire(&other).await }
    });
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    let next = timeout(SERVED, next).await.expect("the next one is served").expect("it does not panic");
    witness.granted(&next);
    trio.heal();
    drop((guard, next));
    // The others may have put it out of the cluster meanwhile, and look for the lost only every half minute.
    let again = timeout(3 * SERVED, acquire(&holder)).await.expect("the server is back among the others");
    witness.granted(&again);
    again.release().await.expect("there is a leader");
    nothing_is_left(|path| trio.ask("GET", path), vec![holder, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_leader_is_cut_off_is_lost_before_the_next_one_holds() {
    a_cut_off_server_extends_nothing(Trio::leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_follower_is_cut_off_is_lost_before_the_next_one_holds() {
    a_cut_off_server_extends_nothing(|trio| (trio.leader() + 1) % 3).await;
}
