//! Servers that fail, for the tests of stores that have some: who takes part, the questions at the end, and the cases that
//! any of them can be put through.
//!
//! Every [case](cases) ends with the same questions: was there a second grant, did tokens rise, was a loss noticed by the
//! deadline, was the next one served, and is anything left behind?

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_core::{Client, Error, Guard, Loss, LossSignal, Options, Store};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub mod cases;

/// The lock that the cases are about.
pub const KEY: &str = "orders/42";
/// Short, for cases that wait until it is over.
pub const LEASE: Duration = Duration::from_secs(6);
/// For cases in which nothing is lost: long against whatever a busy machine does.
pub const LONG: Duration = Duration::from_secs(30);
/// What takes longer than this hangs. No case is about it.
pub const SERVED: Duration = Duration::from_secs(40);
/// How late a loss may be heard of after the deadline, which is a law: the keeper's tick, and room for a busy machine.
pub const ROOM: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(20);

/// What becomes of what the server says on the way that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// It arrives.
    Pass,
    /// The connection ends after so many bytes of the next one; then they pass.
    CutAfter(usize),
    /// The next one is replaced by something that is none; then they pass.
    Garbage,
    /// They are thrown away.
    Lost,
    /// Nothing passes in either direction.
    Held,
}

/// A server of its own for one case.
pub trait Server: Send + Sync {
    /// A store on the way that nobody breaks.
    fn store(&self) -> Arc<dyn Store>;
    /// A store on the way that can be broken.
    fn behind(&self) -> Arc<dyn Store>;
    /// Breaks that way, or mends it.
    fn replies(&self, how: Replies);
    /// Kills the server with -9 and starts it again.
    fn restart(&mut self);
    /// Stops the server in the middle of whatever it does.
    fn freeze(&mut self);
    /// Lets it go on.
    fn thaw(&mut self);
    /// Ends all connections of stores, as an administrator would.
    fn end_connections(&self);
    /// What the server still has of locks and connections of stores; empty when there is nothing.
    fn left(&self) -> String;
}

/// A client whose holds live on this lease.
///
/// # Panics
/// When the server does not answer.
pub async fn client(store: impl Store + Clone, lease: Duration) -> Client {
    let end = Instant::now() + SERVED;
    loop {
        let builder = Client::builder().call_timeout(CALL).defaults(Options::new().lease(lease));
        match builder.connect(store.clone()).await {
            Ok(client) => return client,
            // The first one makes the tables, which takes longer than a call where the machine is busy.
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error}"),
        }
    }
}

/// Knows who was granted last.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<Mutex<Option<(u64, LossSignal)>>>);

impl Witness {
    /// A grant after which nobody else may believe to hold, and whose token is the largest.
    ///
    /// # Panics
    /// When it is not so.
    pub fn granted(&self, guard: &Guard) {
        if let Some(before) = self.note(guard) {
            assert!(before.is_lost(), "two valid guards at the same time");
        }
    }

    /// A grant that docs/safety.md admits while an earlier holder does not know yet. Its token is the largest all the same.
    /// Says whether there were two.
    ///
    /// # Panics
    /// When the token is not larger.
    pub fn granted_again(&self, guard: &Guard) -> bool {
        self.note(guard).is_some_and(|before| !before.is_lost())
    }

    fn note(&self, guard: &Guard) -> Option<LossSignal> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, before) = last.replace((guard.token(), guard.signal()))?;
        assert!(guard.token() > token, "token {} after {token}", guard.token());
        Some(before)
    }
}

/// Acquires, through whatever outage.
///
/// # Panics
/// When an error says that trying again is of no use, or it takes for ever.
pub async fn acquire(client: &Client) -> Guard {
    let asking = async {
        loop {
            match client.mutex(KEY).acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            // One that fails at once must not keep the others from running.
            tokio::task::yield_now().await;
        }
    };
    timeout(SERVED, asking).await.expect("the lock can be had")
}

/// Waits, holds for a moment, and gives back.
pub async fn take_a_turn(client: Client, witness: Witness) {
    let guard = acquire(&client).await;
    witness.granted(&guard);
    // A release that got no answer is the keeper's to finish.
    let _ = guard.release().await;
}

/// So many who wait for their turn, once all of them are in the queue.
pub async fn queue(client: &Client, count: usize, witness: &Witness) -> JoinSet<()> {
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

/// Waits until everybody had a turn.
///
/// # Panics
/// When somebody has none.
pub async fn all_served(waiting: JoinSet<()>) {
    timeout(SERVED, waiting.join_all()).await.expect("the waiters are served");
}

/// Waits until the guard is lost, by its deadline at the latest.
///
/// # Panics
/// When it is not.
pub async fn lost_in_time(guard: &Guard) -> Loss {
    let limit = guard.valid_for() + ROOM;
    timeout(limit, guard.lost()).await.expect("the loss is noticed by the deadline")
}

/// Sees that the server has the hold and extends it.
///
/// # Panics
/// When it does not.
pub async fn still_held(guard: &Guard, lease: Duration) {
    let renewed = async {
        while let Err(error) = guard.renew(lease).await {
            assert!(error.is_retryable(), "{error}");
            tokio::task::yield_now().await;
        }
    };
    timeout(SERVED, renewed).await.expect("the hold is renewed");
    assert!(guard.is_valid());
}

/// Takes the lock, twice, to see that everything goes on.
pub async fn goes_on(client: &Client, witness: &Witness) {
    for _ in 0..2 {
        take_a_turn(client.clone(), witness.clone()).await;
    }
}

/// Claims one lock after the other, with long names, until there is no room for more at the server, and gives them back. The
/// error that said so, if there was one.
///
/// # Panics
/// When one cannot be given back: that needs no room.
pub async fn fill_tables(client: &Client) -> Option<Error> {
    let (mut held, mut refused) = (Vec::new(), None);
    for n in 0..400 {
        match client.mutex(format!("{n} {}", "x".repeat(1000))).try_acquire().await {
            Ok(guard) => held.extend(guard),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    for guard in held {
        guard.release().await.expect("it needs no room");
    }
    refused
}

/// Waits until it is so.
///
/// # Panics
/// When it is never so.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + SERVED;
    while !is_so().await {
        assert!(Instant::now() < end, "not within {SERVED:?}: {what}");
        sleep(GLANCE).await;
    }
}

/// Closes the clients, and waits until nothing is left of them: at the server, and no task here.
///
/// # Panics
/// When something stays.
pub async fn nothing_is_left(left: impl Fn() -> String, clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        client.close().await.expect("a client can be closed");
    }
    let end = Instant::now() + SERVED;
    loop {
        let (there, tasks) = (left(), Handle::current().metrics().num_alive_tasks());
        if there.is_empty() && tasks == 0 {
            return;
        }
        assert!(Instant::now() < end, "left behind: {there} and {tasks} tasks");
        sleep(GLANCE).await;
    }
}
