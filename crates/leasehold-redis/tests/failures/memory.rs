//! Servers that are out of memory.

use leasehold_core::{ErrorKind, Loss};
use leasehold_servers::redis::Redis;

use crate::scene::*;

/// Sets the limit below what is used already.
pub(crate) fn fill(server: &Redis) {
    server.cli(&["config", "set", "maxmemory", "1kb"]);
}

pub(crate) fn empty(server: &Redis) {
    server.cli(&["config", "set", "maxmemory", "0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_new_claims_are_refused_clearly_and_holds_are_kept() {
    let server = Redis::with(&["--maxmemory-policy", "noeviction"]);
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let alone = holder.mutex("another").acquire().await.expect("it is free");
    let waiting = queue(&waiter, 20, &witness).await;
    fill(&server);
    let error = waiter.mutex("new").try_acquire().await.expect_err("there is no memory");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("out of memory"), "{error}");
    // Beside others in the queue, and alone on its lock.
    still_held(&guard, LEASE).await;
    still_held(&alone, LEASE).await;
    guard.release().await.expect("giving back needs no memory");
    all_served(waiting).await;
    alone.release().await.expect("giving back needs no memory");
    empty(&server);
    goes_on(&waiter, &witness).await;
    nothing_is_left(&server, [holder, waiter]).await;
}

/// With a policy that evicts, the server throws away locks: nothing can keep it from doing so.
async fn an_evicted_lock_is_lost_and_tokens_rise(policy: &str) {
    let server = Redis::with(&["--maxmemory-policy", policy]);
    let (holder, stranger) = (client(&server.url()).await, client(&server.url()).await);
    let guard = acquire(&holder).await;
    fill(&server);
    assert_eq!(lost_in_time(&guard).await, Loss::Gone);
    empty(&server);
    let next = acquire(&stranger).await;
    assert!(next.token() > guard.token());
    drop((guard, next));
    nothing_is_left(&server, [holder, stranger]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_any_key_loses_locks_which_their_holders_notice() {
    an_evicted_lock_is_lost_and_tokens_rise("allkeys-lru").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_evicts_keys_with_an_end_loses_locks_which_their_holders_notice() {
    an_evicted_lock_is_lost_and_tokens_rise("volatile-lru").await;
}
