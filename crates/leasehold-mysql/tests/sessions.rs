//! What is particular to the modes whose locks are the database's own: they live and die with a connection.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Feature, Loss, Options};
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::{Mode, Proxy, wait_until};
use tokio::time::timeout;

const MODES: [&str; 2] = ["advisory", "rowlock"];
/// Ends a hang.
const SOON: Duration = Duration::from_secs(30);
/// A loss is heard of within five seconds where the connection ends; and room for a busy machine.
const HEARD: Duration = Duration::from_secs(15);
/// So long that its end cannot be the reason for anything.
const LONG: Duration = Duration::from_secs(300);

async fn client(url: &str, lease: Duration) -> Client {
    let builder = Client::builder().defaults(Options::new().lease(lease));
    builder.connect(Mysql::from_url(url).unwrap()).await.unwrap()
}

fn url(server: &MariaDb, mode: &str) -> String {
    format!("{}?mode={mode}", server.url())
}

#[tokio::test]
async fn named_locks_are_mutexes_and_row_locks_are_shared_too() {
    let server = MariaDb::start();
    for mode in MODES {
        let client = client(&url(&server, mode), LONG).await;
        for feature in Feature::ALL {
            let has = *feature == Feature::Mutex || (*feature == Feature::RwLock && mode == "rowlock");
            assert_eq!(client.info().supports(*feature), has, "{mode}: {feature:?}");
        }
        let error = client.semaphore("s", 3).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_killed_is_a_loss_that_is_heard_of_soon() {
    let server = MariaDb::start();
    for mode in MODES {
        let client = client(&url(&server, mode), LONG).await;
        let guard = client.mutex("k").acquire().await.unwrap();
        for connection in server.connections() {
            server.end_connection(connection);
        }
        let loss = timeout(HEARD, guard.lost()).await.unwrap();
        assert_eq!(loss, Loss::Gone, "{mode}");
        let next = timeout(SOON, client.mutex("k").acquire()).await.unwrap().unwrap();
        assert!(next.token() > guard.token(), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_frees_what_a_client_that_was_cut_off_held_and_its_guard_is_lost_before() {
    let server = MariaDb::start();
    for mode in MODES {
        let proxy = Proxy::to(server.port());
        let cut = format!("mysql://root@127.0.0.1:{}/test?mode={mode}", proxy.port());
        let holder = client(&cut, Duration::from_secs(3)).await;
        let other = client(&url(&server, mode), LONG).await;
        let guard = holder.mutex("k").acquire().await.unwrap();
        proxy.set(Mode::Hold);
        let next = timeout(SOON, other.mutex("k").acquire()).await.unwrap().unwrap();
        assert!(!guard.is_valid(), "{mode}: two valid guards");
        assert!(next.token() > guard.token(), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_named_locks_are_on_one_connection() {
    let server = MariaDb::start();
    let client = client(&url(&server, "advisory"), LONG).await;
    let mut guards = Vec::new();
    for n in 0..50 {
        guards.push(client.mutex(format!("k {n}")).acquire().await.unwrap());
    }
    // One that has the locks, and one that draws numbers.
    wait_until("two connections are left", SOON, || server.connections().len() == 2);
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_though_the_server_is_killed_after_each() {
    let mut server = MariaDb::start();
    for mode in MODES {
        let mut last = 0;
        for _ in 0..3 {
            let client = client(&url(&server, mode), LONG).await;
            let guard = timeout(SOON, client.mutex("k").acquire()).await.unwrap().unwrap();
            assert!(guard.token() > last, "{mode}: {} after {last}", guard.token());
            last = guard.token();
            server.restart();
        }
    }
}

/// How many wait at the server for a lock. Not by `innodb_trx`: who looks there often sees what was.
const WAITING: &str = "SELECT COUNT(*) FROM information_schema.processlist \
                       WHERE id <> CONNECTION_ID() AND (info LIKE '%GET\\_LOCK(%, 1)' OR info LIKE '%FOR UPDATE')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_in_the_queue_of_the_server_and_asks_no_more() {
    let server = MariaDb::start();
    for mode in MODES {
        let (one, other) = (client(&url(&server, mode), LONG).await, client(&url(&server, mode), LONG).await);
        let guard = one.mutex("k").acquire().await.unwrap();
        let lock = other.mutex("k");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        wait_until("it waits at the server", SOON, || server.sql(WAITING) == "1");
        let seen = other.inspect("k").await.unwrap().unwrap();
        let labels: Vec<_> = seen.holders.iter().map(|holder| holder.label.as_str()).collect();
        assert_eq!(labels, [""], "{mode}: one of another process holds, not who waits");
        // Others of the same client go on meanwhile.
        timeout(SOON, other.mutex("another").acquire()).await.unwrap().unwrap().release().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        let next = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
        assert!(next.token() > token, "{mode}");
        assert_eq!(server.sql(WAITING), "0", "{mode}");
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_given_up_is_cancelled_at_the_server() {
    let server = MariaDb::start();
    for mode in MODES {
        let (one, other) = (client(&url(&server, mode), LONG).await, client(&url(&server, mode), LONG).await);
        let guard = one.mutex("k").acquire().await.unwrap();
        let cancelled = || server.sql("SHOW GLOBAL STATUS LIKE 'Com_kill'");
        let before = cancelled();
        wait_until("one wait is cancelled", SOON, || {
            let lock = other.mutex("k");
            let waiting = tokio::spawn(async move { lock.acquire().await });
            wait_until("it waits at the server", SOON, || server.sql(WAITING) == "1");
            waiting.abort();
            wait_until("nobody waits any more", SOON, || server.sql(WAITING) == "0");
            // Its time may have been over at that moment.
            cancelled() != before
        });
        guard.release().await.unwrap();
        timeout(SOON, other.mutex("k").acquire()).await.unwrap().unwrap().release().await.unwrap();
    }
}
