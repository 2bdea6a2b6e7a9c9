//! What can be seen of a lock that connections have.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Holder, Key, Result, Snapshot, WHOLE};

use crate::book::Entry;
use crate::database::{Database, Held, Sharing};
use crate::pinned::Inner;

impl<D: Database> Inner<D> {
    /// Who holds a key: what is ours with everything, what is others' as far as the server shows it.
    pub(crate) async fn inspect(self: Arc<Self>, key: Key) -> Result<Option<Snapshot>> {
        let held = self.database.holders(&key).await?;
        let ours: Vec<_> = {
            let book = self.book();
            let may_hold = |entry: &&Entry<_>| entry.claim.key == key && !book.waits(&entry.line);
            book.entries().filter(may_hold).cloned().collect()
        };
        let mut limit = WHOLE;
        let mut holders = Vec::new();
        for Held { connection, sharing } in held {
            let units = |limit| if sharing == Sharing::Shared { 1 } else { limit };
            let mut is_ours = false;
            let is_it = |entry: &&Entry<_>| connection.is_none_or(|number| entry.line.number() == number);
            for entry in ours.iter().filter(is_it) {
                let token = entry.slot.try_lock().ok().and_then(|token| *token).unwrap_or(0);
                (is_ours, limit) = (true, entry.claim.limit);
                let label = entry.claim.label.to_string();
                holders.push(holder(token, units(limit), label, entry.since.elapsed()));
            }
            if !is_ours {
                holders.push(holder(0, units(limit), String::new(), Duration::ZERO));
            }
        }
        holders.sort_by_key(|holder| holder.token);
        Ok((!holders.is_empty()).then(|| Snapshot { holders, ..Snapshot::free(key, limit) }))
    }
}

fn holder(token: u64, units: u64, label: String, held_for: Duration) -> Holder {
    Holder { seat: token, token, units, label, held_for, lease_left: None, value: Arc::from([]), count: None }
}
