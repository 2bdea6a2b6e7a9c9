//! What things cost, counted by the server itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Claim, Client, Key, Options, Store, Units};
use leasehold_postgres::Postgres;
use leasehold_servers::postgres::Postgres as Server;
use leasehold_servers::wait_until;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Everything below must have happened by then, however busy the machine is.
const SOON: Duration = Duration::from_secs(60);

/// A server that counts its statements.
fn start() -> Server {
    let server = Server::with(&["fsync=off", "shared_preload_libraries=pg_stat_statements"]);
    server.sql("CREATE EXTENSION pg_stat_statements");
    server
}

async fn client(server: &Server) -> Client {
    let client = Client::new(Postgres::from_url(&server.url()).unwrap()).await.unwrap();
    client.mutex("first").acquire().await.unwrap().release().await.unwrap();
    client
}

fn reset(server: &Server) {
    server.sql("SELECT pg_stat_statements_reset()");
}

/// Which statements of ours ran since the last reset, and how often.
fn counts(server: &Server) -> String {
    server.sql(
        "SELECT substring(query FROM 'leasehold.*\\.([a-z]+)_1') AS verb, sum(calls) FROM pg_stat_statements
         WHERE query LIKE 'SELECT%\"leasehold\".%' GROUP BY verb ORDER BY verb",
    )
}

#[tokio::test]
async fn an_uncontended_acquire_is_one_statement_and_so_is_its_release() {
    let server = start();
    let client = client(&server).await;
    reset(&server);
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    assert_eq!(counts(&server), "claim|1");
    guard.release().await.unwrap();
    assert_eq!(counts(&server), "claim|1\nrelease|1");
}

#[tokio::test]
async fn a_contended_hand_over_is_the_release_and_one_message() {
    let server = start();
    let (one, two) = (client(&server).await, client(&server).await);
    let held = one.mutex("orders/42").acquire().await.unwrap();
    let waits = tokio::spawn(async move { two.mutex("orders/42").acquire().await.unwrap() });
    while one.inspect("orders/42").await.unwrap().unwrap().waiters.is_empty() {}
    // The head of the queue looks every second: so this must be done before.
    reset(&server);
    held.release().await.unwrap();
    let next = timeout(SOON, waits).await.unwrap().unwrap();
    let said = counts(&server);
    assert!(said.lines().any(|line| line == "release|1"), "{said}");
    assert!(!said.contains("claim"), "{said}");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_at_once_share_statements() {
    const TASKS: usize = 200;
    let server = start();
    let client = client(&server).await;
    reset(&server);
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let lock = client.mutex(format!("lock {n}"));
        tasks.spawn(async move { lock.acquire().await.unwrap() });
    }
    let guards = timeout(SOON, tasks.join_all()).await.unwrap();
    futures_util::future::try_join_all(guards.into_iter().map(|guard| guard.release())).await.unwrap();
    let said = counts(&server);
    let number = |line: &str| line.split_once('|').unwrap().1.parse::<usize>().unwrap();
    for verb in ["claim", "release"] {
        let statements: usize = said.lines().filter(|line| line.starts_with(verb)).map(number).sum();
        assert!(statements <= TASKS / 2, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_renewed_with_forty_statements() {
    const LOCKS: usize = 10_000;
    let server = start();
    let store = Postgres::from_url(&server.url()).unwrap();
    let long = Duration::from_secs(600);
    let claims: Vec<Claim> = (0..LOCKS)
        .map(|n| Claim {
            lease: Some(long),
            ..Claim::new(Key::new(format!("lock {n}")).unwrap(), 1, Units::Exactly(1)).unwrap()
        })
        .collect();
    for many in claims.chunks(64) {
        futures_util::future::try_join_all(many.iter().map(|claim| store.claim(claim))).await.unwrap();
    }
    reset(&server);
    for many in claims.chunks(store.info().batch) {
        let said = store.renew(many).await.unwrap();
        assert!(said.iter().all(|answer| matches!(answer, leasehold_core::Answer::Granted(_))));
    }
    let said = counts(&server);
    let renewals: u64 = said.lines().find_map(|line| line.strip_prefix("renew|")).unwrap().parse().unwrap();
    assert!(renewals <= 40, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_is_read_from_end_to_end_even_if_it_was_empty_when_it_was_vacuumed() {
    let server = start();
    server.sql(&leasehold_postgres::init_sql("leasehold").unwrap());
    // Now the server knows that they are empty, and would rather read all of nothing than an index.
    server.sql("VACUUM ANALYZE leasehold.keys");
    server.sql("VACUUM ANALYZE leasehold.claims");
    server.sql("SELECT pg_stat_reset()");
    let (one, two) = (client(&server).await, client(&server).await);
    let held = one.mutex("orders/42").acquire().await.unwrap();
    let waits = tokio::spawn(async move { two.mutex("orders/42").acquire().await.unwrap() });
    while one.inspect("orders/42").await.unwrap().unwrap().waiters.is_empty() {}
    held.renew(Duration::from_secs(30)).await.unwrap();
    held.release().await.unwrap();
    timeout(SOON, waits).await.unwrap().unwrap().release().await.unwrap();
    drop(one);
    // Sessions say what they did when they end, at the latest.
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    wait_until("no session is left", SOON, || server.sql(sessions) == "0");
    let scans = "SELECT sum(idx_scan) > 0, sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('keys', 'claims')";
    assert_eq!(server.sql(scans), "t|0");
}

#[tokio::test]
async fn who_holds_in_peace_is_asked_for_nothing_but_renewals() {
    let server = start();
    let client = client(&server).await;
    let lease = Duration::from_secs(3);
    let guard = client.mutex("orders/42").with(Options::new().lease(lease)).acquire().await.unwrap();
    reset(&server);
    // Three renewals or a little more.
    tokio::time::sleep(lease).await;
    let said = counts(&server);
    let renewals: u64 = said.lines().find_map(|line| line.strip_prefix("renew|")).unwrap().parse().unwrap();
    assert!((2..=5).contains(&renewals) && said.lines().count() == 1, "{said}");
    guard.release().await.unwrap();
}
