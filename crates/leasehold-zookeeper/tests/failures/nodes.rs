//! Nodes that somebody else does something to.

use leasehold_core::Loss;
use leasehold_servers::zookeeper::ZooKeeper;
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode};

use crate::scene::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_an_administrator_deletes_is_lost_within_a_third_of_its_lease() {
    let server = ZooKeeper::start();
    let (client, raw) = (client(&server.url()).await, raw(&server.url()).await);
    let guard = acquire(&client).await;
    let node = raw.list_children(NODE).await.expect("it is held").pop().expect("by somebody");
    raw.delete(&format!("{NODE}/{node}"), None).await.expect("it is there");
    // And room for a busy machine: nothing else would ever end it.
    let third = LEASE / 3 + SERVED;
    assert_eq!(timeout(third, guard.lost()).await.expect("it is noticed"), Loss::Gone);
    goes_on(&client, &Witness::default()).await;
    drop((guard, raw));
    nothing_is_left(&server.url(), [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_strangers_in_a_lock_do_no_harm() {
    let server = ZooKeeper::start();
    let (client, raw) = (client(&server.url()).await, raw(&server.url()).await);
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    raw.mkdir(&format!("{NODE}/lock-0000000001"), &options).await.expect("nothing is there");
    let witness = Witness::default();
    let guard = acquire(&client).await;
    witness.granted(&guard);
    let waiting = queue(&client, 3, &witness).await;
    guard.release().await.expect("the server answers");
    all_served(waiting).await;
    raw.delete(&format!("{NODE}/lock-0000000001"), None).await.expect("nobody else deleted it");
    raw.delete(NODE, None).await.expect("nobody is left in it");
    drop(raw);
    nothing_is_left(&server.url(), [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_made_again_when_somebody_deletes_it_all() {
    let server = ZooKeeper::start();
    let (client, raw) = (client(&server.url()).await, raw(&server.url()).await);
    goes_on(&client, &Witness::default()).await;
    for session in raw.list_children("/leasehold/clients").await.expect("it is there") {
        raw.delete(&format!("/leasehold/clients/{session}"), None).await.expect("it is there");
    }
    for path in ["/leasehold/clients", "/leasehold/locks", "/leasehold"] {
        raw.delete(path, None).await.expect("it is empty");
    }
    let witness = Witness::default();
    goes_on(&client, &witness).await;
    let guard = acquire(&client).await;
    still_held(&guard, LEASE).await;
    guard.release().await.expect("the server answers");
    drop(raw);
    nothing_is_left(&server.url(), [client]).await;
}
