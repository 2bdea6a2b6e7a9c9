//! A session's own node: whoever does something to a claim of the session writes the lock's name there.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use leasehold_core::{ClaimId, Key};
use tokio::sync::watch;
use zookeeper_client::{EventType, PersistentWatcher, SessionState, Stat};

use crate::note::Note;
use crate::own::Own;
use crate::session::Session;
use crate::view::View;

/// Tells the clients of these nodes of a view that something was done to their claims. A hint: it does not matter
/// whether they are there to hear it.
pub(crate) async fn ring(session: &Session, key: &Key, view: &View, nodes: impl IntoIterator<Item = usize>) {
    let clients = nodes.into_iter().filter_map(|n| Some(&view.nodes.get(n)?.read.as_ref()?.0.client));
    let mut clients: Vec<&String> = clients.collect();
    clients.sort();
    clients.dedup();
    join_all(clients.into_iter().map(|client| {
        let path = format!("{}/{client}", session.clients());
        session.zk.set_data(&path, key.as_str().as_bytes(), None)
    }))
    .await;
}

/// Passes on what the session's node says, until the session is over.
pub(crate) async fn listen(
    session: Weak<Session>,
    mut ending: watch::Receiver<bool>,
    mut watcher: PersistentWatcher,
) {
    loop {
        let event = tokio::select! {
            biased;
            _ = ending.wait_for(|ended| *ended) => {
                if let Some(wakes) = session.upgrade().and_then(|session| session.wakes.clone()) {
                    wakes.look_all();
                }
                return;
            }
            event = watcher.changed() => event,
        };
        let Some(session) = session.upgrade() else { return };
        let Some(wakes) = &session.wakes else { return };
        match (event.event_type, event.session_state) {
            (EventType::NodeDataChanged, _) => {
                session.rung.send_replace(());
                let path = format!("{}/{}", session.clients(), session.node);
                match session.zk.get_data(&path).await.ok().and_then(|(data, _)| key(&data)) {
                    Some(key) => wakes.look(&key),
                    None => wakes.look_all(),
                }
            }
            (EventType::Session, SessionState::SyncConnected) => {
                // What was rung meanwhile was not heard.
                wakes.look_all();
            }
            (EventType::Session, SessionState::Expired | SessionState::Closed | SessionState::AuthFailed) => {
                wakes.look_all();
                return;
            }
            _ => {}
        }
    }
}

fn key(data: &[u8]) -> Option<Key> {
    Key::new(std::str::from_utf8(data).ok()?).ok()
}

/// Notes which of our claims somebody asks for, if the session's node was written to since we did that last.
pub(crate) async fn heed(session: &Session, stat: &Stat) {
    if session.heard.swap(stat.version, Ordering::AcqRel) == stat.version {
        return;
    }
    let held = |(id, own): (&ClaimId, &Own)| (own.token > 0).then(|| (*id, own.path.clone()));
    let held: Vec<(ClaimId, String)> = session.own().iter().filter_map(held).collect();
    let read = join_all(held.iter().map(|(_, path)| session.zk.get_data(path))).await;
    for ((id, _), read) in held.iter().zip(read) {
        let is_asked = read.is_ok_and(|(data, _)| Note::parse(&data).is_some_and(|note| note.asked));
        if is_asked && let Some(own) = session.own().get_mut(id) {
            own.asked = true;
        }
    }
}
