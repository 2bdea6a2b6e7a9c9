//! What a session remembers of its claims, so that it need not ask.

use leasehold_core::{Answer, Claim, Grant};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::names::{Kind, Name};
use crate::view::View;

/// A claim of this client.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) claim: Claim,
    /// Its node, when it was last seen; empty before that.
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
    /// Who waits behind it on this session hears when its node changes, and when this is dropped.
    pub(crate) news: watch::Sender<()>,
}

impl Own {
    pub(crate) fn waiting(claim: &Claim, seat: u64) -> Self {
        Self {
            claim: claim.clone(),
            path: String::new(),
            kind: Kind::Waiting,
            seat,
            token: 0,
            units: 0,
            alone: false,
            asked: false,
            waits: true,
            turn: None,
            news: watch::Sender::new(()),
        }
    }

    /// Whether it holds on the session and wants no more.
    pub(crate) fn is_held(&self) -> bool {
        self.kind == Kind::Held && !self.waits
    }

    /// A node of this name was made for it, by the write with this number.
    pub(crate) fn made(&mut self, view: &View, name: &Name, number: u64) {
        let or_number = |named: u64| if named == 0 { number } else { named };
        self.path = format!("{}/{name}", view.path);
        if name.held < name.limit || !view.is_plain() {
            // Who is behind it may fit beside it.
            self.news.send_replace(());
        }
        (self.kind, self.units) = (name.kind, name.held);
        (self.seat, self.token) = (or_number(name.seat), or_number(name.token));
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
