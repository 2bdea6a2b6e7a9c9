//! Leases that are longer than sessions can be: they outlive their process, and end by the server's clock.

use std::time::Duration;

use leasehold_core::{Client, Options};
use leasehold_servers::zookeeper::ZooKeeper as Server;
use leasehold_servers::{Mode, Proxy, wait_until};
use leasehold_zookeeper::ZooKeeper;
use tokio::time::{Instant, timeout};
use zookeeper_client::{Client as Raw, Error as Fault};

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

/// How long a call may take before its caller gives up, and how long the process then lives on, as the command does.
const CALL: Duration = Duration::from_secs(1);
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs a request in a process of its own. The connections stall with the request in one of them, the process gives up
/// and ends, and the connections move again while the session still lives. Answers what is left of the lock.
async fn arrives_after_its_process_ended(request: impl AsyncFnOnce(&Client) + Send + 'static) -> Vec<String> {
    let server = Server::with(&["maxSessionTimeout=20000"], &[]);
    let proxy = Proxy::to(server.port());
    let url = format!("zookeeper://127.0.0.1:{}?tick=200ms", proxy.port());
    let connector = Raw::connector().with_session_timeout(Duration::from_secs(60));
    let raw = connector.connect(&format!("127.0.0.1:{}", server.port())).await.expect("the server answers");
    let process = move || {
        let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
        runtime.block_on(async {
            let store = ZooKeeper::from_url(&url).expect("the URL makes sense");
            let client =
                Client::builder().call_timeout(CALL).connect(store).await.expect("the server answers");
            // The sessions that the request may use are open before the connections stall.
            let warm = client.job("warm").start().await.expect("the server answers").expect("it is free");
            warm.release().await.expect("it is held");
            client.latch("warm").set(1).await.expect("the server answers");
            client.latch("warm").count_down().await.expect("the server answers");
            proxy.set(Mode::Hold);
            request(&client).await;
            let _ = timeout(FAREWELL, client.close()).await;
        });
        runtime.shutdown_background();
        proxy
    };
    let proxy = tokio::task::spawn_blocking(process).await.expect("it does not panic");
    let before = raw.list_children("/leasehold/clients").await.expect("the session lives");
    assert!(!before.is_empty(), "the session has ended: this would show nothing");
    proxy.set(Mode::Pass);
    // The server has read everything when the connections of that process are closed.
    wait_until("only our own connection is left", LONG, || server.ask("cons").matches("sid=").count() == 1);
    raw.sync("/").await.expect("the server answers");
    match raw.list_children("/leasehold/locks/late").await {
        Err(Fault::NoNode) => Vec::new(),
        left => left.expect("the server answers"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_arrives_after_its_process_gave_up_blocks_nobody() {
    let left = arrives_after_its_process_ended(async |client| {
        client.job("late").start().await.map(drop).expect_err("nothing passes");
    });
    assert_eq!(left.await, [""; 0], "the job is blocked for an hour");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_arrives_after_its_process_gave_up_is_not_set() {
    let left = arrives_after_its_process_ended(async |client| {
        client.latch("late").set(1).await.map(drop).expect_err("nothing passes");
    });
    assert_eq!(left.await, [""; 0], "the latch is closed for ever");
}
