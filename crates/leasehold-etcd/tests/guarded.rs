//! Guarded writes on a real server.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use leasehold_core::Client;
use leasehold_etcd::{Etcd, Write};
use leasehold_servers::etcd::Etcd as Server;

#[tokio::test]
async fn a_guarded_write_happens_while_the_lock_is_held_and_never_after() {
    let server = Server::start();
    let etcd = Etcd::from_url(&server.url()).unwrap();
    let client = Client::new(etcd.clone()).await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    let pay = [Write::Put(b"state", b"paid"), Write::Delete(b"draft")];
    server.ctl(&["put", "draft", "x"]);
    assert!(etcd.write_if_held("orders/42", guard.token(), &pay).await.unwrap());
    assert_eq!(server.ctl(&["get", "state", "--print-value-only"]).trim(), "paid");
    assert_eq!(server.ctl(&["get", "draft"]).trim(), "");

    // Somebody takes it away; the old holder does not know.
    let token = guard.token();
    assert!(client.evict("orders/42", token).await.unwrap());
    let next = Client::new(Etcd::from_url(&server.url()).unwrap()).await.unwrap();
    let successor = next.mutex("orders/42").acquire().await.unwrap();
    let cancel = [Write::Put(b"state", b"cancelled")];
    assert!(!etcd.write_if_held("orders/42", token, &cancel).await.unwrap());
    assert_eq!(server.ctl(&["get", "state", "--print-value-only"]).trim(), "paid");
    assert!(etcd.write_if_held("orders/42", successor.token(), &cancel).await.unwrap());
}

#[tokio::test]
async fn a_token_is_good_for_its_own_lock_only() {
    let server = Server::start();
    let etcd = Etcd::from_url(&server.url()).unwrap();
    let client = Client::new(etcd.clone()).await.unwrap();
    let guard = client.mutex("a").acquire().await.unwrap();
    assert!(!etcd.write_if_held("b", guard.token(), &[Write::Put(b"state", b"x")]).await.unwrap());
    assert_eq!(server.ctl(&["get", "state"]).trim(), "");
}
