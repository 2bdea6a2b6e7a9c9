//! Telling waiters: directly inside this process, by a local datagram to others.
//!
//! Every client has an address in Linux's abstract socket namespace, which leaves nothing in the file
//! system. A datagram names a key and nothing else: anybody on the machine could send one, so all it causes
//! is a look at the file. A lost one is made up for by the client's own polls; on other systems, and
//! between network namespaces, those polls are all there is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Inbox, Wake, Wakes};

use crate::step::Notices;

#[cfg(target_os = "linux")]
#[path = "wake/datagram.rs"]
mod remote;
#[cfg(not(target_os = "linux"))]
#[path = "wake/nothing.rs"]
mod remote;

/// The clients that use this store in this process, and the way to all others.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    here: Mutex<HashMap<Inbox, Entry>>,
    post: remote::Post,
}

#[derive(Debug)]
struct Entry {
    wakes: Wakes,
    _listener: remote::Listener,
}

impl Inboxes {
    /// From now on tells `wakes` what concerns `inbox`.
    pub(crate) fn open(&self, file: &Path, inbox: Inbox, wakes: Wakes) {
        self.post.set_file(file);
        let listener = self.post.listen(inbox, Arc::downgrade(&wakes));
        let mut here = self.lock();
        here.retain(|_, entry| !entry.wakes.is_gone());
        here.insert(inbox, Entry { wakes, _listener: listener });
    }

    /// Tells everybody whom a step concerns. Call after its commit.
    pub(crate) fn tell(&self, notices: Notices) {
        if notices.promoted.is_empty() && notices.look.is_empty() {
            return;
        }
        // The sinks are called without our lock: they may call us.
        let find =
            |inbox: &Inbox| -> Option<Arc<dyn Wake>> { self.lock().get(inbox).map(|e| e.wakes.clone()) };
        let mut elsewhere = Vec::new();
        for promotion in notices.promoted {
            match find(&promotion.inbox) {
                Some(wakes) => wakes.promoted(&promotion),
                None => elsewhere.push((promotion.inbox, promotion.key)),
            }
        }
        for (inbox, key) in notices.look {
            match find(&inbox) {
                Some(wakes) => wakes.look(&key),
                None => elsewhere.push((inbox, key)),
            }
        }
        elsewhere.sort_unstable();
        elsewhere.dedup();
        for (inbox, key) in elsewhere {
            self.post.send(inbox, &key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Inbox, Entry>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
