//! What things cost, counted by the server itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::{Answer, Claim, Key, Released, Store, Units};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::{Kind, MariaDb};

/// What the server counted since it started.
fn status(server: &MariaDb, name: &str) -> u64 {
    server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).split('\t').nth(1).unwrap().parse().unwrap()
}

/// How many statements the server was asked since it started. What is sent together is counted one by one.
fn asked(server: &MariaDb) -> u64 {
    status(server, "Questions")
}

/// No call of it is about time.
fn patient(server: &MariaDb) -> Mysql {
    Mysql::from_url(&format!("{}?timeout=30s&connect_timeout=30s", server.url())).unwrap()
}

fn claim(n: usize) -> Claim {
    let key = Key::new(format!("lock {n}")).unwrap();
    Claim { lease: Some(Duration::from_secs(600)), ..Claim::new(key, 1, Units::Exactly(1)).unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_renewed_with_forty_statements() {
    const LOCKS: usize = 10_000;
    // What is measured is the count: nothing is written to the disk.
    let server = MariaDb::with(&["--innodb-flush-log-at-trx-commit=0"]);
    let store = patient(&server);
    let claims: Vec<Claim> = (0..LOCKS).map(claim).collect();
    let mut all = tokio::task::JoinSet::new();
    for part in claims.chunks(LOCKS / 8).map(<[Claim]>::to_vec) {
        let store = store.clone();
        all.spawn(async move {
            for claim in part {
                assert!(matches!(store.claim(&claim).await.unwrap(), Answer::Granted(_)));
            }
        });
    }
    all.join_all().await;
    let before = asked(&server);
    for many in claims.chunks(store.info().batch) {
        let said = store.renew(many).await.unwrap();
        assert!(said.iter().all(|answer| matches!(answer, Answer::Granted(_))));
    }
    // With the sweeps that traffic brings along, and what this test itself asks.
    let renewals = asked(&server) - before;
    assert!((10..=40).contains(&renewals), "{renewals}");
}

/// How many tables the server made on its disk for statements so far. To ask makes some too: always as many.
fn tables(server: &MariaDb) -> u64 {
    status(server, "Created_tmp_disk_tables")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_makes_a_table_on_the_server_s_disk() {
    let server = MariaDb::start();
    let store = patient(&server);
    let claims = [claim(1), claim(2), Claim { id: claim(3).id, ..claim(1) }];
    store.inspect(&claims[0].key).await.unwrap();
    let (first, second) = (tables(&server), tables(&server));
    for claim in &claims {
        store.claim(claim).await.unwrap();
    }
    store.renew(&claims).await.unwrap();
    store.inspect(&claims[0].key).await.unwrap();
    store.list("", None).await.unwrap();
    store.vacuum().await.unwrap();
    for claim in &claims {
        store.release(claim, None).await.unwrap();
    }
    // And what many ask together.
    let many: Vec<Claim> = (0..100).map(claim).collect();
    try_join_all(many.iter().map(|claim| store.claim(claim))).await.unwrap();
    try_join_all(many.iter().map(|claim| store.release(claim, None))).await.unwrap();
    assert_eq!(tables(&server) - second, second - first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_nobody_else_wants_costs_four_statements_and_its_release_one() {
    let server = MariaDb::start();
    let store = patient(&server);
    let claim = claim(1);
    store.inspect(&claim.key).await.unwrap();
    // To ask is counted too.
    let (first, second) = (asked(&server), asked(&server));
    assert!(matches!(store.claim(&claim).await.unwrap(), Answer::Granted(_)));
    let third = asked(&server);
    assert_eq!(store.release(&claim, None).await.unwrap(), Released::Held);
    let fourth = asked(&server);
    let to_ask = second - first;
    // What MySQL cannot say in one statement goes by the longer way, in two round trips.
    let to_claim = if Kind::tested() == Kind::MariaDb { 4 } else { 11 };
    assert_eq!((third - second - to_ask, fourth - third - to_ask), (to_claim, 1));
}
