//! What things cost, counted by the server itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
#![allow(clippy::future_not_send, reason = "a test waits for them where it is")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use leasehold_core::{Client, Error, Guard, Options};
use leasehold_etcd::Etcd;
use leasehold_servers::etcd::Etcd as Server;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Everything below must have happened by then, however busy the machine is.
const SOON: Duration = Duration::from_secs(30);
/// Long, so that no renewal falls into what is counted.
const LEASE: Duration = Duration::from_secs(120);

async fn connect(server: &Server) -> Client {
    let builder = Client::builder().call_timeout(SOON).defaults(Options::new().lease(LEASE));
    // On a busy machine nobody should give up and connect again: that would be counted too.
    let url = format!("{}?timeout=30s&connect_timeout=30s", server.url());
    builder.connect(Etcd::from_url(&url).unwrap()).await.unwrap()
}

/// The sum of the server's counters of this name with this label.
fn count(server: &Server, name: &str, label: &str) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).map(|number| number as u64).sum()
}

/// Calls that the server has answered, by method.
fn calls(server: &Server, method: &str) -> u64 {
    count(server, "grpc_server_handled_total{", &format!("grpc_method=\"{method}\""))
}

/// Everything but keep-alives, which travel beside others.
fn round_trips(server: &Server) -> u64 {
    ["Txn", "Range", "LeaseGrant", "LeaseTimeToLive", "LeaseRevoke"]
        .iter()
        .map(|method| calls(server, method))
        .sum()
}

/// What watchers were told: every change of a key that one of them watches. Not the messages, which also say that a
/// watch was made, and carry several changes at once to a watcher that has to catch up.
fn told(server: &Server) -> u64 {
    count(server, "etcd_debugging_mvcc_events_total", "")
}

/// How often keys of inboxes were written.
fn written(server: &Server) -> u64 {
    let inboxes = server.ctl(&["get", "--prefix", "--write-out=json", "leasehold/inbox/"]);
    let versions = inboxes.split("\"version\":").skip(1);
    versions.filter_map(|rest| rest.split([',', '}']).next()?.parse::<u64>().ok()).sum()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let limit = Instant::now() + SOON;
    while !is_so().await {
        assert!(Instant::now() < limit, "{what}: never");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_uncontended_acquire_is_one_transaction_and_so_is_its_release() {
    let server = Server::start();
    let client = connect(&server).await;
    // The session is opened.
    client.mutex("first").acquire().await.unwrap().release().await.unwrap();
    let (before, kept) = (round_trips(&server), calls(&server, "LeaseKeepAlive"));
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    assert_eq!(round_trips(&server) - before, 1);
    guard.release().await.unwrap();
    assert_eq!(round_trips(&server) - before, 2);
    assert_eq!(calls(&server, "LeaseKeepAlive") - kept, 0, "it was opened a moment ago");
}

#[tokio::test]
async fn a_lock_that_is_used_again_has_no_new_names() {
    let server = Server::start();
    let client = connect(&server).await;
    let names = || server.ctl(&["get", "--prefix", "--keys-only", "leasehold/lock/orders"]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let guard = client.mutex("orders/42").acquire().await.unwrap();
        let (second, mut waiting) = (client.clone(), JoinSet::new());
        waiting.spawn(async move { second.mutex("orders/42").acquire().await });
        until("it waits", async || names().contains("/wait/")).await;
        seen.push(names());
        guard.release().await.unwrap();
        waiting.join_next().await.unwrap().unwrap().unwrap().release().await.unwrap();
    }
    assert!(seen.iter().all(|names| *names == seen[0]), "servers remember each until they compact: {seen:?}");
}

#[tokio::test]
async fn a_busy_attempt_is_one_transaction_and_writes_nothing() {
    let server = Server::start();
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let _held = holder.mutex("orders/42").acquire().await.unwrap();
    client.mutex("first").acquire().await.unwrap().release().await.unwrap();
    let (before, puts) = (round_trips(&server), count(&server, "etcd_mvcc_put_total", ""));
    assert!(client.mutex("orders/42").try_acquire().await.unwrap().is_none());
    assert_eq!(round_trips(&server) - before, 1);
    assert_eq!(count(&server, "etcd_mvcc_put_total", "") - puts, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_with_two_hundred_waiters_wakes_one_client() {
    const CLIENTS: usize = 40;
    const EACH: usize = 5;
    let server = Server::start();
    let holder = connect(&server).await;
    let guard = holder.mutex("orders/42").acquire().await.unwrap();
    let mut waiting: JoinSet<Result<Guard, Error>> = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = connect(&server).await;
        for _ in 0..EACH {
            let client = client.clone();
            waiting.spawn(async move { client.mutex("orders/42").acquire().await });
        }
    }
    until("everybody waits", async || {
        holder.inspect("orders/42").await.unwrap().unwrap().waiters.len() == CLIENTS * EACH
    })
    .await;
    // The first claims of a session write its key, and a watch that was made later is told of that later.
    until("all watchers have caught up", async || told(&server) == written(&server)).await;
    let before = told(&server);
    guard.release().await.unwrap();
    let next = waiting.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(told(&server) - before, 1, "others were told too");
    let before = told(&server);
    next.release().await.unwrap();
    drop(waiting.join_next().await.unwrap().unwrap().unwrap());
    assert!(told(&server) - before <= 2, "one for each hand-over");
    waiting.abort_all();
}
