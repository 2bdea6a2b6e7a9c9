//! The connections of one store: calls go out, messages come in, whatever happens to the server.
//!
//! A store starts with one connection for calls and makes more while several calls are under way, because each
//! commits on its own and a connection commits one after the other. Every call ends within its time: with an answer,
//! with `Unavailable` (it did not happen), or with `Indeterminate` (nobody knows). It never repeats a statement that
//! may have run; that is for the keeper, which knows that ids make it safe.

mod crowd;
pub(crate) mod dial;
mod ears;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Inbox, Key, Promotion, Result, Wakes, back_off};
use leasehold_sql::Crowd;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::Row;

pub(crate) use self::crowd::Ask;
use self::dial::{Task, Way};
use self::ears::Ears;
use self::wire::Wire;
use crate::ask::Call;
use crate::fault::Unreachable;
use crate::sql::Statements;
use crate::url::Target;

/// The connections of one store; clones share them, and the last one closes them.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    way: Arc<Way>,
    pool: Mutex<Pool>,
    changed: Notify,
    crowd: Crowd<Link>,
    ears: Arc<Ears>,
    listening: Mutex<Option<Task>>,
}

#[derive(Debug)]
struct Pool {
    wires: Vec<Arc<Wire>>,
    /// Whether another one is being made.
    opening: bool,
    /// How many attempts have ended, and how many of them failed since the last success.
    attempts: u64,
    failed: u32,
    not_before: Instant,
    trouble: Option<Unreachable>,
}

