//! What the servers tell us without being asked: one subscription per client.
//!
//! The channels are subscribed to on one connection that calls use too, so that a dead subscription is noticed
//! by the calls. In a cluster every server hears every message, so any one of them will do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, Result, Wakes};
use redis::Value;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::fault::{Refusal, Silence};
use crate::link::{Map, Wire, pause};
use crate::secret::Secret;

/// How often inboxes of clients that are gone are looked for.
const SWEEP: Duration = Duration::from_secs(10);

/// Tells the client what a message says, as far as the secret proves it.
pub(crate) type Hear = fn(&[u8], &Secret, &Wakes);

#[derive(Debug)]
struct Inbox {
    channel: Vec<u8>,
    wakes: Wakes,
    hear: Hear,
    /// Told once, how the first subscription went.
    opened: Option<oneshot::Sender<Result<()>>>,
}

/// The inboxes of the clients of one store.
#[derive(Debug)]
pub(crate) struct Inboxes {
    secret: Arc<Secret>,
    open: Mutex<Vec<Inbox>>,
    changed: Notify,
}

impl Inboxes {
    pub(crate) fn new(secret: Arc<Secret>) -> Self {
        Self { secret, open: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn secret(&self) -> &Arc<Secret> {
        &self.secret
    }

    /// Adds an inbox; the receiver is told when it is subscribed to.
    pub(crate) fn add(&self, channel: Vec<u8>, wakes: Wakes, hear: Hear) -> oneshot::Receiver<Result<()>> {
        let (sender, opened) = oneshot::channel();
        let mut inbox = Inbox { channel, wakes, hear, opened: Some(sender) };
        let mut open = self.lock();
        // An attempt to open that took too long may have left one.
        if let Some(at) = open.iter().position(|other| other.channel == inbox.channel)
            && open.swap_remove(at).opened.is_none()
            && let Some(opened) = inbox.opened.take()
        {
            let _ = opened.send(Ok(()));
        }
        open.push(inbox);
        drop(open);
        self.changed.notify_one();
        opened
    }

    /// Passes a message on: `data` is its channel and its text.
    pub(crate) fn deliver(&self, data: &[Value]) {
        let [Value::BulkString(channel), Value::BulkString(message), ..] = data else { return };
        let heard = {
            let open = self.lock();
            open.iter().find(|inbox| inbox.channel == *channel).map(|inbox| (inbox.wakes.clone(), inbox.hear))
        };
        if let Some((wakes, hear)) = heard {
            hear(message, &self.secret, &wakes);
        }
    }

    /// The channels of the clients that are still there.
    fn channels(&self) -> Vec<Vec<u8>> {
        let mut open = self.lock();
        open.retain(|inbox| !inbox.wakes.is_gone());
        open.iter().map(|inbox| inbox.channel.clone()).collect()
    }

    /// These channels are subscribed to from now on: whatever was said before was not heard.
    fn subscribed(&self, channels: &[Vec<u8>]) {
        let mut wakes = Vec::new();
        for inbox in self.lock().iter_mut().filter(|inbox| channels.contains(&inbox.channel)) {
            if let Some(opened) = inbox.opened.take() {
                let _ = opened.send(Ok(()));
            }
            wakes.push(inbox.wakes.clone());
        }
        for wakes in wakes {
            wakes.look_all();
        }
    }

    /// Tells those who still wait for their first subscription that it was refused.
    fn refused(&self, error: &Error) {
        for inbox in self.lock().iter_mut() {
            if let Some(opened) = inbox.opened.take() {
                let _ = opened.send(Err(Error::new(error.kind(), error.to_string())));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Inbox>> {
        // Nothing below the lock panics half-way through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the inboxes subscribed to on some server, for ever.
pub(crate) async fn listen(inboxes: Arc<Inboxes>, map: watch::Receiver<Arc<Map>>, timeout: Duration) {
    let mut failed = 0;
    loop {
        let some = map.borrow().clone();
        if let Some(wire) = some.any(Instant::now() + timeout).await {
            match attend(&inboxes, &wire, timeout).await {
                Ok(()) => failed = 0,
                Err(silence) => {
                    if let Silence::Broken(error) = &silence
                        && let Some(Refusal::Final(error)) = Refusal::of_error(error, wire.address())
                    {
                        inboxes.refused(&error);
                    }
                    tracing::debug!(?silence, "cannot subscribe");
                }
            }
        }
        failed += 1;
        sleep(pause(failed)).await;
    }
}

/// Subscribes on this connection to what clients come and go with, until it ends.
async fn attend(inboxes: &Inboxes, wire: &Wire, timeout: Duration) -> Result<(), Silence> {
    let mut subscribed: Vec<Vec<u8>> = Vec::new();
    loop {
        let wanted = inboxes.channels();
        let until = Instant::now() + timeout;
        let new: Vec<_> = wanted.iter().filter(|channel| !subscribed.contains(channel)).cloned().collect();
        let old: Vec<_> = subscribed.iter().filter(|channel| !wanted.contains(channel)).cloned().collect();
        if !new.is_empty() {
            wire.subscribe(&new, until).await?;
            inboxes.subscribed(&new);
        }
        if !old.is_empty() {
            wire.unsubscribe(&old, until).await;
        }
        subscribed = wanted;
        tokio::select! {
            () = wire.given_up() => return Ok(()),
            () = inboxes.changed.notified() => {}
            () = sleep(SWEEP) => {}
        }
    }
}
