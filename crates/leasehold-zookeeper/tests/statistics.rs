//! What the store asks of its server, by the server's own account.

use std::time::Duration;

use leasehold_core::{Client, Guard, Options};
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_zookeeper::ZooKeeper;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

async fn client(server: &Server) -> Client {
    let store = ZooKeeper::from_url(&format!("{}?tick=200ms", server.url())).expect("the URL makes sense");
    Client::new(store).await.expect("the server answers")
}

/// The number of the server's last write.
fn writes(server: &Server) -> u64 {
    let said = server.ask("srvr");
    let number = said.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).expect("a server has a number");
    u64::from_str_radix(number, 16).expect("it is hexadecimal")
}

/// One of the server's counters.
fn counter(server: &Server, name: &str) -> u64 {
    let said = server.ask("mntr");
    let value = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    value.and_then(|value| value.split('.').next()?.parse().ok()).unwrap_or_default()
}

/// How many watches were set off, by nodes that went, changed, or had children come and go.
fn woken(server: &Server) -> u64 {
    let kinds = ["node_deleted", "node_changed", "node_children", "node_created"];
    kinds.iter().map(|kind| counter(server, &format!("zk_sum_{kind}_watch_count"))).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_is_taken_and_given_back_with_one_write_each() {
    const CYCLES: u64 = 100;
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.mutex("orders/42");
    lock.acquire().await.expect("it is free").release().await.expect("it is held");
    let before = (writes(&server), counter(&server, "zk_packets_received"));
    for _ in 0..CYCLES {
        lock.acquire().await.expect("it is free").release().await.expect("it is held");
    }
    assert_eq!(writes(&server) - before.0, 2 * CYCLES);
    // With the write that takes it a listing is sent along, for the case that it fails. A few are pings, and our questions.
    let requests = counter(&server, "zk_packets_received") - before.1;
    assert!(requests <= 3 * CYCLES + 10, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_wakes_the_next_and_the_one_after_it_and_nobody_else() {
    const CLIENTS: usize = 10;
    const WAITERS: usize = 200;
    let server = Server::start();
    let holder = client(&server).await;
    let guard = holder.mutex("orders/42").acquire().await.expect("it is free");
    let mut waiting: JoinSet<Guard> = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(&server).await);
    }
    for n in 0..WAITERS {
        let lock = clients[n % CLIENTS].mutex("orders/42");
        waiting.spawn(async move { lock.acquire().await.expect("its turn comes") });
    }
    // Everybody watches one node.
    let end = Instant::now() + Duration::from_secs(20);
    while counter(&server, "zk_watch_count") < (WAITERS + CLIENTS + 1) as u64 {
        assert!(Instant::now() < end, "{} watches", counter(&server, "zk_watch_count"));
        sleep(Duration::from_millis(20)).await;
    }
    let before = woken(&server);
    guard.release().await.expect("it is held");
    let next = waiting.join_next().await.expect("somebody waits").expect("it does not panic");
    // The next heard that it came free, and the one after it that it is now the head of the queue.
    let end = Instant::now() + Duration::from_secs(5);
    while woken(&server) - before < 2 && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(woken(&server) - before, 2);
    drop(next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_are_renewed_by_one_write() {
    let server = Server::start();
    let client = client(&server).await;
    let options = Options::new().lease(Duration::from_secs(3));
    let mut guards = Vec::new();
    for n in 0..100 {
        let lock = client.mutex(format!("lock {n}")).with(options.clone());
        guards.push(lock.acquire().await.expect("it is free"));
    }
    let (before, start) = (writes(&server), Instant::now());
    sleep(Duration::from_secs(3)).await;
    // About every second; twice that is still far from one per lock.
    let rounds = start.elapsed().as_secs() * 2 + 4;
    let written = writes(&server) - before;
    assert!((1..=rounds).contains(&written), "{written} writes");
    assert!(guards.iter().all(Guard::is_valid));
}
