//! Renewals in a cluster: together for each server, and each server for itself.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use leasehold_core::{Client, Guard};
use leasehold_servers::redis::{Cluster, Redis};

use crate::scene::*;

/// How many locks there are on each primary.
const EACH: usize = 200;
/// Long enough that renewals which are nearly due go along with those that are, and that a busy machine loses none.
const LONG: Duration = Duration::from_secs(12);

/// Locks on the primary with this number, all in one slot.
async fn hold_on(client: &Client, servers: &Cluster, primary: usize) -> Vec<Guard> {
    let tag = (0..).map(|n| format!("tag-{n}")).find(|tag| servers.owner(tag, 0) == primary);
    let tag = tag.expect("there are many names");
    let locks: Vec<_> = (0..EACH).map(|n| client.mutex(format!("lock-{n}{{{tag}}}"))).collect();
    try_join_all(locks.iter().map(|lock| lock.acquire())).await.expect("all are free")
}

/// How many calls of scripts a server has had, and how often it read from a connection.
fn calls_and_reads(server: &Redis) -> (u64, u64) {
    let number = |section: &str, name: &str, end: char| -> u64 {
        let said = server.cli(&["info", section]);
        let after = said.split_once(name).expect("the server says it").1;
        after.split([end, '\r', '\n']).next().and_then(|n| n.parse().ok()).expect("it is a number")
    };
    (number("commandstats", "cmdstat_evalsha:calls=", ','), number("stats", "total_reads_processed:", ','))
}

/// Waits until each of these was renewed.
async fn all_renewed(guards: &[Guard]) {
    let since = Instant::now();
    let left: Vec<_> = guards.iter().map(Guard::valid_for).collect();
    // Later by half of what a renewal adds.
    let is_renewed =
        |(guard, left): (&Guard, &Duration)| guard.valid_for() + since.elapsed() > *left + LONG / 6;
    while !guards.iter().zip(&left).all(is_renewed) {
        assert_eq!(guards.iter().filter(|guard| !guard.is_valid()).count(), 0, "after {:?}", since.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_go_to_each_server_in_few_pipelines() {
    let mut servers = Cluster::start();
    let client = client_on(&servers.url(), LONG).await;
    let mut guards = Vec::new();
    for primary in 0..3 {
        guards.extend(hold_on(&client, &servers, primary).await);
    }
    let before: Vec<_> = (0..3).map(|index| calls_and_reads(servers.server(index))).collect();
    all_renewed(&guards).await;
    for (index, (calls, reads)) in before.into_iter().enumerate() {
        let (calls_now, reads_now) = calls_and_reads(servers.server(index));
        let (calls, reads) = (calls_now - calls, reads_now - reads);
        assert!(calls >= EACH as u64, "server {index} renewed {calls} of {EACH}");
        assert!(reads * 2 < calls, "server {index} read {reads} times for {calls} calls");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_delays_no_renewal_on_the_others() {
    let mut servers = Cluster::start();
    for index in 0..6 {
        // Nobody takes its slots over, and the others go on without it.
        for (setting, value) in
            [("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")]
        {
            servers.server(index).cli(&["config", "set", setting, value]);
        }
    }
    let client = client_on(&servers.url(), LONG).await;
    let sick = hold_on(&client, &servers, 0).await;
    let mut well = hold_on(&client, &servers, 1).await;
    well.extend(hold_on(&client, &servers, 2).await);
    servers.server(0).process().freeze();
    all_renewed(&well).await;
    servers.server(0).process().thaw();
    drop(sick);
}
