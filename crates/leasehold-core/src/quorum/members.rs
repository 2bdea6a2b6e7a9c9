//! A member, and asking it without being held up by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::claim::Inbox;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Fut, Store, Wakes};

/// How long a member that could not be opened is left alone.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// One of the stores.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) store: Arc<dyn Store>,
    /// What it is called in errors.
    pub(super) name: String,
    is_open: AtomicBool,
}

impl Member {
    pub(super) fn new(store: Arc<dyn Store>, name: String) -> Self {
        Self { store, name, is_open: AtomicBool::new(false) }
    }

    /// Opens it. A member that is down now must not keep the others from working, so it is tried again for as
    /// long as somebody listens.
    pub(super) fn open(self: &Arc<Self>, inbox: Inbox, wakes: &Wakes, limit: Duration) -> Fut<'static, ()> {
        let (member, wakes) = (self.clone(), wakes.clone());
        Box::pin(async move {
            let first = member.open_once(inbox, &wakes, limit).await;
            if first.is_err() {
                tokio::spawn(async move {
                    while !wakes.is_gone() {
                        tokio::time::sleep(OPEN_AGAIN.mul_f64(0.5 + fastrand::f64())).await;
                        if member.open_once(inbox, &wakes, limit).await.is_ok() {
                            return;
                        }
                    }
                });
            }
            first
        })
    }

    /// Makes a call that ends within `limit`.
    pub(super) async fn call<T>(self: Arc<Self>, limit: Duration, call: Fut<'static, T>) -> Result<T> {
        if !self.is_open.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Unavailable, "not connected yet"));
        }
        within(limit, call).await
    }

    async fn open_once(&self, inbox: Inbox, wakes: &Wakes, limit: Duration) -> Result<()> {
        let opened = within(limit, self.store.open(inbox, wakes.clone())).await;
        match &opened {
            Ok(()) => self.is_open.store(true, Ordering::Release),
            Err(error) => tracing::warn!(member = self.name, %error, "a member of the quorum is away"),
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
