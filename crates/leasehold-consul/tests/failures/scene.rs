//! Who takes part in a case, and the questions at its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_consul::Consul;
use leasehold_core::{Client, Guard, Loss, LossSignal, Options};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The lock that the cases are about.
pub(crate) const KEY: &str = "orders/42";
/// Long against an election, which takes about two seconds on an idle machine.
pub(crate) const LEASE: Duration = Duration::from_secs(20);
/// What takes longer than this hangs. No case is about it.
pub(crate) const SERVED: Duration = Duration::from_secs(60);
/// What a busy machine may add to a time that is a law.
pub(crate) const ROOM: Duration = Duration::from_secs(10);

pub(crate) async fn client(url: &str, lease: Duration) -> Client {
    let store = Consul::from_url(url).expect("the URL makes sense");
    let builder =
        Client::builder().call_timeout(Duration::from_secs(4)).defaults(Options::new().lease(lease));
    builder.connect(store).await.expect("the servers answer")
}

/// Knows who was granted last.
#[derive(Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Option<(u64, LossSignal)>>>);

impl Witness {
    /// A grant after which nobody else may believe to hold.
    pub(crate) fn granted(&self, guard: &Guard) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((token, before)) = last.replace((guard.token(), guard.signal())) {
            assert!(before.is_lost(), "two valid guards at the same time");
            assert!(guard.token() > token, "token {} after {token}", guard.token());
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

async fn take_a_turn(client: Client, witness: Witness) {
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
    wait_for(count, client).await;
    waiting
}

/// Waits until so many are in the queue.
pub(crate) async fn wait_for(count: usize, client: &Client) {
    let end = Instant::now() + SERVED;
    while client.inspect(KEY).await.ok().flatten().is_none_or(|lock| lock.waiters.len() < count) {
        assert!(Instant::now() < end, "not everybody is in the queue");
        sleep(Duration::from_millis(20)).await;
    }
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

/// The servers have the hold and extend it.
pub(crate) async fn still_held(guard: &Guard, lease: Duration) {
    let renewed = async {
        while let Err(error) = guard.renew(lease).await {
            assert!(error.is_retryable(), "{error}");
        }
    };
    timeout(SERVED, renewed).await.expect("the hold is renewed");
    assert!(guard.is_valid());
}

/// Waits until nothing is stored any more.
pub(crate) async fn nothing_is_left(ask: impl Fn(&str) -> (u16, String), clients: Vec<Client>) {
    for client in clients {
        client.close().await.expect("a client can be closed");
    }
    let end = Instant::now() + SERVED;
    loop {
        let (keys, sessions) = (ask("/v1/kv/leasehold/?keys"), ask("/v1/session/list"));
        if keys.0 == 404 && !sessions.1.contains("leasehold") {
            return;
        }
        assert!(Instant::now() < end, "left: {keys:?} {sessions:?}");
        sleep(Duration::from_millis(100)).await;
    }
}
