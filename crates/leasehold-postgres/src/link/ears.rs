//! What the server tells us without being asked: one channel per client, all on one connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Inbox, Wakes};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Notification};

use super::dial::{Dialed, Way};
use super::pause;
use crate::names::channel;
use crate::reply::{Heard, heard};

/// How often the connection is asked whether it is still there, and inboxes of clients that are gone are looked for.
const ASK: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Open {
    inbox: Inbox,
    wakes: Wakes,
    /// Told once, when it is listened to.
    opened: Option<oneshot::Sender<()>>,
}

/// The inboxes of the clients of one store.
#[derive(Debug, Default)]
pub(super) struct Ears {
    open: Mutex<Vec<Open>>,
    changed: Notify,
}

impl Ears {
    /// Adds an inbox; the receiver is told when it is listened to.
    pub(super) fn add(&self, inbox: Inbox, wakes: Wakes) -> oneshot::Receiver<()> {
        let (sender, opened) = oneshot::channel();
        self.lock().push(Open { inbox, wakes, opened: Some(sender) });
        self.changed.notify_one();
        opened
    }

    fn deliver(&self, message: &Notification) {
        let found = {
            let open = self.lock();
            let its = open.iter().find(|open| channel(open.inbox) == message.channel());
            its.map(|open| (open.inbox, open.wakes.clone()))
        };
        let Some((inbox, wakes)) = found else { return };
        match heard(inbox, message.payload()) {
            Some(Heard::Promoted(promotion)) => wakes.promoted(&promotion),
            Some(Heard::Look(key)) => wakes.look(&key),
            None => tracing::debug!("a message that is none of ours"),
        }
    }

    /// The inboxes of the clients that are still there.
    fn inboxes(&self) -> Vec<Inbox> {
        let mut open = self.lock();
        open.retain(|open| !open.wakes.is_gone());
        open.iter().map(|open| open.inbox).collect()
    }

    /// These are listened to from now on: whatever was said before was not heard.
    fn listened(&self, inboxes: &[Inbox]) {
        let mut wakes = Vec::new();
        for open in self.lock().iter_mut().filter(|open| inboxes.contains(&open.inbox)) {
            if let Some(opened) = open.opened.take() {
                let _ = opened.send(());
            }
            wakes.push(open.wakes.clone());
        }
        for wakes in wakes {
            wakes.look_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        // Nothing below the lock panics half-way through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the inboxes listened to, for ever.
pub(super) async fn listen(ears: Arc<Ears>, way: Arc<Way>) {
    let mut failed = 0;
    loop {
        let (ear, mut messages) = mpsc::unbounded_channel();
        match timeout(way.target.connect_timeout, way.dial(Some(ear))).await {
            Ok(Ok(Dialed { client, task, is_direct: true })) => {
                failed = 0;
                attend(&ears, &client, &mut messages, way.target.timeout).await;
                drop(task);
            }
            Ok(Ok(_)) => return do_without(&ears).await,
            Ok(Err(trouble)) => tracing::debug!(?trouble, "cannot listen"),
            Err(_) => tracing::debug!("cannot listen: no answer in time"),
        }
        failed += 1;
        sleep(pause(failed)).await;
    }
}

/// Behind a pooler nobody can listen: clients look for themselves.
async fn do_without(ears: &Ears) {
    loop {
        let all = ears.inboxes();
        ears.listened(&all);
        ears.changed.notified().await;
    }
}

/// Listens on this connection, to what clients come and go with, until it ends.
async fn attend(
    ears: &Ears,
    client: &Client,
    messages: &mut mpsc::UnboundedReceiver<Notification>,
    limit: Duration,
) {
    let mut listened: Vec<Inbox> = Vec::new();
    loop {
        let wanted = ears.inboxes();
        let new: Vec<_> = wanted.iter().filter(|inbox| !listened.contains(inbox)).copied().collect();
        let old = listened.iter().filter(|inbox| !wanted.contains(inbox));
        let words = new.iter().map(|inbox| format!("LISTEN {}", channel(*inbox)));
        let words: Vec<_> = words.chain(old.map(|inbox| format!("UNLISTEN {}", channel(*inbox)))).collect();
        // Without any it is an empty statement, which shows that the connection is there.
        if !matches!(timeout(limit, client.batch_execute(&words.join(";"))).await, Ok(Ok(()))) {
            return;
        }
        ears.listened(&new);
        listened = wanted;
        let pause = sleep(ASK);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                message = messages.recv() => match message {
                    Some(message) => ears.deliver(&message),
                    None => return,
                },
                () = ears.changed.notified() => break,
                () = &mut pause => break,
            }
        }
    }
}
