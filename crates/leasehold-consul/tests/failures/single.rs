//! One server: sessions and records that others end.

use std::time::Duration;

use leasehold_core::Loss;
use leasehold_servers::consul::{Consul, Overheard};
use leasehold_servers::{Mode, Proxy};
use tokio::time::{sleep, timeout};

use crate::scene::*;

const SHORT: Duration = Duration::from_secs(3);

fn sessions(server: &Consul) -> Vec<String> {
    let (_, keys) = server.ask("GET", "/v1/kv/leasehold/alive/?keys", "");
    let keys = keys.split('"').skip(1).step_by(2);
    keys.filter_map(|key| key.rsplit('/').next()).map(str::to_owned).collect()
}

fn end(server: &Consul, session: &str) {
    assert_eq!(server.ask("PUT", &format!("/v1/session/destroy/{session}"), "").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_an_operator_ends_takes_all_its_guards_and_the_client_goes_on() {
    let server = Consul::start();
    let client = client(&server.url(), SHORT).await;
    let (one, two) = (acquire(&client).await, client.mutex("another").acquire().await.expect("it is free"));
    sessions(&server).iter().for_each(|session| end(&server, session));
    assert_eq!((lost_in_time(&one).await, lost_in_time(&two).await), (Loss::Gone, Loss::Gone));
    let again = timeout(SERVED, acquire(&client)).await.expect("a new session is opened");
    assert!(again.token() > one.token());
    drop((one, two));
    again.release().await.expect("the server answers");
    nothing_is_left(|path| server.ask("GET", path, ""), vec![client]).await;
}

/// One client holds and two wait, and then all of them are dead: nothing of theirs runs any more.
fn die_together(server: &Consul) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let held = runtime.block_on(async {
        let holder = client(&server.url(), LEASE).await;
        let guard = acquire(&holder).await;
        for count in 1..=2 {
            let waiter = client(&server.url(), LEASE).await;
            tokio::spawn(async move { waiter.mutex(KEY).acquire().await });
            wait_for(count, &holder).await;
        }
        guard
    });
    runtime.shutdown_background();
    drop(held);
    sessions(server).iter().for_each(|session| end(server, session));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_leave_that_died_together_goes_when_anybody_works_on_another_lock() {
    let server = Consul::start();
    let record = format!("/v1/kv/leasehold/locks/{KEY}");
    tokio::task::block_in_place(|| die_together(&server));
    assert_eq!(server.ask("GET", &record, "").0, 200, "no one session carries it");
    let bystander = client(&server.url(), SHORT).await;
    let _another = bystander.mutex("another").acquire().await.expect("it is free");
    let gone = async {
        while server.ask("GET", &record, "").0 != 404 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SERVED, gone).await.expect("whoever opens a session settles what others left");
    nothing_is_left(|path| server.ask("GET", path, ""), vec![bystander]).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_404_does_not_end_a_session() {
    let server = Consul::start();
    let way = Overheard::to(server.port());
    let client = client(&format!("consul://127.0.0.1:{}?min_lease=1s", way.port()), LEASE).await;
    let guard = acquire(&client).await;
    let session = sessions(&server).pop().expect("the claim has a session");
    way.deny_next("/clients/");
    // Wakes the blocking query. The one after it is denied, as by a leader that has not applied its log yet.
    assert_eq!(server.ask("PUT", &format!("/v1/kv/leasehold/clients/{session}/1"), "").0, 200);
    let end = std::time::Instant::now() + SERVED;
    while !way.has_denied() {
        assert!(std::time::Instant::now() < end, "nothing was asked");
        sleep(Duration::from_millis(20)).await;
    }
    sleep(Duration::from_millis(500)).await;
    still_held(&guard, LEASE).await;
    assert_eq!(sessions(&server), [session], "the session is still in use");
    guard.release().await.expect("the server answers");
    server.ask("DELETE", "/v1/kv/leasehold/clients/?recurse", "");
    nothing_is_left(|path| server.ask("GET", path, ""), vec![client]).await;
}
