//! Answers that are cut, thrown away or no answers.

use leasehold_core::{ErrorKind, Loss};
use leasehold_servers::postgres::Postgres;
use leasehold_servers::{Mode, Proxy};
use tokio::time::timeout;

use crate::scene::*;

/// A server, and the way to it that can be broken.
fn behind_a_proxy() -> (Postgres, Proxy, String) {
    let server = Postgres::start();
    let proxy = Proxy::to(server.port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres?timeout=1s", proxy.port());
    (server, proxy, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_cut_anywhere_is_granted_once() {
    let (server, proxy, url) = behind_a_proxy();
    let (broken, other) = (client(&url).await, client(&server.url()).await);
    let witness = Witness::default();
    goes_on(&broken, &witness).await;
    for mode in [0, 1, 5, 20, 60].map(Mode::CutReplyAfter).into_iter().chain([Mode::Garbage]) {
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
    nothing_is_left(&server, [deaf, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_hears_nothing_is_lost_by_its_deadline_before_the_next_one_holds() {
    let (server, proxy, url) = behind_a_proxy();
    let (deaf, other) = (client(&url).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&deaf).await;
    witness.granted(&guard);
    proxy.set(Mode::Hold);
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    let next = timeout(LEASE + SERVED, acquire(&other)).await.expect("its lease is over");
    witness.granted(&next);
    next.release().await.expect("the server answers");
    proxy.set(Mode::Pass);
    drop(guard);
    nothing_is_left(&server, [deaf, other]).await;
}
