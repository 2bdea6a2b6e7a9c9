//! What the store asks of its server, by the server's own account.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::{Counts, Spy};
use leasehold_core::{Client, Guard, Options};
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_zookeeper::ZooKeeper;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

async fn client(server: &Server) -> Client {
    let store = ZooKeeper::from_url(&format!("{}?tick=200ms", server.url())).expect("the URL makes sense");
    Client::new(store).await.expect("the server answers")
}

/// A client whose answered calls are counted.
async fn counted(server: &Server) -> (Client, Arc<Counts>) {
    let store = ZooKeeper::from_url(&format!("{}?tick=200ms", server.url())).expect("the URL makes sense");
    let (spy, counts) = Spy::counting(Arc::new(store));
    (Client::new(spy).await.expect("the server answers"), counts)
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

/// How many writes a session makes in this time to say that it is there, at most: about every second while it waits.
fn heartbeats(time: Duration) -> u64 {
    5 + 2 * time.as_secs()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_is_taken_and_given_back_with_one_write_each() {
    const CYCLES: u64 = 100;
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.mutex("orders/42");
    lock.acquire().await.expect("it is free").release().await.expect("it is held");
    let (before, start) = ((writes(&server), counter(&server, "zk_packets_received")), Instant::now());
    for _ in 0..CYCLES {
        lock.acquire().await.expect("it is free").release().await.expect("it is held");
    }
    let written = writes(&server) - before.0;
    let more = heartbeats(start.elapsed());
    assert!((2 * CYCLES..=2 * CYCLES + more).contains(&written), "{written} writes");
    // Nothing else is asked. A few are pings, and our questions.
    let requests = counter(&server, "zk_packets_received") - before.1;
    assert!(requests <= 2 * CYCLES + 10 + 4 * more, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_gives_back_another_of_the_same_client_gets_with_the_same_write() {
    const WAITERS: usize = 50;
    let server = Server::start();
    let (client, counts) = counted(&server).await;
    let guard = client.mutex("orders/42").acquire().await.expect("it is free");
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        let lock = client.mutex("orders/42");
        waiting.spawn(async move { lock.acquire().await.expect("its turn comes").release().await });
    }
    queued(&client, WAITERS).await;
    // A claim that the server shows may still ask who is before it. That is not part of a hand-over.
    let end = Instant::now() + Duration::from_secs(60);
    while counts.claims() < WAITERS as u64 + 1 {
        assert!(Instant::now() < end, "{counts:?}");
        sleep(Duration::from_millis(5)).await;
    }
    let (before, start) = ((writes(&server), counter(&server, "zk_packets_received")), Instant::now());
    guard.release().await.expect("it is held");
    while let Some(released) = waiting.join_next().await {
        released.expect("it does not panic").expect("it is held");
    }
    let (served, more) = (WAITERS as u64 + 1, heartbeats(start.elapsed()));
    let written = writes(&server) - before.0;
    assert!((served..=served + more).contains(&written), "{written} writes");
    // Nobody looks. A few are pings, and our questions.
    let requests = counter(&server, "zk_packets_received") - before.1;
    assert!(requests <= served + 10 + 4 * more, "{requests} requests");
}

/// Waits until so many are in the queue, and says which client each is of, in the order of the queue.
async fn queued(client: &Client, count: usize) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = client.inspect("orders/42").await.expect("the server answers").expect("it is held");
        if seen.waiters.len() == count {
            return seen.waiters.iter().map(|waiter| waiter.label.to_string()).collect();
        }
        assert!(Instant::now() < end, "{} wait", seen.waiters.len());
    }
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
        let label = Options::new().label(format!("client {}", n % CLIENTS));
        let lock = clients[n % CLIENTS].mutex("orders/42").with(label);
        waiting.spawn(async move { lock.acquire().await.expect("its turn comes") });
    }
    let queue = queued(&holder, WAITERS).await;
    // Everybody watches one node, but not behind another of the same client. And every client watches one.
    let alone = queue.windows(2).filter(|pair| pair[0] != pair[1]).count() + 1;
    let watches = (alone + CLIENTS + 1) as u64;
    let end = Instant::now() + Duration::from_secs(60);
    while counter(&server, "zk_watch_count") < watches {
        assert!(Instant::now() < end, "{} watches", counter(&server, "zk_watch_count"));
        sleep(Duration::from_millis(20)).await;
    }
    let before = woken(&server);
    guard.release().await.expect("it is held");
    let next = waiting.join_next().await.expect("somebody waits").expect("it does not panic");
    // The next heard that it came free, and the one after it that it is now the head of the queue.
    let heard = if queue[0] == queue[1] { 1 } else { 2 };
    let end = Instant::now() + Duration::from_secs(30);
    while woken(&server) - before < heard && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(woken(&server) - before, heard);
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
