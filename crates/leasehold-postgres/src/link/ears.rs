//! What the server tells us without being asked: one channel per client, all on one connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Inbox, Key, Promotion, Wakes};
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Notification};

use super::dial::{Dialed, Ear, Task, Way};
use super::pause;
use crate::names::channel;
use crate::proof::Secret;
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
    /// A message came without a valid proof: it is forged, or the secret has changed.
    doubted: AtomicBool,
}

impl Ears {
    /// Adds an inbox; the receiver is told when it is listened to.
    pub(super) fn add(&self, inbox: Inbox, wakes: Wakes) -> oneshot::Receiver<()> {
        let (sender, opened) = oneshot::channel();
        let mut new = Open { inbox, wakes, opened: Some(sender) };
        let mut open = self.lock();
        // An attempt to open that took too long may have left one.
        if let Some(at) = open.iter().position(|other| other.inbox == inbox)
            && open.swap_remove(at).opened.is_none()
            && let Some(opened) = new.opened.take()
        {
            let _ = opened.send(());
        }
        open.push(new);
        drop(open);
        self.changed.notify_one();
        opened
    }

    /// Whether there is a client here with this inbox.
    pub(super) fn know(&self, inbox: Inbox) -> bool {
        self.find(|open| open.inbox == inbox).is_some()
    }

    /// What the server told us in an answer, and nobody else.
    pub(super) fn promoted(&self, promotion: &Promotion) {
        if let Some((_, wakes)) = self.find(|open| open.inbox == promotion.inbox) {
            wakes.promoted(promotion);
        }
    }

    /// An answer that may have told us something was not heard.
    pub(super) fn look(&self, inbox: Inbox, key: &Key) {
        if let Some((_, wakes)) = self.find(|open| open.inbox == inbox) {
            wakes.look(key);
        }
    }

    fn find(&self, is_it: impl Fn(&Open) -> bool) -> Option<(Inbox, Wakes)> {
        let open = self.lock();
        open.iter().find(|open| is_it(open)).map(|open| (open.inbox, open.wakes.clone()))
    }

    /// Passes a message on. Any role of the database can send one, so a promotion is believed only with its proof.
    fn deliver(&self, message: &Notification, secret: &Secret) {
        let found = self.find(|open| channel(open.inbox) == message.channel());
        let Some((inbox, wakes)) = found else { return };
        match heard(inbox, message.payload(), secret) {
            Some(Heard::Promoted(promotion)) => wakes.promoted(&promotion),
            Some(Heard::Look(key)) => wakes.look(&key),
            Some(Heard::Unproven(key)) => {
                self.doubted.store(true, Ordering::Relaxed);
                wakes.look(&key);
            }
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
    let ear: Ear = {
        let (ears, way) = (ears.clone(), way.clone());
        Arc::new(move |message| ears.deliver(message, &way.secret))
    };
    loop {
        match timeout(way.target.connect_limit(), way.dial(Some(ear.clone()))).await {
            Ok(Ok(Dialed { client, task, is_direct: true })) => {
                failed = 0;
                attend(&ears, &client, &task, &way).await;
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
async fn attend(ears: &Ears, client: &Client, task: &Task, way: &Way) {
    let (mut listened, limit): (Vec<Inbox>, _) = (Vec::new(), way.target.timeout);
    loop {
        // Not for every message: whoever forges many of them would keep us busy.
        if ears.doubted.swap(false, Ordering::Relaxed) {
            match timeout(limit, client.query_typed_opt(&way.texts.secret, &[])).await {
                Ok(Ok(row)) => way.secret.set(row.and_then(|row| row.try_get(0).ok())),
                _ => return,
            }
        }
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
        tokio::select! {
            () = task.ended() => return,
            () = ears.changed.notified() => {}
            () = sleep(ASK) => {}
        }
    }
}
