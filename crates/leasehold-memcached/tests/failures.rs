//! What the store promises when its server forgets, stands still or has no room.

use std::time::Duration;

use leasehold_core::{Client, ErrorKind, Guard, Loss, Options};
use leasehold_memcached::memcached;
use leasehold_servers::memcached::Memcached;
use leasehold_servers::wait_until;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The lock that the cases are about.
const KEY: &str = "orders/42";
/// A third of it is long against one call on a busy machine.
const LEASE: Duration = Duration::from_secs(12);
/// Ends what hangs.
const LIMIT: Duration = Duration::from_secs(60);

async fn client(server: &Memcached) -> Client {
    let store = memcached(&server.url()).expect("the URL makes sense");
    let builder =
        Client::builder().call_timeout(Duration::from_secs(10)).defaults(Options::new().lease(LEASE));
    builder.connect(store).await.expect("the server answers")
}

/// Acquires, through whatever outage.
async fn acquire(client: &Client) -> Guard {
    let trying = async {
        loop {
            match client.mutex(KEY).acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    };
    timeout(LIMIT, trying).await.expect("the lock is granted")
}

/// The server forgot the hold: its owner is told, and whoever comes next has a larger token.
async fn forgotten(holder: Guard, next: &Client) {
    let token = holder.token();
    assert_eq!(timeout(LIMIT, holder.lost()).await.expect("the loss is signalled"), Loss::Gone);
    let guard = acquire(next).await;
    assert!(guard.token() > token, "{} after {token}", guard.token());
    guard.release().await.expect("the server answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_again_has_forgotten_the_hold_and_its_owner_learns_it() {
    let mut server = Memcached::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = acquire(&one).await;
    server.restart();
    forgotten(guard, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server_has_forgotten_the_hold_and_its_owner_learns_it() {
    let server = Memcached::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = acquire(&one).await;
    server.ask("flush_all", "OK");
    assert!(server.ask(&format!("get leasehold:{KEY}"), "END").is_empty(), "the server still has the record");
    forgotten(guard, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_item_is_a_lost_hold_and_its_owner_learns_it() {
    let server = Memcached::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = acquire(&one).await;
    server.ask(&format!("delete leasehold:{KEY}"), "DELETED");
    forgotten(guard, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_hold_is_lost_and_tokens_rise() {
    let server = Memcached::with(&["-m", "2"]);
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = acquire(&one).await;
    // As large as the record, so that they are stored in the same place; many at a time, because to look for it makes it
    // one that is used.
    let record = server.ask(&format!("get leasehold:{KEY}"), "END").remove(1);
    let mut written = 0;
    wait_until("the record is evicted", LIMIT, || {
        let sets: String = (written..written + 20_000)
            .map(|item| format!("set filler-{item:08} 0 0 {} noreply\r\n{record}\r\n", record.len()))
            .collect();
        written += 20_000;
        server.ask(&format!("{sets}version"), "VERSION");
        server.ask(&format!("get leasehold:{KEY}"), "END").is_empty()
    });
    forgotten(guard, &two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_loses_nothing_when_it_is_back_in_time() {
    let mut server = Memcached::start();
    let one = client(&server).await;
    let guard = acquire(&one).await;
    server.process().freeze();
    // The renewal of now fails; the next one finds the server again.
    assert!(guard.renew(LEASE).await.is_err_and(|error| error.is_retryable()));
    server.process().thaw();
    timeout(LIMIT, async { while guard.renew(LEASE).await.is_err() {} }).await.expect("it is renewed");
    assert!(guard.is_valid());
    guard.release().await.expect("the server answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_frozen_costs_the_hold_by_its_deadline_and_everybody_is_served_after_it() {
    let mut server = Memcached::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = acquire(&one).await;
    server.process().freeze();
    let refused = two.mutex(KEY).try_acquire().await;
    assert!(refused.is_err_and(|error| error.is_retryable()), "a call ends, whatever the server does");
    assert_eq!(timeout(LIMIT, guard.lost()).await.expect("the deadline passes"), Loss::Expired);
    server.process().thaw();
    let again = acquire(&two).await;
    assert!(again.token() > guard.token());
    again.release().await.expect("the server answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_the_server_takes_no_more_is_an_error_and_the_lock_goes_on() {
    // A server that is asked to store more than it takes removes what was there, and the hold with it.
    let server = Memcached::with(&["-I", "16k", "-o", "slab_chunk_max=8192"]);
    let client = client(&server).await;
    let guard = acquire(&client).await;
    let mut waiting = JoinSet::new();
    for _ in 0..120 {
        let client = client.clone();
        waiting.spawn(async move { client.mutex(KEY).acquire().await.map(drop) });
    }
    let first = timeout(LIMIT, waiting.join_next()).await.expect("there is no room for all of them");
    let refused = first.expect("they were started").expect("it ends well").expect_err("it is held");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("too many wait"), "{refused}");
    assert!(guard.is_valid());
    waiting.abort_all();
    guard.release().await.expect("there is room to leave");
    acquire(&client).await.release().await.expect("the lock goes on");
}

#[tokio::test]
async fn leases_that_the_server_cannot_keep_are_refused_before_anything_is_sent() {
    let mut server = Memcached::start();
    let client = client(&server).await;
    // Whatever is sent from now on fails in another way.
    server.process().kill();
    let day = Duration::from_secs(24 * 3600);
    for options in [Options::new().lease(day * 31), Options::new().fixed(Duration::from_millis(1999))] {
        let refused = client.mutex(KEY).with(options).try_acquire().await.expect_err("out of range");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
}
