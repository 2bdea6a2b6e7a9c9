//! Who takes part in a case, and the questions at its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use leasehold_core::{Client, Guard, Loss, LossSignal, Options};
use leasehold_etcd::Etcd;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The lock that the cases are about.
pub(crate) const KEY: &str = "orders/42";
/// Short, for cases that wait until it is over.
pub(crate) const LEASE: Duration = Duration::from_secs(6);
/// Long against an election, for cases in which nothing is lost.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// What takes longer than this hangs. No case is about it.
pub(crate) const SERVED: Duration = Duration::from_secs(60);
/// What a busy machine may add to a time that is a law.
pub(crate) const ROOM: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(20);

pub(crate) async fn client(url: &str) -> Client {
    client_with(url, LEASE).await
}

pub(crate) async fn client_with(url: &str, lease: Duration) -> Client {
    let store = Etcd::from_url(url).unwrap();
    let builder =
        Client::builder().call_timeout(Duration::from_secs(3)).defaults(Options::new().lease(lease));
    builder.connect(store).await.expect("a member answers")
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
    until("everybody is in the queue", async || {
        let seen = client.inspect(KEY).await;
        seen.is_ok_and(|seen| seen.is_some_and(|lock| lock.waiters.len() == count))
    })
    .await;
    waiting
}

/// Everybody had a turn.
pub(crate) async fn all_served(waiting: JoinSet<()>) {
    timeout(SERVED, waiting.join_all()).await.expect("the waiters are served");
}

/// The guard is lost, by its deadline at the latest.
pub(crate) async fn lost_in_time(guard: &Guard) -> Loss {
    let limit = guard.valid_for() + ROOM;
    timeout(limit, guard.lost()).await.expect("the loss is noticed by the deadline")
}

/// The cluster has the hold and extends it.
pub(crate) async fn still_held(guard: &Guard, lease: Duration) {
    let renewed = async {
        while let Err(error) = guard.renew(lease).await {
            assert!(error.is_retryable(), "{error}, {:?}", guard.lost().now_or_never());
        }
    };
    timeout(SERVED, renewed).await.expect("the hold is renewed");
    assert!(guard.is_valid());
}

/// Takes the lock, twice, to see that everything goes on.
pub(crate) async fn goes_on(client: &Client, witness: &Witness) {
    for _ in 0..2 {
        let turn = take_a_turn(client.clone(), witness.clone());
        timeout(SERVED, turn).await.expect("the lock can be had again");
    }
}

pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + SERVED;
    while !is_so().await {
        assert!(Instant::now() < end, "{what}: not within {SERVED:?}");
        sleep(GLANCE).await;
    }
}

/// No key and no lease is left in the cluster when its clients are gone, and no task of theirs.
pub(crate) async fn nothing_is_left(
    ctl: impl Fn(&[&str]) -> String,
    clients: impl IntoIterator<Item = Client>,
) {
    for client in clients {
        client.close().await.expect("a client can be closed");
    }
    until("no key is left", async || ctl(&["get", "--prefix", "--keys-only", ""]).trim().is_empty()).await;
    until("no lease is left", async || ctl(&["lease", "list"]).starts_with("found 0 leases")).await;
    until("no task is left", async || Handle::current().metrics().num_alive_tasks() == 0).await;
}
