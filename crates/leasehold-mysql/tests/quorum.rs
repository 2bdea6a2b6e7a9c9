//! Databases that decide together: three PostgreSQL, and PostgreSQL with MariaDB and SQLite.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Guard, Options};
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::postgres::Postgres;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Ends a hang.
const SOON: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);

async fn client(members: &[String]) -> Client {
    let url = format!("quorum:restart_quarantine=off,member_timeout=2s,{}", members.join(","));
    let store = leasehold::open(&url).unwrap();
    Client::builder().defaults(Options::new().lease(LEASE)).connect(store).await.unwrap()
}

/// Acquires, through whatever goes wrong.
async fn acquire(client: &Client) -> Guard {
    let asking = async {
        loop {
            match client.mutex("k").acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    };
    timeout(SOON, asking).await.expect("it is granted soon")
}

/// Clients take turns: never two at once, and tokens rise.
async fn take_turns(members: &[String]) {
    let last = Arc::new(AtomicU64::new(0));
    let inside = Arc::new(AtomicU64::new(0));
    let mut all = JoinSet::new();
    for _ in 0..4 {
        let (client, last, inside) = (client(members).await, last.clone(), inside.clone());
        all.spawn(async move {
            for _ in 0..5 {
                let guard = acquire(&client).await;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
                assert!(last.swap(guard.token(), Ordering::SeqCst) < guard.token(), "a token went back");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                let _ = guard.release().await;
            }
        });
    }
    while let Some(done) = timeout(2 * SOON, all.join_next()).await.expect("everybody has a turn") {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_databases_decide_together_and_two_do_without_the_third() {
    let mut servers = [Postgres::start(), Postgres::start(), Postgres::start()];
    let members = servers.each_ref().map(Postgres::url);
    take_turns(&members).await;
    let (one, two) = (client(&members).await, client(&members).await);
    let guard = acquire(&one).await;
    servers[0].kill();
    assert!(two.mutex("k").try_acquire().await.unwrap().is_none(), "two of three know that it is held");
    let before = guard.token();
    let _ = guard.release().await;
    let next = acquire(&two).await;
    assert!(next.token() > before);
    servers[1].kill();
    let error = one.mutex("other").try_acquire().await.expect_err("one of three is no majority");
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_of_three_kinds_decide_together() {
    let (mut postgres, mysql) = (Postgres::start(), MariaDb::start());
    let directory = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}", directory.path().join("locks.db").display());
    let members = [postgres.url(), mysql.url(), file];
    take_turns(&members).await;
    let (one, two) = (client(&members).await, client(&members).await);
    postgres.kill();
    let guard = acquire(&one).await;
    assert!(two.mutex("k").try_acquire().await.unwrap().is_none(), "two of three know that it is held");
    guard.release().await.unwrap();
}
