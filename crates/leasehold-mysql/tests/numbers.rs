//! Tokens, where they come from a sequence and where they come from the counter of a table, as on MySQL.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Answer, Claim, Client, ErrorKind, Key, Options, QuorumTerms, Store, Units};
use leasehold_mysql::{Mysql, init_sql};
use leasehold_servers::mariadb::{Kind, MariaDb};
use tokio::time::timeout;

/// Ends a hang.
const SOON: Duration = Duration::from_secs(60);
/// So long that its end cannot be the reason for anything.
const LONG: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Numbers {
    Sequence,
    Counter,
}

/// Those that the server has.
fn ways() -> &'static [Numbers] {
    match Kind::tested() {
        Kind::MariaDb => &[Numbers::Sequence, Numbers::Counter],
        Kind::MySql => &[Numbers::Counter],
    }
}

/// A server whose tables are made as MariaDB reads the statements, or as MySQL does.
fn server(numbers: Numbers) -> MariaDb {
    let server = MariaDb::start();
    let sql = init_sql("leasehold_").unwrap();
    let sql = match numbers {
        Numbers::Sequence => sql,
        Numbers::Counter => sql.replace("/*M!100600", "/*").replace("/*!80000", "/*!"),
    };
    server.sql(&format!("USE test; {sql}"));
    let kind =
        server.sql("SELECT table_type FROM information_schema.tables WHERE table_name = 'leasehold_numbers'");
    assert_eq!(kind, if numbers == Numbers::Sequence { "SEQUENCE" } else { "BASE TABLE" });
    server
}

/// No call of it is about time.
fn patient(server: &MariaDb, mode: &str) -> Mysql {
    Mysql::from_url(&format!("{}?mode={mode}&timeout=30s&connect_timeout=30s", server.url())).unwrap()
}

fn claim(key: &Key, units: u64) -> Claim {
    Claim { lease: Some(LONG), patience: LONG, ..Claim::new(key.clone(), 40, Units::Exactly(units)).unwrap() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_in_every_mode_though_the_server_is_killed_after_each() {
    for &way in ways() {
        let mut server = server(way);
        for mode in ["lease", "advisory", "rowlock"] {
            let mut last = 0;
            for _ in 0..2 {
                let store = patient(&server, mode);
                let options = Options::new().lease(Duration::from_secs(2));
                let client = Client::builder().defaults(options).connect(store).await.unwrap();
                for _ in 0..2 {
                    let guard = timeout(SOON, client.mutex("k").acquire()).await.unwrap().unwrap();
                    assert!(guard.token() > last, "{way:?}, {mode}: {} after {last}", guard.token());
                    last = guard.token();
                    guard.release().await.unwrap();
                }
                server.restart();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_release_may_grant_to_more_than_it_has_numbers_for() {
    for &way in ways() {
        let server = server(way);
        let (store, key) = (patient(&server, "lease"), Key::new("k").unwrap());
        let all = claim(&key, 40);
        assert!(matches!(store.claim(&all).await.unwrap(), Answer::Granted(_)));
        let waiters: Vec<Claim> = (0..40).map(|_| claim(&key, 1)).collect();
        for waiter in &waiters {
            assert!(matches!(store.claim(waiter).await.unwrap(), Answer::Waiting(_)), "{way:?}");
        }
        store.release(&all, None).await.unwrap();
        let granted = store.renew(&waiters).await.unwrap();
        let mut tokens: Vec<u64> = granted.iter().map(answer_token).collect();
        for waiter in &waiters {
            store.release(waiter, None).await.unwrap();
        }
        tokens.push(answer_token(&store.claim(&claim(&key, 1)).await.unwrap()));
        assert!(tokens.is_sorted_by(|a, b| a < b), "{way:?}: {tokens:?}");
    }
}

/// The server's clock in microseconds.
fn clock(server: &MariaDb) -> u64 {
    server.sql("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))").parse().unwrap()
}

/// How far the source may be ahead of the clock: 60 s, as the README says, and what the test itself draws.
const BOUND: u64 = 61_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_above_the_bound_is_refused_and_does_not_move_the_source() {
    for &way in ways() {
        let server = server(way);
        let (store, key) = (patient(&server, "lease"), Key::new("k").unwrap());
        let first = answer_token(&store.claim(&claim(&key, 1)).await.unwrap());
        for above in [first + 3_600_000_000, 1 << 60] {
            let far = Claim { token_above: above, ..claim(&key, 1) };
            let error = store.claim(&far).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{way:?}: {error}");
            assert!(error.to_string().contains("too far ahead of the clock"), "{way:?}: {error}");
        }
        let next = answer_token(&store.claim(&claim(&key, 1)).await.unwrap());
        assert!(next > first && next <= clock(&server) + BOUND, "{way:?}: {next}");
        // A claim for a token that is little ahead is granted as soon as the clock allows it.
        let near = Claim { token_above: next + 500_000, ..claim(&key, 1) };
        let granted = timeout(SOON, async {
            loop {
                match store.claim(&near).await {
                    Ok(answer) => break answer_token(&answer),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(granted.await.unwrap() > near.token_above, "{way:?}");
    }
}

/// A quorum's tokens come from the clocks of its clients, which may be ahead of the server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction_of_a_token_far_ahead_leaves_the_source_within_its_bound() {
    for &way in ways() {
        let server = server(way);
        let (store, key) = (patient(&server, "lease"), Key::new("k").unwrap());
        let terms = QuorumTerms { keep: Duration::ZERO, min_age: Duration::ZERO, again: false };
        let ahead = clock(&server) + 3_600_000_000;
        let held = Claim { token_above: ahead, quorum: Some(terms), ..claim(&key, 1) };
        let token = answer_token(&store.claim(&held).await.unwrap());
        assert!(store.evict(&key, token).await.unwrap(), "{way:?}");
        let other = claim(&Key::new("another").unwrap(), 1);
        let next = answer_token(&store.claim(&other).await.unwrap());
        assert!(next <= clock(&server) + BOUND, "{way:?}: {next}");
    }
}

fn answer_token(answer: &Answer) -> u64 {
    match answer {
        Answer::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_counter_keeps_no_rows() {
    let server = server(Numbers::Counter);
    let client = Client::new(patient(&server, "lease")).await.unwrap();
    for _ in 0..10 {
        client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.sql("SELECT count(*) FROM test.leasehold_numbers"), "0");
}