impl Link {
    /// Connections to what the URL named: none yet.
    pub(crate) fn new(target: Target) -> Result<Self> {
        let texts = Statements::new(&target.schema)?;
        let pool = Pool {
            wires: Vec::new(),
            opening: false,
            attempts: 0,
            failed: 0,
            not_before: Instant::now(),
            trouble: None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                way: Arc::new(Way::new(target, texts)),
                pool: Mutex::new(pool),
                changed: Notify::new(),
                crowd: Crowd::default(),
                ears: Arc::default(),
                listening: Mutex::default(),
            }),
        })
    }

    /// Connects, and from now on passes on what is said to this inbox. After every interruption it says
    /// [`look_all`](leasehold_core::Wake::look_all).
    pub(crate) async fn open(&self, inbox: Inbox, wakes: Wakes) -> Result<()> {
        let until = Instant::now() + self.target().timeout + self.target().connect_limit();
        // The first failure is reported: it may be a wrong password, or a server that is not there.
        self.connected_to(Busyness::Any, Attempts::One, until).await?;
        let opened = self.inner.ears.add(inbox, wakes);
        {
            let mut listening = locked(&self.inner.listening);
            if listening.is_none() {
                let listen = ears::listen(self.inner.ears.clone(), self.inner.way.clone());
                let rest = rest(Arc::downgrade(&self.inner));
                *listening = Some(Task::spawn(async {
                    tokio::join!(listen, rest);
                }));
            }
        }
        match timeout_at(until, opened).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(no_connection()),
        }
    }

    /// Whether a client with this inbox is here.
    pub(crate) fn knows(&self, inbox: Inbox) -> bool {
        self.inner.ears.know(inbox)
    }

    /// Passes on what an answer said: a claim of a client that is here holds now.
    pub(crate) fn promoted(&self, promotion: &Promotion) {
        self.inner.ears.promoted(promotion);
    }

    /// Passes on that an answer about this lock was not heard.
    pub(crate) fn look(&self, inbox: Inbox, key: &Key) {
        self.inner.ears.look(inbox, key);
    }

    /// How connections of this store are made.
    pub(crate) fn way(&self) -> &Arc<Way> {
        &self.inner.way
    }

    /// The statements that make the tables.
    pub(crate) fn init_sql(&self) -> &str {
        &self.inner.way.texts.init
    }

    /// Makes a call.
    pub(crate) async fn call(&self, call: Call) -> Result<Vec<Row>> {
        self.call_until(&call, Instant::now() + self.target().timeout).await
    }

    async fn call_until(&self, call: &Call, until: Instant) -> Result<Vec<Row>> {
        self.send(&self.connected(until).await?, call, until).await
    }

    /// Makes a call that may wait at the server, on a connection with nothing else to do: calls behind it would wait with it.
    /// `Unavailable` if there is no such connection by then. A caller that drops the future keeps the connection in use.
    pub(crate) async fn call_apart(&self, call: &Call, by: Instant) -> Result<Vec<Row>> {
        let wire = self.connected_to(Busyness::Idle, Attempts::Many, by).await?;
        self.send(&wire, call, Instant::now() + self.target().timeout).await
    }

    async fn send(&self, wire: &Arc<Wire>, call: &Call, until: Instant) -> Result<Vec<Row>> {
        wire.send(call, until).await.map_err(|silence| {
            if silence.is_broken() {
                self.forget(wire);
            }
            silence.into_error()
        })
    }

    fn target(&self) -> &Target {
        &self.inner.way.target
    }

    /// Uses this connection for nothing more. Calls that are on their way may still be answered.
    fn forget(&self, wire: &Arc<Wire>) {
        locked(&self.inner.pool).wires.retain(|known| !Arc::ptr_eq(known, wire));
    }

    /// The connection with the least to do.
    async fn connected(&self, until: Instant) -> Result<Arc<Wire>> {
        self.connected_to(Busyness::Any, Attempts::Many, until).await
    }

    /// The connection with the least to do, if it is no busier than that.
    async fn connected_to(&self, at_most: Busyness, tries: Attempts, until: Instant) -> Result<Arc<Wire>> {
        let inner = &self.inner;
        let attempts = locked(&inner.pool).attempts;
        loop {
            let mut changed = std::pin::pin!(inner.changed.notified());
            changed.as_mut().enable();
            let wait = {
                let mut pool = locked(&inner.pool);
                pool.wires.retain(|wire| !wire.is_closed());
                let best = pool.wires.iter().min_by_key(|wire| wire.busy()).cloned();
                let now = Instant::now();
                let wants_more = best.as_ref().is_none_or(|wire| wire.busy() > 0)
                    && pool.wires.len() < self.target().connections;
                if wants_more && !pool.opening && now >= pool.not_before {
                    pool.opening = true;
                    self.make_another();
                }
                let is_busy = best.is_some();
                if let Some(wire) = best.filter(|wire| at_most == Busyness::Any || wire.busy() == 0) {
                    return Ok(wire);
                }
                let trouble = pool.trouble.as_ref().filter(|_| pool.attempts > attempts);
                let is_over = now >= until || tries == Attempts::One;
                if let Some(trouble) = trouble.filter(|trouble| trouble.is_final() || is_over) {
                    return Err(trouble.to_error());
                } else if now >= until {
                    return Err(no_connection());
                }
                match (pool.opening, is_busy) {
                    (_, true) => until.min(now + LOOK_AGAIN),
                    (true, false) => until,
                    (false, false) => until.min(pool.not_before),
                }
            };
            let _ = timeout_at(wait, changed).await;
        }
    }

    /// Makes another connection, in a task of its own: whoever wants it may give up meanwhile.
    fn make_another(&self) {
        let (way, inner) = (self.inner.way.clone(), Arc::downgrade(&self.inner));
        tokio::spawn(async move {
            let made = Wire::connect(&way).await;
            let Some(inner) = inner.upgrade() else { return };
            let mut pool = locked(&inner.pool);
            pool.opening = false;
            pool.attempts += 1;
            match made {
                Ok(wire) => {
                    pool.wires.push(Arc::new(wire));
                    (pool.failed, pool.trouble) = (0, None);
                }
                Err(trouble) => {
                    tracing::debug!(?trouble, "cannot connect");
                    pool.failed += 1;
                    (pool.not_before, pool.trouble) = (Instant::now() + pause(pool.failed), Some(trouble));
                }
            }
            drop(pool);
            inner.changed.notify_waiters();
        });
    }
}

/// How much a connection may have to do already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busyness {
    Any,
    Idle,
}

/// How often connecting may fail before a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempts {
    One,
    /// As often as there is time.
    Many,
}

/// How often to look for a connection with nothing to do.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How often to look for connections that nobody needs any more.
const REST: Duration = Duration::from_secs(15);

/// Closes the connections that had nothing to do since the last look: a crowd needs many of them, for a while.
async fn rest(inner: Weak<Inner>) {
    loop {
        sleep(REST).await;
        let Some(inner) = inner.upgrade() else { return };
        locked(&inner.pool).close_the_idle();
    }
}

impl Pool {
    /// All but one: that which is asked first.
    fn close_the_idle(&mut self) {
        let mut first = true;
        self.wires.retain(|wire| wire.was_used() | std::mem::take(&mut first));
    }
}

/// How long to wait after so many failures.
fn pause(failed: u32) -> Duration {
    back_off(failed.saturating_sub(1), Duration::from_millis(30), Duration::from_millis(750))
}

fn no_connection() -> Error {
    let message = "no connection in time: check that the server runs and can be reached";
    Error::new(ErrorKind::Unavailable, message).at("postgres")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below the lock panics half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
