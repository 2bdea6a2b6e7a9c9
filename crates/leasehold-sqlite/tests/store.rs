//! The store seen through its trait: names, wake-ups, numbers, cleaning up.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod support;

use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, ClaimId, Inbox, Released, Store, Units};
use leasehold_sqlite::{Settings, SyncMode};
use support::{DEADLINE, Ear, Hand, Heard, Place, claim, key, token};
use tokio::time::timeout;

async fn names(store: &impl Store, prefix: &str) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(prefix, cursor.as_deref()).await.unwrap();
        names.extend(page.resources.iter().map(|resource| resource.key.as_str().to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return names;
        }
    }
}

#[tokio::test]
async fn names_are_bytes_neither_folded_nor_cut() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let longest = "x".repeat(1024);
    let all = ["A", "a", "a\0", "a\0b", "b%", "b_", "é", "é/\u{10ffff}", &*longest];
    for name in all {
        token(store.claim(&claim(name)).await.unwrap());
    }
    let mut expected = all.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(names(&store, "").await, expected);
    assert_eq!(names(&store, "a\0").await, ["a\0", "a\0b"]);
    assert_eq!(names(&store, "b%").await, ["b%"]);
    assert_eq!(names(&store, "é").await, ["é", "é/\u{10ffff}"]);
}

#[tokio::test]
async fn a_long_list_comes_in_pages_each_key_once() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let expected: Vec<_> = (0..1200).map(|n| format!("job/{n:05}")).collect();
    for name in &expected {
        store.claim(&claim(name)).await.unwrap();
    }
    store.claim(&claim("other")).await.unwrap();
    assert!(store.list("job/", None).await.unwrap().next.is_some());
    assert_eq!(names(&store, "job/").await, expected);
}

#[tokio::test]
async fn a_waiter_in_the_same_process_is_told_its_token() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let (ear, mut heard) = Ear::new();
    store.open(Inbox(7), ear).await.unwrap();
    let (first, mut second) = (claim("a"), claim("a"));
    second.inbox = Inbox(7);
    let before = token(store.claim(&first).await.unwrap());
    let Answer::Waiting(place) = store.claim(&second).await.unwrap() else { panic!("does not wait") };
    store.release(&first, None).await.unwrap();
    let Some(Heard::Promoted(promotion)) = timeout(DEADLINE, heard.recv()).await.unwrap() else {
        panic!("not told of its promotion")
    };
    assert_eq!((promotion.seat, promotion.units), (place.seat, 1));
    assert!(promotion.token > before);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_waiter_behind_another_connection_is_asked_to_look() {
    let place = Place::new();
    let (here, there) = (place.store(Settings::new()).await, place.store(Settings::new()).await);
    let (ear, mut heard) = Ear::new();
    there.open(Inbox(8), ear).await.unwrap();
    let (first, mut second) = (claim("a/b"), claim("a/b"));
    second.inbox = Inbox(8);
    token(here.claim(&first).await.unwrap());
    there.claim(&second).await.unwrap();
    here.release(&first, None).await.unwrap();
    assert_eq!(timeout(DEADLINE, heard.recv()).await.unwrap(), Some(Heard::Look(key("a/b"))));
    token(there.renew(&[second]).await.unwrap().remove(0));
}

#[cfg(target_os = "linux")]
/// Every process of the machine can send datagrams to an abstract socket, and find it in `/proc/net/unix`.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_forged_wake_up_only_makes_a_client_look() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let (ear, mut heard) = Ear::new();
    let inbox = Inbox(fastrand::u64(..));
    store.open(inbox, ear).await.unwrap();
    let (holder, waiter) = (claim("a"), Claim { inbox, ..claim("a") });
    let held = token(store.claim(&holder).await.unwrap());
    assert!(matches!(store.claim(&waiter).await.unwrap(), Answer::Waiting(_)));

    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let names = sockets.lines().filter_map(|line| line.split_once(" @").map(|(_, name)| name));
    let name = names.into_iter().find(|name| name.ends_with(&format!("/{:016x}", inbox.0))).unwrap();
    let (address, socket) = (SocketAddr::from_abstract_name(name).unwrap(), UnixDatagram::unbound().unwrap());
    let promotion = format!("a {} {held}", waiter.inbox.0);
    for forged in [&b""[..], b"\xff\xfe", &[b'x'; 5000], promotion.as_bytes(), b"a"] {
        socket.send_to_addr(forged, &address).unwrap();
    }
    // The last one names a key. Of the others, only what could be the name of a key makes the client look.
    loop {
        match timeout(DEADLINE, heard.recv()).await.unwrap().unwrap() {
            Heard::Look(looked) if looked == key("a") => break,
            Heard::Look(_) => {}
            promoted => panic!("the client believes it: {promoted:?}"),
        }
    }
    assert!(matches!(store.renew(&[waiter]).await.unwrap()[..], [Answer::Waiting(_)]));
    assert_eq!(token(store.renew(&[holder]).await.unwrap().remove(0)), held);
}

#[tokio::test]
async fn the_owner_of_an_evicted_claim_is_asked_to_look() {
    let place = Place::new();
    let (here, there) = (place.store(Settings::new()).await, place.store(Settings::new()).await);
    let (ear, mut heard) = Ear::new();
    there.open(Inbox(9), ear).await.unwrap();
    let mut victim = claim("a");
    victim.inbox = Inbox(9);
    let token = token(there.claim(&victim).await.unwrap());
    assert!(here.evict(&victim.key, token).await.unwrap());
    assert_eq!(timeout(DEADLINE, heard.recv()).await.unwrap(), Some(Heard::Look(key("a"))));
}

