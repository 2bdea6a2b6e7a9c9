//! What is particular to the modes whose locks are the database's own: they live and die with a connection.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Feature, Loss, Options};
use leasehold_postgres::{Postgres, init_sql};
use leasehold_servers::postgres::{Bouncer, Postgres as Server};
use leasehold_servers::{Mode, Proxy, wait_until};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const MODES: [&str; 2] = ["advisory", "rowlock"];
/// Ends a hang.
const SOON: Duration = Duration::from_secs(30);
/// A loss is heard of within five seconds where the connection ends; and room for a busy machine.
const HEARD: Duration = Duration::from_secs(15);
/// So long that its end cannot be the reason for anything.
const LONG: Duration = Duration::from_secs(300);

async fn client(url: &str, lease: Duration) -> Client {
    let end = Instant::now() + SOON;
    loop {
        let builder = Client::builder().defaults(Options::new().lease(lease));
        match builder.connect(Postgres::from_url(url).unwrap()).await {
            Ok(client) => return client,
            // A server that has just come back may take its time.
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error}"),
        }
    }
}

fn url(server: &Server, mode: &str) -> String {
    format!("{}?mode={mode}", server.url())
}

#[tokio::test]
async fn behind_a_pooler_session_modes_are_refused_and_the_error_says_what_to_use() {
    let server = Server::start();
    // One that refuses our settings, and one that swallows them.
    for settings in [&[][..], &["ignore_startup_parameters = options"]] {
        let bouncer = Bouncer::to(&server, settings);
        for mode in MODES {
            let store = Postgres::from_url(&format!("{}?mode={mode}", bouncer.url())).unwrap();
            let error = Client::new(store).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("mode=lease"), "{error}");
        }
    }
}

