//! What things cost: requests counted on the way, between the client and its server.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
#![allow(clippy::future_not_send, reason = "a test waits for them where it is")]

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_consul::Consul;
use leasehold_core::{Client, Error, Guard, Options};
use leasehold_servers::consul::{Consul as Server, Overheard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// What takes longer than this hangs.
const SOON: Duration = Duration::from_secs(30);
/// Long, so that no renewal falls into what is counted.
const LEASE: Duration = Duration::from_secs(300);

/// A client, and the way that its requests take.
async fn overheard(server: &Server) -> (Client, Overheard) {
    let way = Overheard::to(server.port());
    let store = Consul::from_url(&format!("consul://127.0.0.1:{}?timeout=30s", way.port())).unwrap();
    let builder = Client::builder().call_timeout(SOON).defaults(Options::new().lease(LEASE));
    (builder.connect(store).await.unwrap(), way)
}

/// What was asked, without the query that waits for news and without what is done in passing.
fn asked(way: &Overheard) -> Vec<String> {
    let counts = |line: &String| !line.contains("&index=") && !line.contains("/loose/?keys");
    way.asked().into_iter().filter(counts).collect()
}

#[tokio::test]
async fn an_uncontended_acquire_is_one_request_and_so_is_its_release() {
    let server = Server::start();
    let (client, way) = overheard(&server).await;
    // Opens the session, and keeps it open.
    let _kept = client.mutex("first").acquire().await.unwrap();
    asked(&way);
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    assert_eq!(asked(&way), ["PUT /v1/txn?"]);
    guard.release().await.unwrap();
    assert_eq!(asked(&way), ["PUT /v1/txn?"]);
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    assert_eq!(asked(&way), ["PUT /v1/txn?"], "the same lock again");
    guard.release().await.unwrap();
    assert_eq!(asked(&way), ["PUT /v1/txn?"]);
}

#[tokio::test]
async fn the_first_acquire_opens_a_session_with_two_requests_more() {
    let server = Server::start();
    let (client, way) = overheard(&server).await;
    asked(&way);
    let _guard = client.mutex("orders/42").acquire().await.unwrap();
    assert_eq!(asked(&way), ["PUT /v1/session/create?", "PUT /v1/txn?", "PUT /v1/txn?"]);
}

#[tokio::test]
async fn a_busy_attempt_changes_nothing() {
    let server = Server::start();
    let ((holder, _), (client, way)) = (overheard(&server).await, overheard(&server).await);
    let _kept = client.mutex("first").acquire().await.unwrap();
    let _held = holder.mutex("orders/42").acquire().await.unwrap();
    let index = || server.ask("GET", "/v1/kv/leasehold/locks/orders/42", "");
    let before = index();
    asked(&way);
    assert!(client.mutex("orders/42").try_acquire().await.unwrap().is_none());
    // The guess that it is free, which is wrong; a look at it; a look who lives.
    let asked = asked(&way);
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(index(), before);
}

#[tokio::test]
async fn a_renewal_looks_at_many_locks_at_once() {
    const LOCKS: usize = 16;
    let server = Server::start();
    let (client, way) = overheard(&server).await;
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        guards.push(client.mutex(format!("orders/{lock}")).acquire().await.unwrap());
    }
    asked(&way);
    guards[0].renew(LEASE).await.unwrap();
    // The session, the write that proves it, the locks: a few looks, because some of them take turns.
    let asked = asked(&way);
    assert!(asked.len() <= 2 + LOCKS / 4, "{asked:?}");
    assert!(guards.iter().all(Guard::is_valid));
}

#[tokio::test]
async fn all_who_look_at_a_lock_at_the_same_moment_see_it() {
    let server = Server::start();
    let (client, _way) = overheard(&server).await;
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    for _ in 0..20 {
        let look = || client.inspect("orders/42");
        let (one, two, three, renewed) = tokio::join!(look(), look(), look(), guard.renew(LEASE));
        renewed.unwrap();
        assert!([one, two, three].into_iter().all(|seen| seen.unwrap().is_some()), "it is held");
    }
    assert!(guard.is_valid());
}

#[tokio::test]
async fn who_is_next_hears_of_the_death_of_who_holds() {
    let server = Server::start();
    let ((holder, _), (heir, way)) = (overheard(&server).await, overheard(&server).await);
    let guard = holder.mutex("orders/42").acquire().await.unwrap();
    let (_, keys) = server.ask("GET", "/v1/kv/leasehold/alive/?keys", "");
    let session = keys.split('"').nth(1).unwrap().rsplit('/').next().unwrap().to_owned();
    let waiting = tokio::spawn(async move { heir.mutex("orders/42").acquire().await });
    let watch = format!("/alive/{}?index=", session.replace('-', "%2D"));
    let mut watches = 0;
    let limit = Instant::now() + SOON;
    while watches < 2 {
        assert!(Instant::now() < limit, "nobody watches");
        watches += way.asked().iter().filter(|line| line.contains(&watch)).count();
        sleep(Duration::from_millis(5)).await;
    }
    way.said();
    assert_eq!(server.ask("PUT", &format!("/v1/session/destroy/{session}"), "").0, 200);
    let next = timeout(SOON, waiting).await.expect("it is granted").unwrap().unwrap();
    assert!(way.said().contains("404 Not Found"), "it was not told");
    assert!(next.token() > guard.token());
}

/// The names of news in what a server said: `clients/SESSION/SEAT`.
fn news(said: &str) -> BTreeSet<&str> {
    let names = said.split("\"leasehold/clients/").skip(1).filter_map(|rest| rest.split('"').next());
    names.filter(|name| name.rsplit('/').next().is_some_and(|seat| seat.parse::<u64>().is_ok())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_with_two_hundred_waiters_wakes_one_client() {
    const CLIENTS: usize = 40;
    const EACH: usize = 5;
    let server = Server::start();
    let (holder, _way) = overheard(&server).await;
    let guard = holder.mutex("orders/42").acquire().await.unwrap();
    let mut waiting: JoinSet<Result<Guard, Error>> = JoinSet::new();
    let mut ways = Vec::new();
    for client in 1..=CLIENTS {
        let (waiter, way) = overheard(&server).await;
        ways.push(way);
        for _ in 0..EACH {
            let waiter = waiter.clone();
            waiting.spawn(async move { waiter.mutex("orders/42").acquire().await });
        }
        let limit = Instant::now() + SOON;
        while holder.inspect("orders/42").await.unwrap().unwrap().waiters.len() < client * EACH {
            assert!(Instant::now() < limit, "not everybody is in the queue");
            sleep(Duration::from_millis(5)).await;
        }
    }
    ways.iter().for_each(|way| drop(way.said()));
    guard.release().await.unwrap();
    let next = timeout(SOON, waiting.join_next()).await.expect("the first of them holds");
    let next = next.unwrap().unwrap().unwrap();
    let woken: Vec<String> = ways.iter().map(Overheard::said).filter(|said| !news(said).is_empty()).collect();
    assert_eq!(woken.len(), 1, "others were told too");
    assert_eq!(news(&woken[0]).len(), 1, "it was told of others too");
    waiting.abort_all();
    drop(next);
}
