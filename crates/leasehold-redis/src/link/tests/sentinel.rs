use leasehold_servers::redis::{Redis, Sentinel};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_is_found_and_followed_when_it_is_killed() {
    let mut servers = Sentinel::start();
    let link = link(&servers.url());
    let ear = open(&link).await.unwrap();
    ear.hears("all").await;
    count(&link).await.unwrap();
    let old = servers.primary().port();
    servers.primary().process().kill();
    assert!(count(&link).await.unwrap_err().is_retryable());
    servers.wait_for_another_than(old);
    count_soon(&link).await;
    ear.hears("all").await;
    servers.primary().cli(&["publish", "inbox", "key"]);
    ear.hears("key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_is_left_for_the_new_one() {
    let mut servers = Sentinel::start();
    let link = link(&servers.url());
    count(&link).await.unwrap();
    let old = servers.primary().port();
    servers.primary().process().freeze();
    assert!(count(&link).await.unwrap_err().is_retryable());
    servers.wait_for_another_than(old);
    count_soon(&link).await;
    let new = servers.primary().port();
    assert_ne!(new, old);
    assert_ne!(servers.primary().cli(&["get", "count"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_became_a_replica_is_left_within_the_call() {
    let mut servers = Sentinel::start();
    let link = link(&servers.url());
    count(&link).await.unwrap();
    // Behind the sentinels' back: they will undo it, and until then no server is the primary.
    let port = servers.servers()[1].port().to_string();
    servers.primary().cli(&["replicaof", "127.0.0.1", &port]);
    let error = count(&link).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    count_soon(&link).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_nobody_watches_is_said_at_once() {
    let servers = Sentinel::start();
    let error = open(&link(&servers.url().replace("/main", "/mian"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("mian"), "{error}");
    let server = Redis::start();
    let error = open(&link(&format!("redis+sentinel://127.0.0.1:{}/main", server.port()))).await.unwrap_err();
    assert!(error.to_string().contains("sentinel"), "{error}");
}
