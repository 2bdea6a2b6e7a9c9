//! What any server with leases of its own is put through. Each case is a test of the store's crate, in a runtime of its own.

use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Loss};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    KEY, LEASE, LONG, Replies, SERVED, Server, Witness, acquire, all_served, client, goes_on, lost_in_time,
    nothing_is_left, queue, still_held,
};

/// How many wait.
const MANY: usize = 20;

async fn clients(server: &impl Server, lease: Duration) -> [Client; 2] {
    [client(server.store(), lease).await, client(server.store(), lease).await]
}

async fn one_behind(server: &impl Server) -> [Client; 2] {
    [client(server.behind(), LEASE).await, client(server.store(), LEASE).await]
}

/// A killed server comes back with the holder and the queue.
pub async fn killed_and_started_again(mut server: impl Server) {
    let [holder, waiter] = clients(&server, LONG).await;
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, MANY, &witness).await;
    server.restart();
    still_held(&guard, LONG).await;
    guard.release().await.expect("the server is back");
    all_served(waiting).await;
    nothing_is_left(|| server.left(), [holder, waiter]).await;
}

/// A server frozen for half a lease costs nobody anything.
pub async fn frozen_for_half_a_lease(mut server: impl Server) {
    let [holder, waiter] = clients(&server, LEASE).await;
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, MANY, &witness).await;
    still_held(&guard, LEASE).await;
    server.freeze();
    sleep(LEASE / 2).await;
    server.thaw();
    still_held(&guard, LEASE).await;
    guard.release().await.expect("the server is back");
    all_served(waiting).await;
    nothing_is_left(|| server.left(), [holder, waiter]).await;
}

/// A server frozen for two leases loses the holder by its deadline, and serves the next when it is back.
pub async fn frozen_for_two_leases(mut server: impl Server) {
    let [holder, waiter] = clients(&server, LEASE).await;
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, MANY, &witness).await;
    server.freeze();
    let thawed = Instant::now() + 2 * LEASE;
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    sleep_until(thawed).await;
    server.thaw();
    all_served(waiting).await;
    drop(guard);
    nothing_is_left(|| server.left(), [holder, waiter]).await;
}

/// Connections that are ended all the time cost nobody anything.
pub async fn connections_ended_all_the_time(server: impl Server) {
    let [holder, waiter] = clients(&server, LONG).await;
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, MANY, &witness).await;
    for _ in 0..5 {
        server.end_connections();
        still_held(&guard, LONG).await;
    }
    let _ = guard.release().await;
    for _ in 0..5 {
        server.end_connections();
    }
    all_served(waiting).await;
    nothing_is_left(|| server.left(), [holder, waiter]).await;
}

/// A claim whose answer is cut anywhere is granted once.
pub async fn claims_whose_answers_are_cut(server: impl Server) {
    let [broken, other] = one_behind(&server).await;
    let witness = Witness::default();
    goes_on(&broken, &witness).await;
    let cuts = [0, 1, 5, 20, 60].map(Replies::CutAfter);
    for how in cuts.into_iter().chain([Replies::Garbage]) {
        server.replies(how);
        let guard = acquire(&broken).await;
        witness.granted(&guard);
        let lock = other.inspect(KEY).await.expect("the server answers").expect("it is held");
        assert_eq!((lock.holders.len(), lock.waiters.len()), (1, 0), "{how:?}");
        assert_eq!(lock.holders[0].token, guard.token(), "{how:?}");
        guard.release().await.expect("the server answers");
    }
    goes_on(&other, &witness).await;
    nothing_is_left(|| server.left(), [broken, other]).await;
}

/// A release whose answer is cut frees the lock.
pub async fn releases_whose_answers_are_cut(server: impl Server) {
    let [broken, other] = one_behind(&server).await;
    let witness = Witness::default();
    for _ in 0..3 {
        let guard = acquire(&broken).await;
        witness.granted(&guard);
        let waiting = queue(&other, 5, &witness).await;
        server.replies(Replies::CutAfter(1));
        let _ = guard.release().await;
        all_served(waiting).await;
    }
    nothing_is_left(|| server.left(), [broken, other]).await;
}

/// A claim that hears no answer ends in time, and is withdrawn.
pub async fn claims_without_an_answer(server: impl Server) {
    let [deaf, other] = one_behind(&server).await;
    let witness = Witness::default();
    goes_on(&deaf, &witness).await;
    server.replies(Replies::Lost);
    let asked = timeout(SERVED, deaf.mutex(KEY).try_acquire()).await.expect("every call ends");
    let error = asked.expect_err("nobody knows");
    assert!(matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable), "{error}");
    // It was withdrawn, or its lease ends.
    goes_on(&other, &witness).await;
    server.replies(Replies::Pass);
    nothing_is_left(|| server.left(), [deaf, other]).await;
}

/// A holder that hears nothing is lost by its deadline, before the next one holds.
pub async fn holders_that_hear_nothing(server: impl Server) {
    let [deaf, other] = one_behind(&server).await;
    let witness = Witness::default();
    let guard = acquire(&deaf).await;
    witness.granted(&guard);
    server.replies(Replies::Held);
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    let next = acquire(&other).await;
    witness.granted(&next);
    next.release().await.expect("the server answers");
    server.replies(Replies::Pass);
    drop(guard);
    nothing_is_left(|| server.left(), [deaf, other]).await;
}
