//! One server: sessions and records that others end.

use std::time::Duration;

use leasehold_core::Loss;
use leasehold_servers::consul::Consul;
use leasehold_servers::{Mode, Proxy};
use tokio::time::{sleep, timeout};

use crate::scene::*;

const SHORT: Duration = Duration::from_secs(3);

fn session_of(server: &Consul) -> String {
    let (_, keys) = server.ask("GET", "/v1/kv/leasehold/alive/?keys", "");
    keys.split('"').nth(1).and_then(|key| key.rsplit('/').next()).expect("a session lives").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_an_operator_ends_takes_all_its_guards_and_the_client_goes_on() {
    let server = Consul::start();
    let client = client(&server.url(), SHORT).await;
    let (one, two) = (acquire(&client).await, client.mutex("another").acquire().await.expect("it is free"));
    let ended = server.ask("PUT", &format!("/v1/session/destroy/{}", session_of(&server)), "");
    assert_eq!(ended.0, 200);
    assert_eq!((lost_in_time(&one).await, lost_in_time(&two).await), (Loss::Gone, Loss::Gone));
    let again = timeout(SERVED, acquire(&client)).await.expect("a new session is opened");
    assert!(again.token() > one.token());
    drop((one, two));
    again.release().await.expect("the server answers");
    nothing_is_left(|path| server.ask("GET", path, ""), vec![client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_an_operator_deletes_is_lost_within_a_third_of_the_lease() {
    let server = Consul::start();
    let client = client(&server.url(), SHORT).await;
    let (lost, kept) = (acquire(&client).await, client.mutex("another").acquire().await.expect("it is free"));
    assert_eq!(server.ask("DELETE", &format!("/v1/kv/leasehold/locks/{KEY}"), "").0, 200);
    let loss = timeout(SHORT / 3 + ROOM, lost.lost()).await.expect("the next renewal finds out");
    assert_eq!(loss, Loss::Gone);
    assert!(kept.is_valid());
    drop((lost, kept));
    nothing_is_left(|path| server.ask("GET", path, ""), vec![client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_arrives_after_it_was_given_up_is_refused() {
    let server = Consul::start();
    let proxy = Proxy::to(server.port());
    let url = format!("consul://127.0.0.1:{}?min_lease=1s&timeout=500ms", proxy.port());
    let client = client(&url, SHORT).await;
    // The session is there, so that the next request is the claim itself.
    acquire(&client).await.release().await.expect("the server answers");
    proxy.set(Mode::Hold);
    let given_up = timeout(Duration::from_millis(800), client.mutex(KEY).acquire()).await;
    assert!(!matches!(given_up, Ok(Ok(_))), "nothing passes");
    proxy.set(Mode::Pass);
    let another = crate::scene::client(&server.url(), SHORT).await;
    let guard = timeout(SERVED, acquire(&another)).await.expect("nobody holds it");
    sleep(Duration::from_millis(500)).await;
    assert!(guard.is_valid());
    let seen = another.inspect(KEY).await.expect("the server answers").expect("it is held");
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 0));
    guard.release().await.expect("the server answers");
    nothing_is_left(|path| server.ask("GET", path, ""), vec![client, another]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_comes_back_with_the_holder_and_the_queue() {
    let mut server = Consul::start();
    let (holder, waiter) = (client(&server.url(), LEASE).await, client(&server.url(), LEASE).await);
    let witness = Witness::default();
    let guard = acquire(&holder).await;
    witness.granted(&guard);
    let waiting = queue(&waiter, 10, &witness).await;
    server.restart();
    still_held(&guard, LEASE).await;
    guard.release().await.expect("the server is back");
    all_served(waiting).await;
    nothing_is_left(|path| server.ask("GET", path, ""), vec![holder, waiter]).await;
}
