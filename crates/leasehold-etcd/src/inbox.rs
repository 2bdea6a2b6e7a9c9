//! Notifications: one key per session, and one watch on those of a client.
//!
//! A client that makes another client's claim hold, ends it or asks for it writes a note into that client's inbox, in the
//! same transaction. So a hand-over wakes one client, no matter how many wait. The key goes when the session ends, which
//! is news too. A watch that broke starts again where it stopped, so it misses nothing that etcd still has.
//!
//! A note only names a lock. A role may have the right to write inboxes and not locks, so the claim's own key must say
//! that the claim holds. The listener reads it from the member that sent the note: that member has applied the grant, so
//! it answers without asking the other members.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::rule::Row;
use leasehold_core::{Inbox, Key, Promotion, Wakes};
use serde::{Deserialize, Serialize};

use crate::format::claimed;
use crate::names::{Names, Span, Standing};
use crate::session::revoke;
use crate::store::Shared;
use crate::wire::message::{Event, Range, Ranged, Reply, Response, Txn, Watch, WatchCreate, Watched};
use crate::wire::{Connection, Fault, Incoming};
use crate::words::{MOST, range, read};

/// How often it is asked whether the client is still there.
const SWEEP: Duration = Duration::from_secs(2);

/// The pause before a lost watch is made again.
const PAUSE: Duration = Duration::from_millis(50);

/// Something happened on this lock.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    key: String,
}

impl Note {
    pub(crate) fn on(key: &Key) -> Self {
        Self { key: key.as_str().to_owned() }
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a string always serialises")
    }

    /// The lock that a note names; `None` if the text is no note.
    fn read(text: &[u8]) -> Option<Key> {
        let note: Self = serde_json::from_slice(text).ok()?;
        Key::new(note.key).ok()
    }
}

/// Listens for as long as the client and the store live. `next` is the first revision that may bring news.
pub(crate) async fn listen(store: Weak<Shared>, inbox: Inbox, wakes: Wakes, mut next: i64) {
    while let Some((names, connection)) = reach(&store).await {
        // A member may freeze before it answers at all, so its retirement ends the opening too.
        let ended = tokio::select! {
            ended = follow(&connection, &names, inbox, &wakes, &mut next) => ended,
            () = connection.retirement() => Ok(()),
            () = gone(&wakes) => Ok(()),
        };
        if let (Err(fault), Some(store)) = (ended, store.upgrade()) {
            tracing::debug!(?fault, "the watch ended");
            store.link.note(&connection, &fault);
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

/// The store's names and a connection to listen on; `None` when the store is gone.
async fn reach(store: &Weak<Shared>) -> Option<(Names, Arc<Connection>)> {
    loop {
        let store = store.upgrade()?;
        match store.link.connection().await {
            Ok(connection) => return Some((store.names.clone(), connection)),
            Err(error) => tracing::debug!(%error, "no connection to listen on"),
        }
        drop(store);
        tokio::time::sleep(PAUSE * 4).await;
    }
}

/// Opens a watch and passes news on until it ends.
async fn follow(
    connection: &Connection,
    names: &Names,
    inbox: Inbox,
    wakes: &Wakes,
    next: &mut i64,
) -> Result<(), Fault> {
    let Span { from, to } = names.inboxes(inbox);
    let create = WatchCreate { key: from, end: to, start: *next };
    let mut stream: Incoming = connection.watch(&Watch { create: Some(create) }).await?;
    while let Some(news) = stream.next::<Watched>().await? {
        let mut notes = Vec::new();
        for Event { kind, kv } in &news.events {
            let Some(kv) = kv else { continue };
            *next = (*next).max(kv.modified + 1);
            match kind {
                0 => notes.extend(Note::read(&kv.value).map(|key| (key, kv.modified))),
                // The session has ended, and all claims on it.
                _ => wakes.look_all(),
            }
        }
        for notes in notes.chunks(MOST) {
            confirm(connection, names, notes, inbox, wakes).await?;
        }
        if news.compacted > 0 {
            // What we wanted to hear is forgotten: the caller asks about everything.
            *next = news.compacted;
        }
        if news.cancelled {
            break;
        }
    }
    Ok(())
}

/// Reads which claims of this client were granted by the writes that left these notes, each a lock and a revision.
async fn confirm(
    connection: &Connection,
    names: &Names,
    notes: &[(Key, i64)],
    inbox: Inbox,
    wakes: &Wakes,
) -> Result<(), Fault> {
    let changed = |(key, revision): &(Key, i64)| {
        read(Range {
            serializable: true,
            modified_from: *revision,
            modified_to: *revision,
            ..range(&names.lock(key).standing(Standing::Hold))
        })
    };
    let txn = Txn { success: notes.iter().map(changed).collect(), ..Txn::default() };
    let replies = connection.txn(&txn).await?.responses;
    for ((key, _), reply) in notes.iter().zip(replies) {
        let promotions = granted(key, inbox, reply);
        if promotions.is_empty() {
            // The claim was ended or asked for, it was changed again since, or the note is forged.
            wakes.look(key);
        }
        promotions.iter().for_each(|promotion| wakes.promoted(promotion));
    }
    Ok(())
}

/// The claims of this client among those that hold.
fn granted(key: &Key, inbox: Inbox, reply: Reply) -> Vec<Promotion> {
    let Some(Response::Range(Ranged { kvs, .. })) = reply.response else { return Vec::new() };
    let rows = kvs.into_iter().filter_map(|kv| claimed(key, kv).ok()).map(|claim| claim.row);
    let ours = rows.filter(|row| row.inbox == inbox);
    ours.map(|Row { seat, token, held, .. }| Promotion { key: key.clone(), inbox, seat, token, units: held })
        .collect()
}

async fn gone(wakes: &Wakes) {
    while !wakes.is_gone() {
        tokio::time::sleep(SWEEP).await;
    }
}
