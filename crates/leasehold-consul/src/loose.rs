//! Records that no session takes with it, and who ends them.
//!
//! A record that one session carries goes with it. One in which several clients have claims cannot be bound to any of
//! them, and when all of them die together nobody is left who would look at it. So each such record is noted under `loose/`, by the
//! transaction that makes it one, and every client that opens or renews a session goes through some of the notes. Whoever
//! works on other locks cleans up in passing, and a cluster without any traffic is left as it is.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use leasehold_core::record::RecordStore;
use leasehold_core::{Key, Result};

use crate::kv::Op;
use crate::records::KeyValue;

/// Of many records so many are settled at a time: those of one look.
const SOME: usize = 64;

/// Whether it is time to go through some of them.
#[derive(Debug, Default)]
pub(crate) struct Loose(AtomicBool);

impl Loose {
    /// A session was opened or renewed.
    pub(crate) fn fall_due(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Settles some records beside the caller's work, if it is time.
    pub(crate) fn settle_if_due(&self, store: &RecordStore<KeyValue>) {
        if !self.0.load(Ordering::Acquire) || !self.0.swap(false, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let store = store.clone();
        runtime.spawn(async move {
            if let Err(error) = settle(&store).await {
                tracing::debug!(%error, "locks whose clients died are left to others");
            }
        });
    }
}

async fn settle(store: &RecordStore<KeyValue>) -> Result<()> {
    let shared = &store.records().0;
    let names = shared.http.keys(&shared.names.all_loose()).await?;
    let mut keys: Vec<Key> = names.iter().filter_map(|name| shared.names.loosened(name)).collect();
    // Others begin elsewhere.
    fastrand::shuffle(&mut keys);
    keys.truncate(SOME);
    let one = |key: Key| async move {
        let name = shared.names.lock(&key);
        match shared.looks.get(&shared.http, &name).await? {
            Some(_) => store.pass(&key).await,
            // Somebody removed the record by hand.
            None => {
                let ops = vec![Op::absent(name), Op::delete(shared.names.loose(&key))];
                shared.http.transact(ops).await.map(drop)
            }
        }
    };
    join_all(keys.into_iter().map(one)).await.into_iter().collect()
}
