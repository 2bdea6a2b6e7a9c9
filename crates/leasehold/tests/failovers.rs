//! Stores whose servers answer but cannot serve: connecting waits for its own time, and says why when that is over.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind, Result};
use leasehold_servers::consul::Trio;
use leasehold_servers::mariadb::MariaDb;
use leasehold_servers::postgres::Postgres;
use leasehold_servers::redis::{Cluster, Redis, Sentinel};
use leasehold_servers::zookeeper::Ensemble;
use leasehold_servers::{etcd, free_port};

/// Longer than any server takes to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most that a connect may take beyond its limit.
const GRACE: Duration = Duration::from_secs(5);

async fn connect(url: &str, limit: Duration) -> Result<Client> {
    Client::builder().connect_timeout(limit).connect(leasehold::open(url)?).await
}

/// Waits until the servers that are left have noticed that they cannot serve.
async fn stops_serving(url: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match connect(url, Duration::ZERO).await {
            Err(error) if error.is_transient() => return,
            other => assert!(Instant::now() < deadline, "{:?}", other.map(drop)),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The servers cannot serve until `recover`. Connecting fails before that when its time is over, and then succeeds.
async fn recovers<T: Send + 'static>(url: &str, recover: impl FnOnce() -> T + Send + 'static) {
    stops_serving(url).await;
    let limit = Duration::from_secs(3);
    let start = Instant::now();
    let error = connect(url, limit).await.map(drop).unwrap_err();
    let took = start.elapsed();
    assert!(error.is_transient() && error.kind() == ErrorKind::Unavailable, "{}: {error}", error.kind());
    assert!(took > limit / 2 && took < limit + GRACE, "{took:?}: {error}");
    assert!(!error.to_string().contains("may have happened"), "{error}");
    let lazy = leasehold::connect_lazy(url).unwrap();
    let waiting = {
        let url = url.to_owned();
        tokio::spawn(async move { connect(&url, PATIENCE).await })
    };
    let _kept = tokio::task::spawn_blocking(recover).await.unwrap();
    let client = waiting.await.unwrap().unwrap();
    let held = async |client: &Client| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match client.mutex("k").acquire().await {
                Ok(guard) => return guard.release().await,
                // The others of the servers may still be starting.
                Err(error) if error.is_retryable() && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    };
    held(&client).await.unwrap();
    held(&lazy).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_without_a_primary() {
    let mut servers = Sentinel::start();
    for server in servers.servers() {
        server.process().kill();
    }
    let url = servers.url();
    recovers(&url, move || {
        servers.servers().iter_mut().for_each(Redis::start_again);
        servers
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_without_primaries() {
    let mut servers = Cluster::start();
    let url = servers.url();
    // The first server stays, so it answers, and has the slots of some keys.
    (1..6).for_each(|at| servers.server(at).process().kill());
    let client = connect(&url, PATIENCE).await.unwrap();
    let mut lost = None;
    for key in (0..20).map(|n| format!("k{n}")) {
        if let Err(error) = client.mutex(&key).try_acquire().await {
            assert!(error.is_transient(), "{error}");
            lost = Some(key);
            break;
        }
    }
    let lost = lost.expect("most of the slots have no server");
    (1..6).for_each(|at| servers.server(at).start_again());
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = client.mutex(&lost).acquire().await {
        assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_without_a_leader() {
    let mut servers = etcd::Cluster::start();
    servers.member(1).process().kill();
    servers.member(2).process().kill();
    let url = servers.url();
    recovers(&url, move || {
        servers.start_again(1);
        servers.start_again(2);
        servers.wait();
        servers
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_without_a_quorum() {
    let mut servers = Ensemble::start();
    servers.server(1).process().kill();
    servers.server(2).process().kill();
    let url = servers.url();
    recovers(&url, move || {
        servers.server(1).start_again();
        servers
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_without_a_leader() {
    let mut servers = Trio::start();
    let url = servers.url();
    servers.servers()[1].process().kill();
    servers.servers()[2].process().kill();
    recovers(&url, move || {
        servers.servers()[1].start_again();
        servers.servers()[2].start_again();
        servers
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_standby_that_is_promoted_later() {
    let mut primary = Postgres::start();
    connect(&primary.url(), PATIENCE).await.unwrap();
    let standby = Postgres::standby_of(&primary);
    primary.kill();
    for hosts in [vec![primary.port(), standby.port()], vec![standby.port(), primary.port()]] {
        let hosts = hosts.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
        let url = format!("postgres://postgres@{hosts}/postgres");
        let error = connect(&url, Duration::ZERO).await.map(drop).unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", standby.port());
    recovers(&url, move || {
        standby.promote();
        (primary, standby)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_that_is_read_only_at_first() {
    let server = MariaDb::start();
    connect(&server.url(), PATIENCE).await.unwrap();
    server.sql("SET GLOBAL read_only = ON");
    let url = server.url();
    recovers(&url, move || {
        server.sql("SET GLOBAL read_only = OFF");
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorum_with_one_of_three_members() {
    let up = Redis::start();
    let mut down = [Redis::start(), Redis::start()];
    down.iter_mut().for_each(|server| server.process().kill());
    let hosts = [&up, &down[0], &down[1]].map(|server| format!("127.0.0.1:{}", server.port())).join(",");
    let url = format!("redlock://{hosts}?restart_quarantine=off");
    recovers(&url, move || {
        down.iter_mut().for_each(Redis::start_again);
        (up, down)
    })
    .await;
}

/// Nothing says that such a server will ever be there.
#[tokio::test]
async fn server_that_refuses_is_reported_without_waiting() {
    let (start, url) = (Instant::now(), format!("redis://127.0.0.1:{}", free_port()));
    let error = connect(&url, PATIENCE).await.map(drop).unwrap_err();
    assert!(!error.is_transient() && start.elapsed() < PATIENCE / 4, "{error}");
}
