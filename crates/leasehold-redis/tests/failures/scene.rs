//! Who takes part in a case, and the questions at its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::{Client, Guard, Loss, LossSignal, Options};
use leasehold_redis::Redis as Store;
use leasehold_servers::redis::Redis;
use leasehold_servers::wait_until;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The lock that the cases are about.
pub(crate) const KEY: &str = "orders/42";
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// A waiter is served this soon after the server is back: two seconds, and as much again for a busy machine.
pub(crate) const SERVED: Duration = Duration::from_secs(4);
/// How late a loss may be heard of after the deadline: the keeper's tick, and room for a busy machine.
const TICK: Duration = Duration::from_millis(1500);
/// How long what was left may take to go: marks that refuse an id live for two calls.
const GONE: Duration = Duration::from_secs(10);
const CALL: Duration = Duration::from_secs(2);

pub(crate) async fn client(url: &str) -> Client {
    client_on(url, LEASE).await
}

pub(crate) async fn client_on(url: &str, lease: Duration) -> Client {
    let store = Store::from_url(url).expect("the URL makes sense");
    let builder = Client::builder().call_timeout(CALL).defaults(Options::new().lease(lease));
    builder.connect(store).await.expect("the server answers")
}

/// Knows who was granted last.
#[derive(Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Option<(u64, LossSignal)>>>);

impl Witness {
    /// A grant after which nobody else may believe to hold.
    pub(crate) fn granted(&self, guard: &Guard) {
        if let Some(before) = self.note(guard) {
            assert!(before.is_lost(), "two valid guards at the same time");
        }
    }

    /// A grant that docs/safety.md admits while an earlier holder does not know yet.
    pub(crate) fn granted_again(&self, guard: &Guard) {
        self.note(guard);
    }

    fn note(&self, guard: &Guard) -> Option<LossSignal> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, before) = last.replace((guard.token(), guard.signal())).unzip();
        let token = token.unwrap_or(0);
        assert!(guard.token() > token, "token {} after {token}", guard.token());
        before
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
    let end = Instant::now() + 2 * SERVED;
    loop {
        let seen = client.inspect(KEY).await.expect("the server answers");
        if seen.is_some_and(|lock| lock.waiters.len() == count) {
            return waiting;
        }
        assert!(Instant::now() < end, "not everybody is in the queue");
    }
}

/// Everybody had a turn.
pub(crate) async fn all_served(waiting: JoinSet<()>) {
    timeout(SERVED, waiting.join_all()).await.expect("the waiters are served soon");
}

/// The guard is lost, by its deadline at the latest.
pub(crate) async fn lost_in_time(guard: &Guard) -> Loss {
    let limit = guard.valid_for() + TICK;
    timeout(limit, guard.lost()).await.expect("the loss is noticed by the deadline")
}

/// The server, whichever it is now, has the hold and extends it.
pub(crate) async fn still_held(guard: &Guard, lease: Duration) {
    let renewed = async {
        while let Err(error) = guard.renew(lease).await {
            assert!(error.is_retryable(), "{error}");
        }
    };
    timeout(SERVED, renewed).await.expect("the hold is renewed soon");
    assert!(guard.is_valid());
}

/// Takes the lock, twice, to see that everything goes on.
pub(crate) async fn goes_on(client: &Client, witness: &Witness) {
    for _ in 0..2 {
        let turn = take_a_turn(client.clone(), witness.clone());
        timeout(SERVED, turn).await.expect("the lock can be had again");
    }
}

/// Nothing but fences and the secret is left on the server when its clients are gone, and no task of theirs.
pub(crate) async fn nothing_is_left(server: &Redis, clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        client.close().await.expect("a client can be closed");
    }
    let lines = |words: &[&str], but: &[&str]| {
        let said = server.cli(words);
        let strange = said.lines().filter(|line| !but.iter().any(|known| line.contains(known)));
        strange.filter(|line| !line.is_empty()).count()
    };
    let ours = ["leasehold.fence", "leasehold.secret"];
    wait_until("no key is left", GONE, || lines(&["keys", "leasehold*"], &ours) == 0);
    wait_until("no subscription is left", GONE, || lines(&["pubsub", "channels", "leasehold*"], &[]) == 0);
    wait_until("no task is left", GONE, || Handle::current().metrics().num_alive_tasks() == 0);
    // Its own question, its sentinels, and servers that keep a connection for the next key that they move.
    let others = ["cmd=client|list", "name=sentinel", "cmd=restore"];
    for kind in ["normal", "pubsub"] {
        wait_until("no connection is left", GONE, || lines(&["client", "list", "type", kind], &others) == 0);
    }
}
