//! Servers that are out of something, and rows and tables that others have their hands on.

use std::time::Duration;

use leasehold_conformance::trouble::*;
use leasehold_core::{Answer, Change, Claim, Client, ErrorKind, Key, Loss, Options, Units};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::scene::{Site, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_connection_is_left_the_error_says_so_and_a_holder_goes_on() {
    // Fewer than ten cannot be asked for.
    let site = Site::of(MariaDb::with(&["--innodb-flush-log-at-trx-commit=2", "--max-connections=10"]));
    site.server.sql("CREATE USER app@'%'; GRANT ALL ON test.* TO app@'%'");
    let url = format!("{}?connections=1", site.server.url().replace("root@", "app@"));
    let holder = client(store(&url), LONG).await;
    let guard = acquire(&holder).await;
    let mut others = vec![holder];
    let error = loop {
        match Client::new(Mysql::from_url(&url).unwrap()).await {
            Ok(client) => others.push(client),
            Err(error) => break error,
        }
        assert!(others.len() <= 10, "there are only ten connections");
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    still_held(&guard, LONG).await;
    guard.release().await.expect("its connection is there");
    nothing_is_left(|| site.left(), others).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_for_a_row_ends_in_time_and_did_not_happen() {
    let site = Site::new();
    let client = client(store(&format!("{}?timeout=1s", site.server.url())), LONG).await;
    let guard = acquire(&client).await;
    let mut keeper = Conn::new(Opts::from_url(&site.server.url()).unwrap()).await.unwrap();
    keeper.query_drop("BEGIN").await.unwrap();
    let rows: Vec<i64> = keeper.query("SELECT held FROM leasehold_keys FOR UPDATE").await.unwrap();
    assert_eq!(rows.len(), 1);
    let asked = timeout(SERVED, client.mutex(KEY).try_acquire()).await.expect("every call ends");
    let error = asked.expect_err("the row is not to be had");
    assert!(error.is_retryable(), "{error}");
    keeper.query_drop("ROLLBACK").await.unwrap();
    keeper.disconnect().await.unwrap();
    let seen = client.inspect(KEY).await.unwrap().expect("it is held");
    assert!(seen.waiters.is_empty() && seen.holders.len() == 1);
    guard.release().await.expect("the row is free");
    nothing_is_left(|| site.left(), [client]).await;
}

/// A session that keeps the rows of this statement, and no others.
async fn keep(site: &Site, statement: &str) -> Conn {
    let mut keeper = Conn::new(Opts::from_url(&site.server.url()).unwrap()).await.unwrap();
    keeper.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.unwrap();
    keeper.query_drop("BEGIN").await.unwrap();
    keeper.query_drop(statement).await.unwrap();
    keeper
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_keeps_the_rows_of_some_locks_costs_their_holder_no_other() {
    let site = Site::new();
    let client = client(site.store(), LEASE).await;
    let key = client.mutex("key").acquire().await.unwrap();
    let claim = client.mutex("claim").acquire().await.unwrap();
    let other = client.mutex("other").acquire().await.unwrap();
    let keepers = [
        keep(&site, "SELECT * FROM leasehold_keys WHERE name = 'key' FOR UPDATE").await,
        keep(&site, "SELECT * FROM leasehold_claims WHERE name = 'claim' FOR UPDATE").await,
    ];
    for kept in [&key, &claim] {
        assert_eq!(lost_in_time(kept).await, Loss::Expired);
    }
    assert!(other.is_valid(), "it was not renewed");
    still_held(&other, LEASE).await;
    for keeper in keepers {
        keeper.disconnect().await.unwrap();
    }
    drop((key, claim, other));
    nothing_is_left(|| site.left(), [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_another_session_keeps_cost_only_their_own_locks() {
    for table in ["leasehold_keys", "leasehold_claims"] {
        let site = Site::new();
        let lease = Duration::from_secs(6);
        let client = client(site.store(), lease).await;
        let mut all = JoinSet::new();
        for n in 0..100 {
            let lock = client.mutex(format!("lock {n:02}"));
            all.spawn(async move { (n, lock.acquire().await.unwrap()) });
        }
        let guards = all.join_all().await;
        // More rows than the client has connections to wait on.
        let keeper = keep(&site, &format!("SELECT * FROM {table} WHERE name < 'lock 50' FOR UPDATE")).await;
        sleep(lease * 2).await;
        let mut lost: Vec<usize> =
            guards.iter().filter(|(_, guard)| !guard.is_valid()).map(|(n, _)| *n).collect();
        lost.sort_unstable();
        assert_eq!(lost, (0..50).collect::<Vec<_>>(), "{table}: {} of 100 locks are lost", lost.len());
        keeper.disconnect().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_row_costs_no_lock_with_a_shorter_lease() {
    for table in ["leasehold_keys", "leasehold_claims"] {
        let site = Site::new();
        let client = client(site.store(), LONG).await;
        let (long, short) = (Duration::from_secs(9), Duration::from_millis(2700));
        let lock = |name: &str, lease| client.mutex(name).with(Options::new().lease(lease));
        let kept = lock("long", long).acquire().await.unwrap();
        let other = lock("short", short).acquire().await.unwrap();
        let keeper = keep(&site, &format!("SELECT * FROM {table} WHERE name = 'long' FOR UPDATE")).await;
        // The client retries the renewal of the kept lock until that is lost, and renews the other one meanwhile.
        let loss = timeout(SERVED, kept.lost()).await.unwrap();
        assert!(other.is_valid(), "{table}: the other lock is lost too: {:?}", (loss, other.lost().await));
        sleep(short).await;
        assert!(other.is_valid(), "{table}: {}", other.lost().await);
        keeper.disconnect().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_wait_for_a_row_that_somebody_keeps_leave_connections_for_other_locks() {
    let site = Site::new();
    for (mode, row) in [
        ("lease", "leasehold_keys VALUES ('kept', 0, 0, 0, 0, 0, 0, 0, 0)"),
        ("rowlock", "leasehold_rows VALUES ('kept')"),
    ] {
        let client = client(store(&format!("{}?mode={mode}", site.server.url())), LONG).await;
        let keeper = keep(&site, &format!("INSERT INTO {row}")).await;
        let mut waiting = JoinSet::new();
        for _ in 0..30 {
            let lock = client.mutex("kept");
            waiting.spawn(async move { lock.acquire().await.map(drop) });
        }
        for n in 0..10 {
            let asked = client.mutex(format!("other {n}")).try_acquire().await;
            let other = asked.expect("a connection is left").expect("it is free");
            other.release().await.expect("a connection is left");
        }
        waiting.shutdown().await;
        keeper.disconnect().await.unwrap();
        nothing_is_left(|| site.left(), [client]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_when_the_tables_are_dropped_hears_of_it_before_its_lease_is_over() {
    let site = Site::new();
    let [holder, other] = [client(site.store(), LONG).await, client(site.store(), LONG).await];
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    site.server
        .sql("USE test; DROP TABLE leasehold_keys, leasehold_claims, leasehold_refusals, leasehold_store");
    // It is nobody's: docs/safety.md says so.
    let next = acquire(&other).await;
    witness.granted_again(&next);
    let _ = guard.renew(LONG).await;
    assert_eq!(lost_in_time(&guard).await, Loss::Gone);
    assert!(next.is_valid());
    drop((guard, next));
    nothing_is_left(|| site.left(), [holder, other]).await;
}

/// Rows that are kept from everybody for as long as this is there.
const ALL_KEPT: &str = "SELECT * FROM leasehold_keys WHERE name LIKE 'kept/%' FOR UPDATE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_rows_that_somebody_keeps_keeps_what_it_holds() {
    let site = Site::new();
    let (other, own) = (client(site.store(), LONG).await, client(site.store(), LEASE).await);
    let (mut guards, mut waiting) = (Vec::new(), JoinSet::new());
    for n in 0..20 {
        guards.push(other.mutex(format!("kept/{n}")).acquire().await.unwrap());
        let lock = own.mutex(format!("kept/{n}"));
        waiting.spawn(async move { lock.acquire().await.map(drop) });
    }
    let held = own.mutex("held").acquire().await.unwrap();
    until("all wait", async || {
        let seen = own.list("kept/").await.unwrap();
        seen.len() == 20 && seen.iter().all(|lock| lock.waiters.len() == 1)
    })
    .await;
    let keeper = keep(&site, ALL_KEPT).await;
    assert_eq!(timeout(LEASE * 3, held.lost()).await.ok(), None);
    keeper.disconnect().await.unwrap();
    waiting.abort_all();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_did_not_happen_is_not_said_to_have() {
    let site = Site::new();
    let client = client(site.store(), LONG).await;
    let lock = client.mutex("kept/1").with(Options::new().fixed(Duration::from_secs(20)));
    let guard = lock.acquire().await.unwrap();
    let keeper = keep(&site, ALL_KEPT).await;
    let error = guard.renew(Duration::from_secs(60)).await.expect_err("the row is not to be had");
    assert!(error.is_retryable() && guard.valid_for() < Duration::from_secs(20), "{error}");
    keeper.disconnect().await.unwrap();
    // It was asked for, so it is tried again, or who asked does.
    guard.renew(Duration::from_secs(60)).await.expect("the row is free");
    assert!(guard.valid_for() > Duration::from_secs(40));
    guard.release().await.expect("it is held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_begins_in_full_though_somebody_kept_the_row() {
    const FIXED: Duration = Duration::from_secs(60);
    let site = Site::new();
    let clients = [client(site.store(), LONG).await, client(site.store(), LONG).await];
    let first = clients[0].mutex("kept/1").acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for (n, options) in [Options::new().fixed(FIXED), Options::new()].into_iter().enumerate() {
        let lock = clients[1].mutex("kept/1").with(options);
        waiting.spawn(async move { lock.acquire().await });
        until("it waits", async || {
            let seen = clients[0].inspect("kept/1").await.unwrap().expect("it is held");
            seen.waiters.len() == n + 1
        })
        .await;
    }
    // Who has seen others does not try the short way first.
    assert!(clients[0].mutex("kept/1").try_acquire().await.unwrap().is_none());
    // Somebody has the row at every moment but that of the release: who is next lives on its place for a while.
    let mut keeper = keep(&site, ALL_KEPT).await;
    let release = tokio::spawn(first.release());
    sleep(Duration::from_millis(100)).await;
    let url = site.server.url();
    let again = tokio::spawn(async move {
        let mut keeper = Conn::new(Opts::from_url(&url).unwrap()).await.unwrap();
        keeper.query_drop("BEGIN").await.unwrap();
        keeper.query_drop(ALL_KEPT).await.unwrap();
        sleep(Duration::from_secs(3)).await;
        keeper.query_drop("ROLLBACK").await.unwrap();
    });
    sleep(Duration::from_millis(150)).await;
    keeper.query_drop("ROLLBACK").await.unwrap();
    release.await.unwrap().expect("the row comes free");
    let guard = timeout(SERVED, waiting.join_next()).await.unwrap().unwrap().unwrap().unwrap();
    again.await.unwrap();
    until("its lease is a full one", async || guard.valid_for() > FIXED / 2).await;
    waiting.abort_all();
}

/// A claim whose renewal cannot be decided now, because another transaction has its lock's row, and how it stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_cannot_be_renewed_now_fails_no_other_renewal() {
    let site = Site::new();
    let store = site.store();
    let shared = |units, lease| {
        let claim = Claim::new(Key::new("kept/1").unwrap(), 10, Units::Exactly(units)).unwrap();
        Claim { lease: Some(lease), patience: lease, ..claim }
    };
    let (reader, growing) = (shared(5, LONG), shared(5, LONG));
    let (late, never) = (shared(1, Duration::from_millis(1)), shared(1, LONG));
    let healthy = Claim {
        lease: Some(LONG),
        ..Claim::new(Key::new("healthy").unwrap(), 1, Units::Exactly(1)).unwrap()
    };
    for claim in [&reader, &growing, &healthy] {
        assert!(matches!(store.claim(claim).await.unwrap(), Answer::Granted(_)));
    }
    let grown = store.amend(&growing, &Change::Units { to: 6, op: 1 }).await.unwrap();
    assert!(matches!(&grown, Answer::Waiting(place) if place.held == 5), "{grown:?}");
    assert!(matches!(store.claim(&late).await.unwrap(), Answer::Waiting(_)));
    // The waiter's patience is over.
    sleep(Duration::from_millis(50)).await;
    let keeper = keep(&site, ALL_KEPT).await;
    for (name, claim) in [("growing", &growing), ("late", &late), ("missing", &never)] {
        let answers = store.renew(&[claim.clone(), healthy.clone()]).await;
        let answers = answers.unwrap_or_else(|error| panic!("{name}: the whole round fails: {error}"));
        match (name, &answers[0]) {
            ("growing", Answer::Waiting(place)) => assert_eq!((place.held, place.lease), (5, None)),
            ("late", Answer::Waiting(place)) => assert_eq!((place.held, place.lease), (0, None)),
            ("missing", Answer::Gone) => {}
            (_, answer) => panic!("{name}: {answer:?}"),
        }
        assert!(
            matches!(&answers[1], Answer::Granted(grant) if grant.lease.is_some()),
            "{name}: {answers:?}"
        );
    }
    keeper.disconnect().await.unwrap();
}