#[tokio::test]
async fn session_modes_have_mutexes_and_read_write_locks_and_no_more() {
    let server = Server::start();
    for mode in MODES {
        let client = client(&url(&server, mode), LONG).await;
        for feature in Feature::ALL {
            let has = matches!(feature, Feature::Mutex | Feature::RwLock);
            assert_eq!(client.info().supports(*feature), has, "{mode}: {feature:?}");
        }
        let error = client.semaphore("s", 3).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_terminated_is_a_loss_that_is_heard_of_at_once() {
    let server = Server::start();
    for mode in MODES {
        let client = client(&url(&server, mode), LONG).await;
        let guard = client.mutex("k").acquire().await.unwrap();
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leasehold%'",
        );
        let loss = timeout(HEARD, guard.lost()).await.unwrap();
        assert_eq!(loss, Loss::Gone, "{mode}");
        let next = timeout(SOON, client.mutex("k").acquire()).await.unwrap().unwrap();
        assert!(next.token() > guard.token(), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_frees_what_a_client_that_was_cut_off_held_and_its_guard_is_lost_before() {
    let server = Server::start();
    for mode in MODES {
        let proxy = Proxy::to(server.port());
        let cut = format!("postgres://postgres@127.0.0.1:{}/postgres?mode={mode}", proxy.port());
        let (holder, other) =
            (client(&cut, Duration::from_secs(3)).await, client(&url(&server, mode), LONG).await);
        let guard = holder.mutex("k").acquire().await.unwrap();
        proxy.set(Mode::Hold);
        let next = timeout(SOON, other.mutex("k").acquire()).await.unwrap().unwrap();
        assert!(!guard.is_valid(), "{mode}: two valid guards");
        assert!(next.token() > guard.token(), "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_advisory_locks_are_on_one_connection() {
    let server = Server::start();
    let client = client(&url(&server, "advisory"), LONG).await;
    let mut guards = Vec::new();
    for n in 0..50 {
        guards.push(client.mutex(format!("k {n}")).acquire().await.unwrap());
    }
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leasehold%'";
    wait_until("one connection is left", SOON, || server.sql(connections) == "1");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(server.sql(locks), "50");
    client.close().await.unwrap();
    drop((client, guards));
    wait_until("nothing is locked", SOON, || server.sql(locks) == "0");
}

#[tokio::test]
async fn a_lock_whose_number_cannot_be_drawn_is_given_back() {
    let server = Server::start();
    server.sql(&init_sql("leasehold").unwrap());
    server.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA leasehold TO app;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app",
    );
    for mode in MODES {
        server.sql("GRANT ALL ON SEQUENCE leasehold.numbers TO app");
        let url = url(&server, mode).replace("postgres@", "app@");
        let client = client(&url, LONG).await;
        client.mutex("k").acquire().await.unwrap().release().await.unwrap();
        server.sql("REVOKE ALL ON SEQUENCE leasehold.numbers FROM app");
        let error = client.mutex("k").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{mode}: {error}");
        // The statement failed after it had the lock.
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' OR relation = 'leasehold.rows'::regclass";
        wait_until("nothing is locked", SOON, || server.sql(held) == "0");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_though_the_server_is_killed_after_each() {
    let mut server = Server::start();
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_the_same_process_is_woken_by_a_release() {
    let server = Server::start();
    for mode in MODES {
        let client = client(&url(&server, mode), LONG).await;
        let witness = Arc::new(Mutex::new(0));
        let mut turns = JoinSet::new();
        for _ in 0..30 {
            let (lock, witness) = (client.mutex("k"), witness.clone());
            turns.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                {
                    let mut last = witness.try_lock().expect("nobody else holds");
                    assert!(guard.token() > *last);
                    *last = guard.token();
                }
                guard.release().await.unwrap();
            });
        }
        timeout(SOON, turns.join_all()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_ends_no_session() {
    let server = Server::with_a_clock();
    let lease = Duration::from_secs(6);
    for mode in MODES {
        let client = client(&url(&server, mode), lease).await;
        let guard = client.mutex("k").acquire().await.unwrap();
        for ahead in [3600, -3600, 0] {
            server.set_clock(ahead);
            guard.renew(lease).await.unwrap();
        }
        guard.release().await.unwrap();
    }
}

/// How many wait at the server for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_in_the_queue_of_the_server_and_asks_no_more() {
    let server = Server::start();
    for mode in MODES {
        let (one, other) = (client(&url(&server, mode), LONG).await, client(&url(&server, mode), LONG).await);
        let guard = one.mutex("k").acquire().await.unwrap();
        let lock = other.mutex("k");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        wait_until("it waits at the server", SOON, || server.sql(WAITING) == "1");
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
    let server = Server::start();
    for mode in MODES {
        let (one, other) = (client(&url(&server, mode), LONG).await, client(&url(&server, mode), LONG).await);
        let guard = one.mutex("k").acquire().await.unwrap();
        let cancelled = || server.log().matches("due to user request").count();
        let before = cancelled();
        wait_until("one wait is cancelled", SOON, || {
            let lock = other.mutex("k");
            let waiting = tokio::spawn(async move { lock.acquire().await });
            wait_until("it waits at the server", SOON, || server.sql(WAITING) == "1");
            waiting.abort();
            wait_until("nobody waits any more", SOON, || server.sql(WAITING) == "0");
            // Its time may have been over at that moment.
            cancelled() > before
        });
        guard.release().await.unwrap();
        timeout(SOON, other.mutex("k").acquire()).await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_many_advisory_locks_needs_few_connections() {
    const LOCKS: usize = 40;
    let server = Server::start();
    let (one, other) =
        (client(&url(&server, "advisory"), LONG).await, client(&url(&server, "advisory"), LONG).await);
    let (mut guards, mut waiting) = (Vec::new(), JoinSet::new());
    for n in 0..LOCKS {
        guards.push(one.mutex(format!("k {n}")).acquire().await.unwrap());
        let lock = other.mutex(format!("k {n}"));
        waiting.spawn(async move { lock.acquire().await.unwrap() });
    }
    wait_until("some wait at the server", SOON, || server.sql(WAITING) != "0");
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leasehold%'";
    assert!(server.sql(connections).parse::<usize>().unwrap() < LOCKS / 2);
    for guard in guards {
        guard.release().await.unwrap();
    }
    let guards = timeout(SOON, waiting.join_all()).await.unwrap();
    assert!(server.sql(connections).parse::<usize>().unwrap() < LOCKS / 2);
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_does_not_wait_for_who_waits() {
    let server = Server::start();
    for mode in MODES {
        let (one, other) = (client(&url(&server, mode), LONG).await, client(&url(&server, mode), LONG).await);
        let _in_the_way = one.mutex("k").acquire().await.unwrap();
        let guard = other.mutex("another").acquire().await.unwrap();
        let lock = other.mutex("k");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        // Since when it waits: another time when it has begun anew.
        let since = || server.sql("SELECT min(waitstart) FROM pg_locks WHERE NOT granted");
        let end = Instant::now() + SOON;
        loop {
            assert!(Instant::now() < end, "{mode}: whenever it was renewed, the wait had ended");
            wait_until("it waits at the server", SOON, || server.sql(WAITING) == "1");
            let before = since();
            guard.renew(LONG).await.unwrap();
            if !before.is_empty() && since() == before {
                break;
            }
        }
        waiting.abort();
        guard.release().await.unwrap();
    }
}
