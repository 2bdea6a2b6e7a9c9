//! What a session remembers of its claims, so that it need not ask.

use leasehold_core::{Answer, Claim, Grant, Key};
use tokio::task::AbortHandle;

use crate::names::Kind;

/// A claim of this client.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) key: Key,
    /// Its node, when it was last seen.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) seat: u64,
    /// 0 while it waits.
    pub(crate) token: u64,
    pub(crate) units: u64,
    /// Nobody else was on the lock.
    pub(crate) alone: bool,
    /// Somebody asked for it back.
    pub(crate) asked: bool,
    /// Whether it waits: for all it wants, or for more.
    pub(crate) waits: bool,
    /// What waits for its turn; stopped when this is forgotten.
    pub(crate) turn: Option<Turn>,
}

impl Own {
    pub(crate) fn waiting(claim: &Claim, seat: u64) -> Self {
        Self {
            key: claim.key.clone(),
            path: String::new(),
            kind: Kind::Waiting,
            seat,
            token: 0,
            units: 0,
            alone: false,
            asked: false,
            waits: true,
            turn: None,
        }
    }

    /// Whether it holds on the session and wants no more.
    pub(crate) fn is_held(&self) -> bool {
        self.kind == Kind::Held && !self.waits
    }

    pub(crate) fn granted(&self, lease: Option<std::time::Duration>) -> Answer {
        let Self { seat, token, units, asked, .. } = *self;
        Answer::Granted(Grant { seat, token, units, lease, asked })
    }
}

/// A task that ends with this.
#[derive(Debug)]
pub(crate) struct Turn(pub(crate) AbortHandle);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.abort();
    }
}
