//! Another server takes over, or another server gets the key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_servers::redis::{Cluster, Redis, Sentinel};
use leasehold_servers::wait_until;

use crate::scene::*;

/// Longer than any failover here takes.
const LONG: Duration = Duration::from_secs(30);
/// How long the servers may take to agree on another one.
const AGREED: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_min_replicas_a_hold_and_a_hundred_waiters_survive_a_sentinel_failover() {
    let mut servers = Sentinel::start();
    let url = format!("{}?min_replicas=1", servers.url());
    let (holder, waiter) = (client_on(&url, LONG).await, client_on(&url, LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 100, &witness).await;
    let old = servers.primary().port();
    servers.primary().process().kill();
    servers.wait_for_another_than(old);
    let primary = servers.primary();
    wait_until("a replica follows the new primary", AGREED, || {
        primary.cli(&["info", "replication"]).contains("state=online")
    });
    still_held(&guard, LONG).await;
    guard.release().await.expect("the new primary answers");
    all_served(waiting).await;
    goes_on(&holder, &witness).await;
    nothing_is_left(servers.primary(), [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_a_replica_has_survives_a_sentinel_failover_and_renews_itself() {
    let mut servers = Sentinel::start();
    let (holder, waiter) = (client_on(&servers.url(), LONG / 2).await, client(&servers.url()).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    for replica in &servers.servers()[1..] {
        wait_until("the replicas have it", AGREED, || {
            replica.cli(&["exists", "leasehold{:orders/42}"]) == "1"
        });
    }
    let old = servers.primary().port();
    servers.primary().process().kill();
    servers.wait_for_another_than(old);
    // Without anybody asking for it.
    let left = guard.valid_for();
    wait_until("the keeper renewed it at the new primary", left, || guard.valid_for() > left);
    assert!(waiter.mutex(KEY).try_acquire().await.expect("the new primary answers").is_none());
    guard.release().await.expect("the new primary answers");
    goes_on(&waiter, &witness).await;
    nothing_is_left(servers.primary(), [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_and_its_waiters_survive_a_cluster_failover() {
    let mut servers = Cluster::start();
    let url = format!("{}?min_replicas=1", servers.url());
    let (holder, waiter) = (client_on(&url, LONG).await, client_on(&url, LONG).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 30, &witness).await;
    let old = servers.owner("{:orders/42}", 0);
    let (survivor, heir) = ((old + 1) % 3, old + 3);
    servers.server(old).process().kill();
    wait_until("the replica took over", AGREED, || servers.owner("{:orders/42}", survivor) == heir);
    // Its replica: with one per primary, nobody else could acknowledge.
    servers.server(old).start_again();
    let primary = servers.server(heir);
    wait_until("a replica follows the new primary", AGREED, || {
        primary.cli(&["info", "replication"]).contains("state=online")
    });
    still_held(&guard, LONG).await;
    guard.release().await.expect("the new primary answers");
    all_served(waiting).await;
    goes_on(&holder, &witness).await;
    nothing_is_left(servers.server(heir), [holder, waiter]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_loses_nobody() {
    let mut servers = Cluster::start();
    let (holder, worker) = (client_on(&servers.url(), LONG).await, client_on(&servers.url(), LONG).await);
    let witness = Witness::default();
    // In the same slot as the lock that is worked on.
    let guard = holder.mutex("held{:orders/42}").acquire().await.expect("it is free");
    let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let workers: Vec<_> = (0..8)
        .map(|n| {
            let client = if n % 2 == 0 { holder.clone() } else { worker.clone() };
            let (stop, turns, witness) = (stop.clone(), turns.clone(), witness.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    take_a_turn(client.clone(), witness.clone()).await;
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let more = |what: &str| {
        let before = turns.load(Ordering::Relaxed);
        wait_until(what, SERVED, || turns.load(Ordering::Relaxed) > before + 16);
    };
    more("work goes on before");
    let from = servers.owner("{:orders/42}", 0);
    let to = (from + 1) % 3;
    servers.move_slot("{:orders/42}", to, || {});
    more("work goes on where the slot is now");
    servers.move_slot("{:orders/42}", from, || {});
    more("work goes on where the slot was");
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.expect("nobody saw two holders or a smaller token");
    }
    still_held(&guard, LONG).await;
    guard.release().await.expect("the server answers");
    nothing_is_left(servers.server(from), [holder, worker]).await;
    nothing_is_left(servers.server(to), []).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_min_replicas_a_grant_that_no_replica_has_is_no_grant() {
    let primary = Redis::start();
    let replica = Redis::replica_of(&primary, &[]);
    let client = client(&format!("{}?min_replicas=1", primary.url())).await;
    let witness = Witness::default();
    goes_on(&client, &witness).await;
    replica.cli(&["replicaof", "no", "one"]);
    let error = client.mutex(KEY).try_acquire().await.expect_err("no replica has it");
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    wait_until("it was withdrawn", SERVED, || primary.cli(&["exists", "leasehold{:orders/42}"]) == "0");
    replica.cli(&["replicaof", "127.0.0.1", &primary.port().to_string()]);
    wait_until("the replica is back", AGREED, || {
        primary.cli(&["info", "replication"]).contains("state=online")
    });
    goes_on(&client, &witness).await;
    nothing_is_left(&primary, [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_primary_grants_beside_the_new_one_with_smaller_tokens() {
    let primary = Redis::start();
    let replica = Redis::replica_of(&primary, &[]);
    let (before, after) = (client(&primary.url()).await, client(&replica.url()).await);
    let witness = Witness::default();
    goes_on(&before, &witness).await;
    let fence = ["get", "leasehold.fence"];
    wait_until("the replica has it", SERVED, || replica.cli(&fence) == primary.cli(&fence));
    // Another primary is chosen, and the old one does not hear of it.
    replica.cli(&["replicaof", "no", "one"]);
    let old = acquire(&before).await;
    witness.granted(&old);
    let new = acquire(&after).await;
    witness.granted_again(&new);
    assert!(old.is_valid() && new.is_valid(), "the safety page is too strict");
    old.release().await.expect("the old primary answers");
    let late = acquire(&before).await;
    assert!(late.token() < new.token(), "{} after {}", late.token(), new.token());
    drop((late, new));
    nothing_is_left(&replica, [before, after]).await;
}
