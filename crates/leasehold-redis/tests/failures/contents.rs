//! What others can do to the server's contents.

use leasehold_core::{ErrorKind, Loss};
use leasehold_servers::redis::Redis;
use tokio::time::timeout;

use crate::scene::*;

/// The key of the lock on the server.
const STORED: &str = "leasehold{:orders/42}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_cost_nobody_anything() {
    let server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 20, &witness).await;
    server.cli(&["script", "flush"]);
    still_held(&guard, LEASE).await;
    server.cli(&["script", "flush"]);
    guard.release().await.expect("the script is sent again");
    all_served(waiting).await;
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_flushall_the_holder_is_lost_the_queue_is_served_and_tokens_still_rise() {
    let server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let guard = acquire(&holder).await;
    let first = guard.token();
    let witness = Witness::default();
    let waiting = queue(&waiter, 20, &witness).await;
    server.cli(&["flushall"]);
    assert_eq!(lost_in_time(&guard).await, Loss::Gone);
    all_served(waiting).await;
    // Nobody remembers the old tokens: not the server, not this client.
    let stranger = client(&server.url()).await;
    let next = acquire(&stranger).await;
    assert!(next.token() > first);
    witness.granted(&next);
    drop((guard, next));
    nothing_is_left(&server, [holder, waiter, stranger]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_lock_is_lost_and_the_queue_is_served() {
    let server = Redis::start();
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let guard = acquire(&holder).await;
    let first = guard.token();
    let witness = Witness::default();
    let waiting = queue(&waiter, 20, &witness).await;
    assert_eq!(server.cli(&["del", STORED]), "1");
    assert_eq!(lost_in_time(&guard).await, Loss::Gone);
    all_served(waiting).await;
    let next = acquire(&holder).await;
    assert!(next.token() > first);
    witness.granted(&next);
    drop((guard, next));
    nothing_is_left(&server, [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_foreign_under_the_name_is_a_conflict_that_harms_no_other_lock() {
    let server = Redis::start();
    let client = client(&server.url()).await;
    let witness = Witness::default();
    let other = client.mutex("another").acquire().await.expect("it is free");
    for foreign in [["rpush", STORED, "x"].as_slice(), &["set", STORED, "x"], &["zadd", STORED, "1", "x"]] {
        server.cli(&["del", STORED]);
        server.cli(foreign);
        let error = client.mutex(KEY).try_acquire().await.expect_err("it is not ours");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{foreign:?}: {error}");
        assert_eq!(server.cli(&["exists", STORED]), "1", "{foreign:?}: it was touched");
    }
    still_held(&other, LEASE).await;
    server.cli(&["del", STORED]);
    goes_on(&client, &witness).await;
    drop(other);
    nothing_is_left(&server, [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_overwritten_is_lost_and_what_overwrote_it_stays() {
    let server = Redis::start();
    let holder = client(&server.url()).await;
    let guard = acquire(&holder).await;
    server.cli(&["del", STORED]);
    server.cli(&["rpush", STORED, "x"]);
    assert_eq!(lost_in_time(&guard).await, Loss::Gone);
    let _ = timeout(SERVED, guard.release()).await.expect("every call ends");
    assert_eq!(server.cli(&["lrange", STORED, "0", "-1"]), "x");
    server.cli(&["del", STORED]);
    nothing_is_left(&server, [holder]).await;
}