#[tokio::test]
async fn tokens_rise_across_connections_and_reopening() {
    let place = Place::new();
    let mut last = 0;
    for round in 0..6 {
        let store = place.store(Settings::new()).await;
        let claim = claim(if round % 2 == 0 { "a" } else { "b" });
        let next = token(store.claim(&claim).await.unwrap());
        assert!(next > last, "{next} after {last}");
        last = next;
        store.release(&claim, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_token_is_above_what_the_client_has_seen() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let first = token(store.claim(&claim("a")).await.unwrap());
    // Tokens are at most a minute ahead of the clock, and those of a new file start there.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let ahead = Claim { token_above: first + 1_000, ..claim("b") };
    assert!(token(store.claim(&ahead).await.unwrap()) > first + 1_000);
}

#[tokio::test]
async fn everything_released_leaves_no_row() {
    let place = Place::new();
    for mode in [SyncMode::Normal, SyncMode::Full] {
        let store = place.store(Settings::new().sync(mode)).await;
        let (first, second) = (claim("a"), claim("a"));
        store.claim(&first).await.unwrap();
        store.claim(&second).await.unwrap();
        assert!(store.residue().await.unwrap() > 0);
        assert_eq!(store.release(&first, None).await.unwrap(), Released::Held);
        assert_eq!(store.release(&second, None).await.unwrap(), Released::Held);
        assert_eq!(store.residue().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn keys_of_dead_clients_are_swept_though_nobody_touches_them_again() {
    let place = Place::new();
    let clock = Hand::at(1_000);
    let store = place.store(Settings::new().clock(clock.clone())).await;
    for n in 0..700 {
        store.claim(&claim(&format!("dead/{n}"))).await.unwrap();
        store.claim(&claim(&format!("dead/{n}"))).await.unwrap();
    }
    clock.pass(31_000);
    let mut rounds = 0;
    while store.residue().await.unwrap() > 0 {
        rounds += 1;
        assert!(rounds < 20, "the sweep does not come to an end");
    }
}

#[tokio::test]
async fn a_refusal_ends_and_leaves_no_row() {
    let place = Place::new();
    let clock = Hand::at(1_000);
    let store = place.store(Settings::new().clock(clock.clone())).await;
    let claim = claim("a");
    store.release(&claim, Some(Duration::from_secs(10))).await.unwrap();
    assert_eq!(store.claim(&claim).await.unwrap(), Answer::Gone);
    clock.pass(10_000);
    assert_eq!(store.residue().await.unwrap(), 0);
    token(store.claim(&claim).await.unwrap());
}

#[tokio::test]
async fn a_resized_limit_survives_its_users() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let mut claim = claim("pool");
    claim.limit = 5;
    claim.units = Units::Exactly(3);
    assert_eq!(store.amend(&claim, &Change::Limit(3)).await.unwrap(), Answer::Done);
    drop(store);
    let store = place.store(Settings::new()).await;
    let shown = store.inspect(&claim.key).await.unwrap().unwrap();
    assert_eq!((shown.limit, shown.effective_limit), (5, 3));
    let another = Claim { id: ClaimId::random().unwrap(), ..claim };
    store.amend(&another, &Change::Limit(5)).await.unwrap();
    assert_eq!(store.inspect(&another.key).await.unwrap(), None);
    // Nothing is left but the marks that refuse copies of the two requests.
    assert_eq!(store.residue().await.unwrap(), 2);
}

#[tokio::test]
async fn a_call_dropped_before_its_first_poll_does_nothing() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let claim = claim("a");
    drop(store.claim(&claim));
    assert_eq!(store.inspect(&claim.key).await.unwrap(), None);
}

/// Another program that has the file locked for writing until it is dropped.
fn occupy(place: &Place) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[tokio::test]
async fn a_busy_file_is_waited_for() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let other = occupy(&place);
    let claim = claim("a");
    let mut call = store.claim(&claim);
    assert!(poll_once(&mut call).await.is_none(), "granted while the file was locked");
    drop(other);
    token(timeout(DEADLINE, call).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_call_dropped_while_the_file_is_busy_never_happens() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    let other = occupy(&place);
    let claim = claim("a");
    let mut call = store.claim(&claim);
    assert!(poll_once(&mut call).await.is_none(), "granted while the file was locked");
    drop(call);
    drop(other);
    // Queued behind it, so it is over when this is answered.
    assert_eq!(timeout(DEADLINE, store.residue()).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn looking_does_not_wait_for_a_busy_file() {
    let place = Place::new();
    let store = place.store(Settings::new()).await;
    token(store.claim(&claim("a")).await.unwrap());
    let _other = occupy(&place);
    assert!(timeout(DEADLINE, store.inspect(&key("a"))).await.unwrap().unwrap().is_some());
}

/// Polls once.
async fn poll_once<T>(call: &mut leasehold_core::Fut<'_, T>) -> Option<leasehold_core::Result<T>> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match call.as_mut().poll(context) {
            std::task::Poll::Ready(result) => Some(result),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
