//! Who takes part in a case, and the questions at its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Client, Guard, Loss, LossSignal, Options};
use leasehold_zookeeper::ZooKeeper;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Client as Raw, Error as Fault};

/// The lock that the cases are about.
pub(crate) const KEY: &str = "orders/42";
/// Its node.
pub(crate) const NODE: &str = "/leasehold/locks/orders%2F42";
/// A session of five seconds.
pub(crate) const LEASE: Duration = Duration::from_millis(3800);
/// Longer than an election takes on a busy machine.
pub(crate) const AMPLE: Duration = Duration::from_secs(30);
/// Everything goes on this soon after a leader is lost, or its successor is there: five seconds, and room for a busy
/// machine.
pub(crate) const SERVED: Duration = Duration::from_secs(15);
/// How late a loss may be heard of after the deadline: the keeper's tick, and room for a busy machine.
const LATE: Duration = Duration::from_secs(5);
/// Ends what hangs.
const LONG: Duration = Duration::from_secs(60);
const CALL: Duration = Duration::from_secs(2);

pub(crate) async fn client(url: &str) -> Client {
    client_with(url, LEASE).await
}

pub(crate) async fn client_with(url: &str, lease: Duration) -> Client {
    let store = ZooKeeper::from_url(&format!("{url}?tick=200ms")).expect("the URL makes sense");
    let begun = Instant::now();
    loop {
        let builder = Client::builder().call_timeout(CALL).defaults(Options::new().lease(lease));
        match builder.connect(store.clone()).await {
            Ok(client) => return client,
            // A call is short here, and a machine that starts three servers may be busy for longer.
            Err(error) => assert!(error.is_retryable() && begun.elapsed() < LONG, "{error}"),
        }
    }
}

/// A way to the server that has nothing of ours in it.
pub(crate) async fn raw(url: &str) -> Raw {
    let hosts = url.strip_prefix("zookeeper://").expect("it is one of ours");
    let connector = Raw::connector().with_session_timeout(Duration::from_secs(30));
    connector.connect(hosts).await.expect("the server answers")
}

/// Knows who was granted last.
#[derive(Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Option<(u64, LossSignal)>>>);

impl Witness {
    /// A grant after which nobody else may believe to hold.
    pub(crate) fn granted(&self, guard: &Guard) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((token, before)) = last.replace((guard.token(), guard.signal())) {
            assert!(guard.token() > token, "token {} after {token}", guard.token());
            assert!(before.is_lost(), "two valid guards at the same time");
        }
    }
}

/// Acquires, through whatever outage.
pub(crate) async fn acquire(client: &Client) -> Guard {
    loop {
        match client.mutex(KEY).acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// Waits, holds for a moment, and gives back.
pub(crate) async fn take_a_turn(client: Client, witness: Witness) {
    let guard = acquire(&client).await;
    witness.granted(&guard);
    // A release that got no answer is the keeper's to finish.
    let _ = guard.release().await;
}

/// So many who wait for their turn, once all of them are in the queue.
pub(crate) async fn queue(client: &Client, count: usize, witness: &Witness) -> JoinSet<()> {
    let mut waiting = JoinSet::new();
    for _ in 0..count {
        waiting.spawn(take_a_turn(client.clone(), witness.clone()));
    }
    let end = Instant::now() + LONG;
    loop {
        match client.inspect(KEY).await {
            Ok(seen) if seen.as_ref().is_some_and(|lock| lock.waiters.len() == count) => return waiting,
            Ok(_) => {}
            // A call is short here, and the machine may be busy for longer.
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        assert!(Instant::now() < end, "not everybody is in the queue");
    }
}

/// Everybody had a turn.
pub(crate) async fn all_served(waiting: JoinSet<()>) {
    timeout(LONG, waiting.join_all()).await.expect("the waiters are served");
}

/// The guard is lost, by its deadline at the latest.
pub(crate) async fn lost_in_time(guard: &Guard) -> Loss {
    let limit = guard.valid_for() + LATE;
    timeout(limit, guard.lost()).await.expect("the loss is noticed by the deadline")
}

/// The servers have the hold and extend it.
pub(crate) async fn still_held(guard: &Guard, lease: Duration) {
    let renewed = async {
        while let Err(error) = guard.renew(lease).await {
            assert!(error.is_retryable(), "{error}");
        }
    };
    timeout(LONG, renewed).await.expect("the hold is renewed");
    assert!(guard.is_valid());
}

/// Takes the lock, twice, to see that everything goes on.
pub(crate) async fn goes_on(client: &Client, witness: &Witness) {
    for _ in 0..2 {
        let turn = take_a_turn(client.clone(), witness.clone());
        timeout(LONG, turn).await.expect("the lock can be had again");
    }
}

/// Nothing is left on the servers when the clients are gone: no lock, no claim, no session; and no task of theirs.
pub(crate) async fn nothing_is_left(url: &str, clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        client.close().await.expect("a client can be closed");
    }
    let raw = raw(url).await;
    for path in ["/leasehold/locks", "/leasehold/clients"] {
        let end = Instant::now() + LONG;
        loop {
            match raw.list_children(path).await {
                Ok(left) if left.is_empty() => break,
                Ok(left) => assert!(Instant::now() < end, "left in {path}: {left:?}"),
                Err(fault) => assert!(fault == Fault::ConnectionLoss && Instant::now() < end, "{fault}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    drop(raw);
    let end = Instant::now() + LONG;
    while Handle::current().metrics().num_alive_tasks() > 0 {
        assert!(Instant::now() < end, "tasks are left");
        sleep(Duration::from_millis(20)).await;
    }
}
