//! What is particular to MariaDB: statements that fail half-way, rights, and what is left when somebody drops the tables.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Answer, Claim, Client, ErrorKind, Key, Store, Units};
use leasehold_mysql::{Mysql, init_sql};
use leasehold_servers::mariadb::{Kind, MariaDb};
use leasehold_servers::wait_until;
use tokio::task::JoinSet;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

fn store(url: &str) -> Mysql {
    Mysql::from_url(url).unwrap()
}

fn claim(name: &str) -> Claim {
    Claim::new(Key::new(name).unwrap(), 1, Units::Exactly(1)).unwrap()
}

/// The tables, made by somebody else.
fn prepared() -> MariaDb {
    let server = MariaDb::start();
    server.sql(&format!("USE test; {}", init_sql("leasehold_").unwrap()));
    server
}

#[tokio::test]
async fn a_claim_whose_last_write_fails_is_not_granted_and_leaves_nothing() {
    let server = prepared();
    let (store, [first, second]) = (store(&server.url()), [claim("k"), claim("k")]);
    // The first finds the lock free, the second does not: they go different ways.
    for (claim, write) in
        [(&first, "INSERT ON test.leasehold_claims"), (&second, "UPDATE ON test.leasehold_keys")]
    {
        let before = store.inspect(&claim.key).await.unwrap().map(|lock| lock.waiters.len());
        server.sql(&format!(
            "CREATE TRIGGER test.no BEFORE {write} FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'"
        ));
        let error = store.claim(claim).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(store.inspect(&claim.key).await.unwrap().map(|lock| lock.waiters.len()), before);
        server.sql("DROP TRIGGER test.no");
        // Whatever it was is not told to the next who uses the connection.
        let answer = store.claim(claim).await.unwrap();
        assert!(matches!(answer, Answer::Granted(_) | Answer::Waiting(_)), "{answer:?}");
    }
}

#[tokio::test]
async fn the_rights_that_the_documentation_lists_are_enough() {
    let server = prepared();
    // Those who run migrations may run them again.
    server.sql(&format!("USE test; {}", init_sql("leasehold_").unwrap()));
    server.sql("CREATE USER app@'%' IDENTIFIED BY 'secret'");
    for table in ["store", "keys", "claims", "refusals", "rows", "numbers"] {
        server.sql(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON test.leasehold_{table} TO app@'%'"));
    }
    for mode in ["lease", "advisory", "rowlock"] {
        let url = format!("{}?mode={mode}", server.url().replace("root@", "app:secret@"));
        let client = Client::new(store(&url)).await.unwrap();
        let guard = client.mutex("k").acquire().await.unwrap();
        assert!(client.inspect("k").await.unwrap().is_some(), "{mode}");
        guard.renew(Duration::from_secs(30)).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn who_may_not_make_the_tables_is_told_what_to_run() {
    let server = MariaDb::start();
    server.sql("CREATE USER app@'%'; GRANT SELECT ON test.* TO app@'%'");
    let error = Client::new(store(&server.url().replace("root@", "app@"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("leasehold store init --print-sql"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_come_first_each_finds_or_makes_the_tables() {
    for _ in 0..3 {
        let server = MariaDb::start();
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let store = store(&format!("{}?connect_timeout=20s&timeout=20s", server.url()));
            all.spawn(async move { store.inspect(&Key::new("k").unwrap()).await });
        }
        for seen in timeout(SOON, all.join_all()).await.unwrap() {
            assert_eq!(seen.unwrap(), None);
        }
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_repeated() {
    let server = MariaDb::start();
    server.sql("CREATE USER app@'%' IDENTIFIED BY 'secret'");
    let url = server.url().replace("root@", "app:hunter2@");
    let error = Client::new(store(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn tables_that_are_dropped_are_made_again_and_tokens_rise() {
    let server = MariaDb::start();
    let numbers = match Kind::tested() {
        Kind::MariaDb => "SEQUENCE",
        Kind::MySql => "TABLE",
    };
    for mode in ["lease", "advisory", "rowlock"] {
        let client = Client::new(store(&format!("{}?mode={mode}", server.url()))).await.unwrap();
        let guard = client.mutex("k").acquire().await.unwrap();
        let before = guard.token();
        let _ = guard.release().await;
        server.sql(&format!(
            "USE test; DROP VIEW leasehold_locks; DROP {numbers} leasehold_numbers;
             DROP TABLE leasehold_keys, leasehold_claims, leasehold_refusals, leasehold_rows, leasehold_store",
        ));
        let again = async {
            loop {
                match client.mutex("k").acquire().await {
                    Ok(guard) => return guard,
                    Err(error) => assert!(error.is_retryable(), "{mode}: {error}"),
                }
            }
        };
        let guard = timeout(SOON, again).await.unwrap();
        assert!(guard.token() > before, "{mode}: {} after {before}", guard.token());
        guard.release().await.unwrap();
    }
}

/// A time zone in which summer ends in half an hour: the clock will show this hour once more.
fn hour_that_comes_twice() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (mut day, mut year) = (now / 86_400, 1970);
    let days = |year: u64| if year.is_multiple_of(4) { 366 } else { 365 };
    while day >= days(year) {
        (day, year) = (day - days(year), year + 1);
    }
    // Of the clock that shows an hour more. More than twenty-four of them are tomorrow's.
    let minutes = now % 86_400 / 60 + 90;
    format!("WINTER0SUMMER-1,0/0,{day}/{}:{:02}", minutes / 60, minutes % 60)
}

#[tokio::test]
async fn an_hour_that_comes_twice_ends_no_lease_early() {
    let server = MariaDb::in_time_zone(&hour_that_comes_twice());
    let (store, claim) = (store(&server.url()), claim("k"));
    assert_eq!(server.sql("SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), NOW())"), "60");
    assert!(matches!(store.claim(&claim).await.unwrap(), Answer::Granted(_)));
    let since = server.sql("SELECT since DIV 1000 FROM test.leasehold_claims").parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(since) < 1800, "{since}, and it is {now}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_nobody_needs_any_more_are_closed() {
    let server = prepared();
    let store = store(&server.url());
    let mut rush = JoinSet::new();
    for n in 0..50 {
        let store = store.clone();
        rush.spawn(async move { store.claim(&claim(&format!("k{n}"))).await.map(drop) });
    }
    for done in rush.join_all().await {
        done.unwrap();
    }
    assert!(server.connections().len() > 1, "there was no rush");
    wait_until("one connection is left", SOON, || server.connections().len() == 1);
}
