//! What the records cost, and what becomes of them when the server forgets.

use leasehold_core::record::LATEST_SWAP;
use leasehold_core::{BootClock, Client, Clock, Severity};
use leasehold_servers::memcached::Memcached as Server;

use super::*;

/// How many requests of two kinds the server has counted: to read an item, and to store one.
fn requests(server: &Server) -> (u64, u64) {
    let statistics = server.ask("stats", "END");
    let count = |name: &str| {
        let line = statistics.iter().find_map(|line| line.strip_prefix(name));
        line.expect("it is counted").trim().parse::<u64>().expect("a number")
    };
    (count("STAT cmd_get "), count("STAT cmd_set "))
}

#[tokio::test]
async fn a_lock_that_nobody_else_uses_is_never_read() {
    let server = Server::start();
    let client = Client::new(memcached(&server.url()).unwrap()).await.unwrap();
    client.mutex("first").acquire().await.unwrap().release().await.unwrap();
    let mut fewest = (u64::MAX, u64::MAX);
    for name in ["a", "b", "c", "a", "b", "c"] {
        let before = requests(&server);
        client.mutex(name).acquire().await.unwrap().release().await.unwrap();
        let after = requests(&server);
        // Now and then the server's time is asked for, and then the record is read too.
        fewest = fewest.min((after.0 - before.0, after.1 - before.1));
    }
    assert_eq!(fewest, (2, 2), "two writes, and in the same requests a look at the server's birth");
}

#[tokio::test]
async fn what_was_written_to_a_server_that_has_just_forgotten_everything_is_taken_back() {
    let server = Server::start();
    let (store, key) = (memcached(&server.url()).unwrap(), Key::new("orders/42").unwrap());
    let loaded = store.records().load(&key).await.unwrap();
    assert_eq!(loaded.version, Version::ABSENT);
    server.ask("flush_all", "OK");
    let swap = Swap {
        key: &key,
        seen: loaded.version,
        seen_at: BootClock.now(),
        born: loaded.born,
        next: b"{}",
        keep: Keep::Forever,
        on: None,
        sole: None,
        news: &[],
        settled: &[],
        last: 0,
        lasting: false,
    };
    assert_eq!(store.records().swap(&swap).await.unwrap(), Swapped::Stale);
    assert!(server.ask("get leasehold:orders/42", "END").is_empty(), "it is still there");
    let again = store.records().load(&key).await.unwrap();
    assert!(again.born >= loaded.born);
    let swap = Swap { born: again.born, ..swap };
    assert_eq!(store.records().swap(&swap).await.unwrap(), Swapped::Done { origin: 0 });
}

#[tokio::test]
async fn what_another_client_wrote_is_seen_in_spite_of_what_is_remembered() {
    let server = Server::start();
    let connect = async || Client::new(memcached(&server.url()).unwrap()).await.unwrap();
    let (one, two) = (connect().await, connect().await);
    let mut last = 0;
    for _ in 0..10 {
        for client in [&one, &two, &two, &one] {
            let guard = client.mutex("orders/42").acquire().await.unwrap();
            assert!(guard.token() > last, "{} after {last}", guard.token());
            last = guard.token();
            let other = if std::ptr::eq(client, &one) { &two } else { &one };
            assert!(other.mutex("orders/42").try_acquire().await.unwrap().is_none());
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_swap_that_comes_too_long_after_its_load_is_not_sent() {
    let server = Server::start();
    let (store, key) = (memcached(&server.url()).unwrap(), Key::new("orders/42").unwrap());
    let loaded = store.records().load(&key).await.unwrap();
    let swap = |age| Swap {
        key: &key,
        seen: Version::ABSENT,
        seen_at: BootClock.now() - age,
        born: loaded.born,
        next: b"{}",
        keep: Keep::Forever,
        on: None,
        sole: None,
        news: &[],
        settled: &[],
        last: 0,
        lasting: false,
    };
    let late = swap(LATEST_SWAP + Duration::from_millis(1));
    assert_eq!(
        store.records().swap(&late).await.unwrap(),
        Swapped::Stale,
        "a stopped process wrote its record"
    );
    assert_eq!(requests(&server).1, 1, "only the birth was written");
    let in_time = swap(LATEST_SWAP - Duration::from_secs(5));
    assert_eq!(store.records().swap(&in_time).await.unwrap(), Swapped::Done { origin: 0 });
}

#[tokio::test]
async fn a_process_that_was_stopped_while_its_swap_was_under_way_takes_it_back() {
    let mut server = Server::start();
    let url = format!("{}?timeout=30s", server.url());
    let (store, key) = (memcached(&url).unwrap(), Key::new("orders/42").unwrap());
    let loaded = store.records().load(&key).await.unwrap();
    let swap = Swap {
        key: &key,
        seen: Version::ABSENT,
        // In time when it is sent, and too late when it is answered.
        seen_at: BootClock.now() - (LATEST_SWAP - Duration::from_secs(2)),
        born: loaded.born,
        next: b"{}",
        keep: Keep::Forever,
        on: None,
        sole: None,
        news: &[],
        settled: &[],
        last: 0,
        lasting: false,
    };
    server.process().freeze();
    let records = store.records();
    let thaw = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        server.process().thaw();
    };
    let (swapped, ()) = tokio::join!(records.swap(&swap), thaw);
    assert_eq!(swapped.unwrap(), Swapped::Stale);
    assert!(server.ask("get leasehold:orders/42", "END").is_empty(), "it is still there");
}

#[tokio::test]
async fn a_server_that_may_evict_locks_is_a_warning() {
    for (settings, severity, found) in
        [([].as_slice(), Severity::Warning, "on"), (["-M"].as_slice(), Severity::Ok, "off")]
    {
        let server = Server::with(settings);
        let store = memcached(&server.url()).unwrap();
        let records = store.records().clone();
        let _client = Client::new(store).await.unwrap();
        let checks = records.info().checks.clone();
        let check = checks.iter().find(|check| check.name == "evictions").expect("it was looked at");
        assert_eq!((check.severity, check.found.as_str()), (severity, found), "{check}");
    }
}
