//! What the records cost, and what becomes of them when the server forgets.

use leasehold_core::Client;
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
