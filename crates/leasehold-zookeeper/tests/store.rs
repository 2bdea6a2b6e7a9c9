//! What only this store could get wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Answer, Change, Check, Claim, ErrorKind, Grant, Inbox, Key, Promotion, Severity, Store, Units, Wake,
};
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_zookeeper::ZooKeeper;

/// Somebody who is told, and does not listen.
#[derive(Debug)]
struct Deaf;

impl Wake for Deaf {
    fn promoted(&self, _: &Promotion) {}
    fn look(&self, _: &Key) {}
    fn look_all(&self) {}
    fn is_gone(&self) -> bool {
        false
    }
}

async fn open(server: &Server) -> ZooKeeper {
    let store = ZooKeeper::from_url(&format!("{}?tick=200ms", server.url())).unwrap();
    store.open(Inbox(1), Arc::new(Deaf)).await.unwrap();
    store
}

fn claim(units: u64) -> Claim {
    claim_of(2, units)
}

fn claim_of(limit: u64, units: u64) -> Claim {
    let claim = Claim::new(Key::new("k").unwrap(), limit, Units::Exactly(units)).unwrap();
    Claim { inbox: Inbox(1), ..claim }
}

async fn granted(store: &ZooKeeper, claim: &Claim) -> Grant {
    for _ in 0..500 {
        match store.renew(std::slice::from_ref(claim)).await.unwrap().pop().unwrap() {
            Answer::Granted(grant) if grant.units == 2 => return grant,
            Answer::Granted(_) | Answer::Waiting(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            answer => panic!("{answer:?}"),
        }
    }
    panic!("it never grew")
}

#[tokio::test]
async fn what_was_changed_while_it_held_survives_a_growth_that_had_to_wait() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    let (grows, leaves) = (claim(1), claim(1));
    let Answer::Granted(first) = store.claim(&grows).await.unwrap() else { panic!("it is free") };
    other.claim(&leaves).await.unwrap();
    store.amend(&grows, &Change::Value { to: b"new"[..].into(), op: 1 }).await.unwrap();
    assert!(matches!(
        store.amend(&grows, &Change::Units { to: 2, op: 2 }).await.unwrap(),
        Answer::Waiting(_)
    ));
    other.release(&leaves, None).await.unwrap();
    let grown = granted(&store, &grows).await;
    assert!(grown.token > first.token && grown.seat == first.seat, "{first:?} {grown:?}");
    let seen = store.inspect(&grows.key).await.unwrap().unwrap();
    assert_eq!((seen.holders[0].token, &*seen.holders[0].value), (grown.token, &b"new"[..]));
}

#[tokio::test]
async fn who_queues_where_others_with_another_limit_have_come_since_it_looked_is_refused() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    // With both, the store knows that who comes next has to queue, and does not look any more.
    let (holds, waits) = (claim(2), claim(2));
    assert!(matches!(store.claim(&holds).await.unwrap(), Answer::Granted(_)));
    assert!(matches!(store.claim(&waits).await.unwrap(), Answer::Waiting(_)));
    let admin = zookeeper_client::Client::connector().with_session_timeout(Duration::from_secs(30));
    let admin = admin.connect(&format!("127.0.0.1:{}", server.port())).await.unwrap();
    let lock = "/leasehold/locks/k";
    for node in admin.list_children(lock).await.unwrap() {
        admin.delete(&format!("{lock}/{node}"), None).await.unwrap();
    }
    let theirs = claim_of(5, 1);
    assert!(matches!(other.claim(&theirs).await.unwrap(), Answer::Granted(_)));
    let refused = store.claim(&claim(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(other.inspect(&theirs.key).await.unwrap().unwrap().waiters.len(), 0);
}

/// What a store on this server has found out about this setting.
async fn found(url: &str, name: &str) -> Check {
    let store = ZooKeeper::from_url(url).unwrap();
    store.open(Inbox(1), Arc::new(Deaf)).await.unwrap();
    let check = store.info().checks.iter().find(|check| check.name == name).cloned();
    check.unwrap_or_else(|| panic!("{name} is not in {:?}", store.info().checks))
}

#[tokio::test]
async fn tick_that_is_longer_than_the_url_says_is_refused() {
    let server = Server::start();
    let check = found(&format!("{}?tick=200ms", server.url()), "tickTime").await;
    assert_eq!((check.found.as_str(), check.severity), ("200", Severity::Ok), "{check}");
    let check = found(&server.url(), "tickTime").await;
    assert_eq!(check.severity, Severity::Ok, "the default of the URL is longer: {check}");
    let store = ZooKeeper::from_url(&format!("{}?tick=100ms", server.url())).unwrap();
    let refused = store.open(Inbox(1), Arc::new(Deaf)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("tick=200ms"), "{refused}");
}

#[tokio::test]
async fn tick_that_the_server_does_not_tell_is_unknown() {
    let server = Server::with(&["4lw.commands.whitelist=srvr"], &[]);
    let check = found(&format!("{}?tick=200ms", server.url()), "tickTime").await;
    assert_eq!((check.found.as_str(), check.severity), ("unknown", Severity::Ok), "{check}");
    assert!(!check.effect.is_empty());
}

#[tokio::test]
async fn sessions_shorter_than_the_usual_lease_are_a_warning() {
    let url = |server: &Server| format!("{}?tick=200ms", server.url());
    let check = found(&url(&Server::start()), "maxSessionTimeout").await;
    assert_eq!(check.severity, Severity::Ok, "{check}");
    let server = Server::with(&["maxSessionTimeout=4000"], &[]);
    let check = found(&url(&server), "maxSessionTimeout").await;
    assert_eq!((check.found.as_str(), check.severity), ("4000", Severity::Warning), "{check}");
}

#[tokio::test]
async fn settings_that_zookeeper_does_not_tell_are_unknown() {
    let server = Server::start();
    for name in ["forceSync", "skipACL"] {
        let check = found(&format!("{}?tick=200ms", server.url()), name).await;
        assert_eq!((check.found.as_str(), check.severity), ("unknown", Severity::Ok), "{check}");
        assert!(!check.effect.is_empty());
    }
}
