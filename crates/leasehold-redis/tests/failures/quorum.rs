//! A quorum of servers to which a release comes late.

use std::time::Duration;

use leasehold_core::layers::{Fault, Faults, Verb};
use leasehold_core::{Client, Options, Quorum};
use leasehold_redis::Redis as Store;
use leasehold_servers::redis::Redis;

use crate::memory::{empty, fill};
use crate::scene::*;

/// A client of the quorum, and its ways to the servers.
async fn client(servers: &[Redis]) -> (Client, Vec<Faults<Store>>) {
    let store = |server: &Redis| Store::from_url(&server.url()).expect("the URL makes sense");
    let ways: Vec<_> = servers.iter().map(|server| Faults::new(store(server))).collect();
    let quorum = Quorum::builder().members(ways.clone()).without_quarantine().build();
    let builder = Client::builder().defaults(Options::new().lease(LEASE * 3));
    (builder.connect(quorum.expect("three members")).await.expect("the servers answer"), ways)
}

/// Only the first server has memory when the first attempt asks. The release of what it granted arrives when a later
/// attempt holds the lock on the first two servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_release_does_not_end_a_later_attempt() {
    let servers: Vec<_> = (0..3).map(|_| Redis::with(&["--maxmemory-policy", "noeviction"])).collect();
    let ((one, ways), (two, _)) = (client(&servers).await, client(&servers).await);
    servers[1..].iter().for_each(fill);
    let late_by = LEASE / 2;
    ways[0].once(Verb::Release, Fault { before: late_by, ..Fault::default() });

    let lock = one.mutex(KEY);
    let memory_comes_back = async {
        while ways[0].injected().late == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        empty(&servers[1]);
    };
    let (guard, ()) = tokio::join!(lock.acquire(), memory_comes_back);
    let guard = guard.expect("two servers have memory");
    empty(&servers[2]);
    tokio::time::sleep(late_by).await;

    let second = two.mutex(KEY).try_acquire().await.expect("two servers answer");
    assert!(guard.is_valid(), "the lock was lost");
    assert!(second.is_none(), "two valid guards: a late release ended a newer claim");
}
