//! What a Redis server can do to locks that no other store can.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, Client, ErrorKind, Key, Options, Store, Units};
use leasehold_redis::Redis;
use leasehold_servers::redis::Redis as Server;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

fn claim(name: &str) -> Claim {
    Claim::new(Key::new(name).unwrap(), 1, Units::Exactly(1)).unwrap()
}

async fn token(store: &Redis, name: &str) -> u64 {
    let claim = claim(name);
    let answer = store.claim(&claim).await.unwrap();
    store.release(&claim, None).await.unwrap();
    match answer {
        Answer::Granted(grant) => grant.token,
        other => panic!("not granted: {other:?}"),
    }
}

#[tokio::test]
async fn something_else_under_a_locks_name_is_a_conflict() {
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    server.cli(&["set", "leasehold{:text}", "hello"]);
    server.cli(&["rpush", "leasehold{:list}", "hello"]);
    server.cli(&["zadd", "leasehold{:set}", "1", "hello"]);
    server.cli(&["hset", "leasehold{:hash}", "hello", "world"]);
    for name in ["text", "list", "set", "hash"] {
        let claim = claim(name);
        let kinds = [
            store.claim(&claim).await.unwrap_err().kind(),
            store.release(&claim, None).await.unwrap_err().kind(),
            store.evict(&claim.key, 1).await.unwrap_err().kind(),
            store.inspect(&claim.key).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Conflict; 4], "{name}");
        assert_eq!(store.renew(&[claim]).await.unwrap(), [Answer::Gone], "{name}");
    }
    assert_eq!(server.cli(&["get", "leasehold{:text}"]), "hello");
    assert_eq!(store.list("", None).await.unwrap().resources, []);
}

#[tokio::test]
async fn something_else_under_the_fences_name_is_a_conflict() {
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    server.cli(&["rpush", "leasehold.fence", "hello"]);
    assert_eq!(store.claim(&claim("orders/42")).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(server.cli(&["keys", "leasehold{*"]), "");
}

#[tokio::test]
async fn tokens_rise_across_an_emptied_and_a_restarted_server() {
    let mut server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    let first = token(&store, "orders/42").await;
    server.cli(&["flushall"]);
    // By another client, who has seen nothing.
    let stranger = Redis::from_url(&server.url()).unwrap();
    let second = token(&stranger, "orders/42").await;
    server.restart();
    let stranger = Redis::from_url(&server.url()).unwrap();
    let third = token(&stranger, "orders/42").await;
    assert!(first < second && second < third, "{first}, {second}, {third}");
}

#[tokio::test]
async fn a_lock_whose_key_was_deleted_is_lost_and_can_be_taken() {
    let server = Server::start();
    let client = Client::new(Redis::from_url(&server.url()).unwrap()).await.unwrap();
    let options = Options::new().lease(Duration::from_secs(3));
    let guard = client.mutex("orders/42").with(options).acquire().await.unwrap();
    server.cli(&["del", "leasehold{:orders/42}"]);
    timeout(SOON, guard.lost()).await.expect("it is told at the next renewal");
    let next = client.mutex("orders/42").try_acquire().await.unwrap().expect("it is free");
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn waiters_whose_key_was_deleted_are_served() {
    let server = Server::start();
    let client = Client::new(Redis::from_url(&server.url()).unwrap()).await.unwrap();
    let held = client.mutex("orders/42").acquire().await.unwrap();
    let lock = client.mutex("orders/42");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while server.cli(&["type", "leasehold{:orders/42}"]) != "zset" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.cli(&["flushall"]);
    let guard = timeout(SOON, waiting).await.expect("it asks again").unwrap().unwrap();
    assert!(guard.token() > held.token());
}

#[tokio::test]
async fn state_that_no_process_owns_has_no_end_until_it_is_over() {
    let server = Server::start();
    let client = Client::new(Redis::from_url(&server.url()).unwrap()).await.unwrap();
    let latch = client.latch("ready");
    assert!(latch.set(2).await.unwrap());
    assert_eq!(server.cli(&["pttl", "leasehold{:ready}"]), "-1");
    let waiting = tokio::spawn(async move { client.latch("ready").wait().await });
    while server.cli(&["type", "leasehold{:ready}"]) != "zset" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.cli(&["pttl", "leasehold{:ready}"]), "-1");
    assert_eq!(latch.count_down_by(2).await.unwrap(), 0);
    timeout(SOON, waiting).await.expect("it is open").unwrap().unwrap();
    while !server.cli(&["keys", "leasehold{*"]).is_empty() {
        assert_ne!(server.cli(&["pttl", "leasehold{:ready}"]), "-1");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_lock_has_an_end_again_when_what_has_none_is_gone() {
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    let mut latch = claim("ready");
    (latch.limit, latch.units, latch.lease, latch.count) = (9, Units::Exactly(9), None, Some(1));
    let Answer::Granted(grant) = store.claim(&latch).await.unwrap() else { panic!("it is open") };
    for _ in 0..3 {
        store.claim(&Claim { limit: 9, ..claim("ready") }).await.unwrap();
    }
    let left = || server.cli(&["pttl", "leasehold{:ready}"]).parse::<i64>().unwrap();
    assert_eq!(left(), -1);
    store.amend(&latch, &Change::Give { n: 1, op: 1, token: grant.token }).await.unwrap();
    assert_eq!(store.inspect(&latch.key).await.unwrap().unwrap().holders.len(), 3);
    assert!((1..=60_000).contains(&left()), "{} ms", left());
}

#[tokio::test]
async fn a_lock_is_kept_for_as_long_as_any_claim_on_it_may_last() {
    const LONG: Duration = Duration::from_secs(1000);
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    let left = || server.cli(&["pttl", "leasehold{:orders/42}"]).parse::<i64>().unwrap();
    let (holder, short) = (claim("orders/42"), claim("orders/42"));
    let delayed = Claim { lock_delay: LONG, ..claim("orders/42") };
    let patient = Claim { patience: LONG * 2, ..claim("orders/42") };
    for claim in [&holder, &delayed, &short] {
        store.claim(claim).await.unwrap();
    }
    assert!((1..=100_000).contains(&left()), "{} ms", left());
    // Its units come free only when the delay is over, too.
    store.release(&holder, None).await.unwrap();
    assert!((900_000..=1_100_000).contains(&left()), "{} ms", left());
    store.claim(&patient).await.unwrap();
    assert!((1_900_000..=2_100_000).contains(&left()), "{} ms", left());
}

#[tokio::test]
async fn a_number_that_the_server_cannot_count_with_is_refused_before_it_is_sent() {
    let store = Redis::from_url("redis://127.0.0.1:1").unwrap();
    let mut claim = claim("orders/42");
    claim.token_above = 1 << 53;
    assert_eq!(store.claim(&claim).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn long_lists_come_in_pages_and_each_lock_once() {
    let server = Server::start();
    let store = Redis::from_url(&server.url()).unwrap();
    for n in 0..1200 {
        store.claim(&claim(&format!("orders*/{n}"))).await.unwrap();
    }
    server.cli(&["set", "leasehold:orders*/foreign", "1"]);
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list("orders*/", cursor.as_deref()).await.unwrap();
        names.extend(page.resources.into_iter().map(|seen| seen.key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let count = names.len();
    names.dedup();
    assert_eq!((count, names.len()), (1200, 1200));
}
