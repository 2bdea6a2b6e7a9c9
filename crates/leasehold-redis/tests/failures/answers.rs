//! Answers that are cut, thrown away or no answers.

use leasehold_core::{ErrorKind, Loss};
use leasehold_servers::redis::Redis;
use leasehold_servers::{Mode, Proxy};
use tokio::time::timeout;

use crate::scene::*;

/// A server, and the way to it that can be broken.
fn behind_a_proxy() -> (Redis, Proxy, String) {
    let server = Redis::start();
    let proxy = Proxy::to(server.port());
    let url = format!("redis://127.0.0.1:{}?timeout=500ms", proxy.port());
    (server, proxy, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_cut_anywhere_is_granted_once() {
    let (server, proxy, url) = behind_a_proxy();
    let (broken, other) = (client(&url).await, client(&server.url()).await);
    let witness = Witness::default();
    goes_on(&broken, &witness).await;
    for mode in [0, 1, 5, 20].map(Mode::CutReplyAfter).into_iter().chain([Mode::Garbage]) {
        proxy.set(mode);
        let guard = timeout(SERVED, acquire(&broken)).await.expect("it is asked again");
        witness.granted(&guard);
        let lock = other.inspect(KEY).await.expect("the server answers").expect("it is held");
        assert_eq!((lock.holders.len(), lock.waiters.len()), (1, 0), "{mode:?}");
        assert_eq!(lock.holders[0].token, guard.token(), "{mode:?}");
        guard.release().await.expect("the server answers");
    }
    goes_on(&other, &witness).await;
    nothing_is_left(&server, [broken, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_answer_is_cut_frees_the_lock() {
    let (server, proxy, url) = behind_a_proxy();
    let (broken, other) = (client(&url).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&broken).await;
    witness.granted(&guard);
    let waiting = queue(&other, 5, &witness).await;
    proxy.set(Mode::CutReplyAfter(1));
    let _ = guard.release().await;
    all_served(waiting).await;
    nothing_is_left(&server, [broken, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_hears_no_answer_ends_in_time_and_is_withdrawn() {
    let (server, proxy, url) = behind_a_proxy();
    let (deaf, other) = (client(&url).await, client(&server.url()).await);
    proxy.set(Mode::DropReplies);
    let asked = timeout(SERVED, deaf.mutex(KEY).try_acquire()).await.expect("every call ends");
    let error = asked.expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    let next = timeout(LEASE + SERVED, acquire(&other)).await.expect("it was withdrawn, or its lease ended");
    next.release().await.expect("the server answers");
    proxy.set(Mode::Pass);
    goes_on(&deaf, &Witness::default()).await;
    nothing_is_left(&server, [deaf, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_hears_no_answer_is_lost_by_its_deadline_before_the_next_holds() {
    let (server, proxy, url) = behind_a_proxy();
    let (deaf, other) = (client(&url).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&deaf).await;
    witness.granted(&guard);
    proxy.set(Mode::DropReplies);
    let waiting = queue(&other, 5, &witness).await;
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    // Its last renewal arrived at the server, unanswered, at most a moment before the deadline.
    timeout(LEASE + SERVED, waiting.join_all()).await.expect("the waiters are served when its lease is over");
    proxy.set(Mode::Pass);
    drop(guard);
    nothing_is_left(&server, [deaf, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_ends_cost_nobody_anything() {
    let server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    assert_eq!(server.cli(&["client", "kill", "type", "pubsub"]), "2", "both clients listen");
    // Whoever is promoted may not hear of it, and a release that got no answer is the keeper's to finish.
    let _ = guard.release().await;
    all_served(waiting).await;
    nothing_is_left(&server, [holder, waiter]).await;
}
