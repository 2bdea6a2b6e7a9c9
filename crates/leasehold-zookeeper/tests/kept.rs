//! Leases that are longer than sessions can be: they outlive their process, and end by the server's clock.

use std::time::Duration;

use leasehold_core::{Client, Options};
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_zookeeper::ZooKeeper;
use tokio::time::{Instant, timeout};

const LEASE: Duration = Duration::from_secs(6);
/// Ends what hangs.
const LONG: Duration = Duration::from_secs(60);

/// A server with sessions of two seconds at most.
fn server() -> Server {
    Server::with(&["maxSessionTimeout=2000"], &[])
}

async fn client(server: &Server) -> Client {
    let store = ZooKeeper::from_url(&format!("{}?tick=200ms", server.url())).expect("the URL makes sense");
    let builder = Client::builder().defaults(Options::new().lease(LEASE));
    builder.connect(store).await.expect("the server answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_outlives_its_process_until_its_lease_ends() {
    let server = server();
    let url = format!("{}?tick=200ms", server.url());
    // Another runtime, so that everything of it is gone at once.
    let start = Instant::now();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
        let guard = runtime.block_on(async {
            let client = Client::new(ZooKeeper::from_url(&url)?).await?;
            client.mutex("k").with(Options::new().fixed(LEASE)).acquire().await
        });
        runtime.shutdown_background();
        drop(guard.expect("it is free"));
    })
    .join()
    .expect("it does not panic");
    let next = client(&server).await;
    let guard = timeout(LONG, next.mutex("k").acquire()).await.expect("it ends").expect("then it is free");
    assert!(start.elapsed() >= LEASE, "it ended after {:?}", start.elapsed());
    guard.release().await.expect("it is held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_renewed_and_handed_on() {
    let server = server();
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = one.mutex("k").acquire().await.expect("it is free");
    let waiting = tokio::spawn(async move { two.mutex("k").acquire().await });
    tokio::time::sleep(LEASE + LEASE / 4).await;
    assert!(guard.is_valid(), "it was not renewed");
    assert!(!waiting.is_finished(), "two hold");
    let token = guard.token();
    guard.release().await.expect("it is held");
    let next = timeout(LONG, waiting).await.expect("its turn has come").expect("it does not panic");
    assert!(next.expect("it is granted").token() > token);
}
