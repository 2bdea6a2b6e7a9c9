//! A member, and asking it without being held up by it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use crate::claim::Inbox;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Fut, Store, Wakes};

/// How long a member that could not be opened is left alone.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// How many lost releases of one member are repeated at the same time.
const MOST_REPEATS: usize = 256;

/// One of the stores.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) store: Arc<dyn Store>,
    /// What it is called in errors.
    pub(super) name: String,
    /// A permit for each release that is being repeated.
    pub(super) repeats: Arc<Semaphore>,
    is_open: AtomicBool,
    /// The clients that have asked to open it, and with what success.
    clients: Mutex<HashMap<Inbox, (Wakes, Opened)>>,
    /// Why the store refused to be opened.
    refusal: OnceLock<String>,
}

/// Whether the member is open for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    Yes,
    /// A task tries again and again.
    NotYet,
}

/// How far a client has come with a member. The steps follow each other in this order, and none is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress<'a> {
    /// The member could not be reached so far.
    Away,
    /// The store refused to be opened, for this reason. Trying again does not help.
    Refused(&'a str),
    /// The member votes.
    Open,
}

/// Whether the store cannot be opened before its settings or its version change.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported)
}

impl Member {
    pub(super) fn new(store: Arc<dyn Store>, name: String) -> Self {
        let repeats = Arc::new(Semaphore::new(MOST_REPEATS));
        let (is_open, clients, refusal) = (AtomicBool::new(false), Mutex::default(), OnceLock::new());
        Self { store, name, repeats, is_open, clients, refusal }
    }

    pub(super) fn progress(&self) -> Progress<'_> {
        match self.refusal.get() {
            _ if self.is_open.load(Ordering::Acquire) => Progress::Open,
            Some(why) => Progress::Refused(why),
            None => Progress::Away,
        }
    }

    /// Opens the member. A member that is down must not keep the others from working, so the client tries
    /// again in the background for as long as it lives. It does not try again to open a member that refused.
    /// Opening it again for the same client makes one more attempt, unless it is open.
    pub(super) fn open(self: &Arc<Self>, inbox: Inbox, wakes: &Wakes, limit: Duration) -> Fut<'static, ()> {
        let (member, wakes) = (self.clone(), wakes.clone());
        Box::pin(async move {
            if member.is_open_for(inbox) {
                return Ok(());
            }
            let first = member.open_once(inbox, &wakes, limit).await;
            let Err(error) = &first else { return first };
            if is_final(error) || member.clients().insert(inbox, (wakes.clone(), Opened::NotYet)).is_some() {
                return first;
            }
            tracing::warn!(member = member.name, %error, "a member of the quorum is away");
            tokio::spawn(async move {
                while !wakes.is_gone() {
                    tokio::time::sleep(OPEN_AGAIN.mul_f64(0.5 + fastrand::f64())).await;
                    if member.is_open_for(inbox) {
                        return;
                    }
                    match member.open_once(inbox, &wakes, limit).await {
                        Ok(()) => return tracing::info!(member = member.name, "joined the quorum"),
                        Err(error) if is_final(&error) => return,
                        Err(error) => tracing::debug!(member = member.name, %error, "still away"),
                    }
                }
            });
            first
        })
    }

    /// Makes a call that ends within `limit`.
    pub(super) async fn call<T>(self: Arc<Self>, limit: Duration, call: Fut<'static, T>) -> Result<T> {
        match self.progress() {
            Progress::Open => within(limit, call).await,
            Progress::Refused(why) => Err(Error::new(ErrorKind::Invalid, format!("refused: {why}"))),
            Progress::Away => Err(Error::new(ErrorKind::Unavailable, "not connected yet")),
        }
    }

    fn is_open_for(&self, inbox: Inbox) -> bool {
        self.clients().get(&inbox).is_some_and(|(_, opened)| *opened == Opened::Yes)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Inbox, (Wakes, Opened)>> {
        // Nothing below the lock panics half-way through a change.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open_once(&self, inbox: Inbox, wakes: &Wakes, limit: Duration) -> Result<()> {
        let opened = within(limit, self.store.open(inbox, wakes.clone())).await;
        match &opened {
            Ok(()) => {
                let mut clients = self.clients();
                clients.retain(|_, (wakes, _)| !wakes.is_gone());
                clients.insert(inbox, (wakes.clone(), Opened::Yes));
                self.is_open.store(true, Ordering::Release);
            }
            Err(error) if is_final(error) && self.refusal.set(error.to_string()).is_ok() => tracing::warn!(
                member = self.name,
                %error,
                "a member of the quorum is refused: change its settings and connect again; until then the other \
                 members decide without it"
            ),
            Err(_) => {}
        }
        opened
    }
}

/// Bounds a call to a member.
async fn within<T>(limit: Duration, call: Fut<'_, T>) -> Result<T> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        let message = format!("no answer within {limit:?}: it may have happened");
        Err(Error::new(ErrorKind::Indeterminate, message))
    })
}

/// What the members say, as it arrives: each of those asked once.
#[derive(Debug)]
pub(super) struct Replies<T> {
    sender: mpsc::UnboundedSender<(usize, Result<T>)>,
    receiver: mpsc::UnboundedReceiver<(usize, Result<T>)>,
}

impl<T: Send + 'static> Replies<T> {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver }
    }

    /// Answers in a member's place.
    pub(super) fn say(&self, n: usize, reply: Result<T>) {
        // Never fails: we hold the receiver.
        let _ = self.sender.send((n, reply));
    }

    /// Asks one member on a task of its own, which ends by itself, also when nobody listens any more.
    pub(super) fn run(&self, n: usize, call: impl Future<Output = Result<T>> + Send + 'static) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let _ = sender.send((n, call.await));
        });
    }

    /// The next reply. Only asked for while some are outstanding.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T>)> {
        self.receiver.recv().await
    }
}
