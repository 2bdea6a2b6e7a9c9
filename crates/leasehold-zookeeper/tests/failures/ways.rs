//! Ways between a client and its server that break.

use std::time::Duration;

use leasehold_core::{Loss, Released};
use leasehold_servers::zookeeper::ZooKeeper;
use leasehold_servers::{Mode, Proxy};
use tokio::time::{sleep, timeout};

use crate::scene::*;

fn through(proxy: &Proxy) -> String {
    format!("zookeeper://127.0.0.1:{}", proxy.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_the_server_ended_loses_its_guards_and_the_client_goes_on() {
    let server = ZooKeeper::start();
    let proxy = Proxy::to(server.port());
    let (cut, other) = (client(&through(&proxy)).await, client(&server.url()).await);
    let witness = Witness::default();
    let guard = acquire(&cut).await;
    witness.granted(&guard);
    proxy.set(Mode::Hold);
    assert_eq!(lost_in_time(&guard).await, Loss::Expired);
    let next = timeout(LEASE + SERVED, acquire(&other)).await.expect("the session ends");
    witness.granted(&next);
    next.release().await.expect("the server answers");
    proxy.set(Mode::Pass);
    proxy.cut();
    drop(guard);
    goes_on(&cut, &witness).await;
    nothing_is_left(&server.url(), [cut, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_costs_nobody_anything() {
    let server = ZooKeeper::start();
    let proxy = Proxy::to(server.port());
    let client = client(&through(&proxy)).await;
    let witness = Witness::default();
    let guard = acquire(&client).await;
    witness.granted(&guard);
    let waiting = queue(&client, 20, &witness).await;
    for _ in 0..3 {
        proxy.cut();
        still_held(&guard, LEASE).await;
    }
    assert_eq!(guard.release().await.expect("the server answers"), Released::Held);
    all_served(waiting).await;
    nothing_is_left(&server.url(), [client]).await;
}

/// Cuts the connection somewhere in the answers to a claim, so that nobody knows whether it was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_was_lost_is_found_again_and_not_made_twice() {
    let server = ZooKeeper::start();
    let proxy = Proxy::to(server.port());
    let (client, raw) = (client(&through(&proxy)).await, raw(&server.url()).await);
    let witness = Witness::default();
    for bytes in [0, 1, 40] {
        proxy.set(Mode::CutReplyAfter(bytes));
        let guard = timeout(2 * SERVED, acquire(&client)).await.expect("it is asked again");
        witness.granted(&guard);
        let nodes = raw.list_children(NODE).await.expect("it is held");
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        guard.release().await.expect("the server answers");
    }
    drop(raw);
    nothing_is_left(&server.url(), [client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_delayed_past_its_withdrawal_leaves_nothing() {
    let server = ZooKeeper::start();
    let proxy = Proxy::to(server.port());
    let (slow, other) = (client(&through(&proxy)).await, client(&server.url()).await);
    let witness = Witness::default();
    goes_on(&slow, &witness).await;
    proxy.set(Mode::Hold);
    assert!(timeout(Duration::from_millis(100), slow.mutex(KEY).acquire()).await.is_err(), "nothing passes");
    // It is withdrawn now; both are on their way.
    sleep(Duration::from_millis(100)).await;
    proxy.set(Mode::Pass);
    goes_on(&other, &witness).await;
    nothing_is_left(&server.url(), [slow, other]).await;
}
