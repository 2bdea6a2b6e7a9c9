//! What only this store could get wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Answer, Change, Claim, Grant, Inbox, Key, Promotion, Store, Units, Wake};
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
    let claim = Claim::new(Key::new("k").unwrap(), 2, Units::Exactly(units)).unwrap();
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
