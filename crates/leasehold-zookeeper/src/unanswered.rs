//! Holds that a request may still create after its caller has given up.
//!
//! The connection may stall with the request in it. A persistent node then stays for the whole lease of its claim, or for
//! ever, and a node of a session for as long as the session. The process may end before the connection moves again, or its
//! client may be closed. So a withdrawal sends a delete behind the request without waiting for any answer. A connection
//! keeps the order of its requests. If the session has moved to another connection, the servers refuse what the old one
//! brings.
//!
//! A place in the queue is not among them, because only the server knows its name. It ends with the session.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::ClaimId;

use crate::names::{Kind, Name};

/// The paths of such nodes, by claim.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<HashMap<ClaimId, HashSet<String>>>);

impl Unanswered {
    /// A request is about to be sent that creates this node.
    pub(crate) fn sending(&self, name: &Name, path: &str) {
        // The tail of a job has no owner who could withdraw it.
        let is_withdrawable = name.kind != Kind::Waiting && name.id != ClaimId::ownerless(name.seat);
        if is_withdrawable {
            self.paths().entry(name.id).or_default().insert(path.to_owned());
        }
    }

    /// The claim was answered: whatever requests for it have created is known.
    pub(crate) fn answered(&self, id: &ClaimId) {
        self.paths().remove(id);
    }

    /// Takes the paths that requests for this claim may still create.
    pub(crate) fn take(&self, id: &ClaimId) -> HashSet<String> {
        self.paths().remove(id).unwrap_or_default()
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<ClaimId, HashSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
