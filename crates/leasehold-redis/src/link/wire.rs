//! One live connection, shared by everybody who talks to that server.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::fault::Silence;
use crate::secret::Secret;
use crate::url::Address;

/// So many calls in a row without an answer, and the connection is given up: it may be half open, and the
/// server may have been replaced.
const TIMEOUTS: u32 = 2;

/// Whether a connection is still of use.
#[derive(Debug)]
pub(super) struct Health {
    broken: watch::Sender<bool>,
    timeouts: AtomicU32,
}

impl Health {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { broken: watch::Sender::new(false), timeouts: AtomicU32::new(0) })
    }

    /// Gives the connection up.
    pub(super) fn give_up(&self) {
        self.broken.send_replace(true);
    }

    /// Waits until it is given up.
    pub(super) async fn given_up(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.broken.subscribe().wait_for(|broken| *broken).await;
    }

    fn answered(&self) {
        // Hardly ever anything but zero: a load that is shared, not a store that is fought over.
        if self.timeouts.load(Ordering::Relaxed) != 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    fn timed_out(&self) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS {
            self.give_up();
        }
    }
}

/// A connection and its health; clones are the same connection, and cheap: every call makes one.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Inner>);

struct Inner {
    connection: MultiplexedConnection,
    health: Arc<Health>,
    address: Address,
    secret: Arc<Secret>,
    /// What the server calls its history; empty while that is not known.
    replication_id: Mutex<Arc<str>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Wire {
    pub(super) fn new(
        connection: MultiplexedConnection,
        health: Arc<Health>,
        address: Address,
        secret: Arc<Secret>,
    ) -> Self {
        Self(Arc::new(Inner { connection, health, address, secret, replication_id: Mutex::new("".into()) }))
    }

    /// See [`Secret`].
    pub(super) fn secret(&self) -> Arc<str> {
        self.0.secret.text()
    }

    /// What the server's history was called when it was asked last; empty if it did not say.
    pub(super) fn replication_id(&self) -> Arc<str> {
        self.0.replication_id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks what the server calls its history, so that not every script must. That changes, for example when the first
    /// replica comes. If it has changed, and the server is a primary, answers what `INFO` says about its memory.
    pub(super) async fn ask_who(&self, until: Instant) -> Option<Value> {
        let mut questions = redis::pipe();
        questions.cmd("INFO").arg("replication").cmd("INFO").arg("memory");
        let mut answers = self.send_all(&questions, until).await.unwrap_or_default().into_iter();
        let said = answers.next().and_then(|said| redis::from_redis_value::<String>(said).ok());
        let id = said.as_deref().and_then(history).unwrap_or_default();
        let mut known = self.0.replication_id.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = !id.is_empty() && **known != *id;
        *known = id.into();
        answers.next().filter(|_| has_changed)
    }

    /// Whether both are the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.0.address
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.0.health
    }

    /// Waits until the connection is of no use any more.
    pub(crate) async fn given_up(&self) {
        self.0.health.given_up().await;
    }

    /// Has another connection made, to wherever the server is then. Calls that are under way still get their answers.
    pub(super) fn give_up(&self) {
        self.0.health.give_up();
    }

    /// Sends one command; the value may be an error of the server.
    pub(super) async fn send(&self, command: &Cmd, until: Instant) -> Result<Value, Silence> {
        let mut connection = self.0.connection.clone();
        self.note(timeout_at(until, connection.send_packed_command(command)).await)
    }

    /// Sends several commands at once; each value may be an error of the server.
    pub(crate) async fn send_all(&self, commands: &Pipeline, until: Instant) -> Result<Vec<Value>, Silence> {
        let mut connection = self.0.connection.clone();
        let count = commands.len();
        self.note(timeout_at(until, connection.send_packed_commands(commands, 0, count)).await)
    }

    pub(crate) async fn subscribe(&self, channels: &[Vec<u8>], until: Instant) -> Result<(), Silence> {
        let mut connection = self.0.connection.clone();
        match timeout_at(until, connection.subscribe(channels)).await {
            // The server's refusal: the connection itself is well.
            Ok(Err(error)) if error.code().is_some() => Err(Silence::Broken(error)),
            result => self.note(result),
        }
    }

    pub(crate) async fn unsubscribe(&self, channels: &[Vec<u8>], until: Instant) {
        let mut connection = self.0.connection.clone();
        // Nobody listens any more: that is all that matters.
        let _ = timeout_at(until, connection.unsubscribe(channels)).await;
    }

    fn note<T, E>(&self, result: Result<RedisResult<T>, E>) -> Result<T, Silence> {
        match result {
            Ok(Ok(value)) => {
                self.0.health.answered();
                Ok(value)
            }
            Ok(Err(error)) => {
                self.0.health.give_up();
                Err(Silence::Broken(error))
            }
            Err(_) => {
                self.0.health.timed_out();
                Err(Silence::Late)
            }
        }
    }
}

/// What a primary calls its history. A replica says how that of its primary is called, and would be taken for that when it is
/// promoted.
fn history(said: &str) -> Option<&str> {
    let mut lines = said.lines();
    lines.find(|line| *line == "role:master")?;
    lines.find_map(|line| line.strip_prefix("master_replid:")?.get(..16))
}

#[cfg(test)]
mod tests {
    use super::history;

    #[test]
    fn only_a_primary_is_known_by_its_history() {
        let said = |role: &str| {
            format!("# Replication\r\nrole:{role}\r\nmaster_replid:0123456789abcdef0123456789\r\n")
        };
        assert_eq!(history(&said("master")), Some("0123456789abcdef"));
        assert_eq!(history(&said("slave")), None);
        assert_eq!(history("master_replid:0"), None);
    }
}
