//! What others write for us: one key per session, and one watch on those of a client.
//!
//! Whoever makes a claim of ours hold, ends it or asks for it writes that into our inbox, in the same transaction. So a
//! hand-over wakes one client, whatever the number of waiters. The key goes when the session ends, which is news too. The watch starts again where it was cut
//! off: nothing is missed, unless etcd has forgotten it since.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{Inbox, Key, Promotion, Wakes};
use serde::{Deserialize, Serialize};

use crate::format::first_number;
use crate::names::Span;
use crate::session::revoke;
use crate::store::Shared;
use crate::wire::message::{Event, Watch, WatchCreate, Watched};
use crate::wire::{Connection, Fault, Incoming};

/// How often it is asked whether the client is still there.
const SWEEP: Duration = Duration::from_secs(2);

/// The pause before a lost watch is made again.
const PAUSE: Duration = Duration::from_millis(50);

/// What is written into an inbox: something happened on this lock.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) key: String,
    /// Who holds now; nobody when the client should ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) promoted: Vec<Promoted>,
}

/// A claim that was granted by the write that says so, `nth` of those.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Promoted {
    pub(crate) seat: u64,
    pub(crate) nth: u64,
    pub(crate) units: u64,
}

impl Note {
    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }
}

/// Listens for as long as the client and the store live. `next` is the first revision that may bring news.
pub(crate) async fn listen(store: Weak<Shared>, inbox: Inbox, wakes: Wakes, mut next: i64) {
    while let Some((span, connection)) = reach(&store, inbox).await {
        if let Ok(mut stream) = watch(&connection, span, next).await {
            tokio::select! {
                () = hear(&mut stream, inbox, &wakes, &mut next) => {}
                () = connection.retirement() => {}
                () = gone(&wakes) => {}
            }
        }
        if wakes.is_gone() {
            if let Some(store) = store.upgrade() {
                let over = store.sessions.take_of(inbox);
                store.labels.forget_sessions(&over);
                revoke(&connection, &over).await;
            }
            return;
        }
        drop(connection);
        tokio::time::sleep(PAUSE).await;
        // Events come again from where they stopped, but who knows what else was missed.
        wakes.look_all();
    }
}

/// The name of the inbox and a connection to listen on; `None` when the store is gone.
async fn reach(store: &Weak<Shared>, inbox: Inbox) -> Option<(Span, Arc<Connection>)> {
    loop {
        let store = store.upgrade()?;
        match store.link.connection().await {
            Ok(connection) => return Some((store.names.inboxes(inbox), connection)),
            Err(error) => tracing::debug!(%error, "no connection to listen on"),
        }
        drop(store);
        tokio::time::sleep(PAUSE * 4).await;
    }
}

async fn watch(connection: &Connection, Span { from, to }: Span, start: i64) -> Result<Incoming, Fault> {
    connection.watch(&Watch { create: Some(WatchCreate { key: from, end: to, start }) }).await
}

/// Passes news on until the stream ends.
async fn hear(stream: &mut Incoming, inbox: Inbox, wakes: &Wakes, next: &mut i64) {
    loop {
        match stream.next::<Watched>().await {
            Ok(Some(news)) => {
                for Event { kind, kv } in &news.events {
                    let Some(kv) = kv else { continue };
                    *next = (*next).max(kv.modified + 1);
                    match kind {
                        0 => tell(&kv.value, kv.modified, inbox, wakes),
                        // The session has ended, and all claims on it.
                        _ => wakes.look_all(),
                    }
                }
                if news.compacted > 0 {
                    // What we wanted to hear is forgotten: the caller asks about everything.
                    *next = news.compacted;
                }
                if news.cancelled {
                    return;
                }
            }
            Ok(None) => return,
            Err(fault) => {
                tracing::debug!(?fault, "the watch ended");
                return;
            }
        }
    }
}

fn tell(text: &[u8], revision: i64, inbox: Inbox, wakes: &Wakes) {
    // Somebody else's writing is no news.
    let Ok(Note { key, promoted }) = serde_json::from_slice(text) else { return };
    let Ok(key) = Key::new(key) else { return };
    if promoted.is_empty() {
        wakes.look(&key);
    }
    for Promoted { seat, nth, units } in promoted {
        let token = first_number(revision) + nth;
        wakes.promoted(&Promotion { key: key.clone(), inbox, seat, token, units });
    }
}

async fn gone(wakes: &Wakes) {
    while !wakes.is_gone() {
        tokio::time::sleep(SWEEP).await;
    }
}
