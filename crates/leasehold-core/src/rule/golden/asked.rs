//! What a vector asks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::claim::{Change, Claim, Extend, IfBusy, Inbox, Order, QuorumTerms, Units};
use crate::key::Key;
use crate::record::format::{Id, Value};
use crate::rule::ledger::millis;

/// An operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// [`Store::claim`](crate::Store::claim).
    Claim(Asked),
    /// [`Store::renew`](crate::Store::renew) of this one claim.
    Renew(Asked),
    /// [`Store::amend`](crate::Store::amend).
    Amend {
        /// The claim.
        claim: Asked,
        /// What to change.
        change: Wish,
    },
    /// [`Store::release`](crate::Store::release).
    Release {
        /// The claim's id.
        id: Id,
        /// For how long to refuse it when it is not there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refuse_for: Option<u64>,
    },
    /// [`Store::evict`](crate::Store::evict).
    Evict {
        /// The holder's token.
        token: u64,
    },
    /// [`Store::inspect`](crate::Store::inspect).
    Inspect,
}

/// A [`Claim`], with what is usual left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asked {
    id: Id,
    limit: u64,
    units: u64,
    up_to: bool,
    leave: bool,
    barging: bool,
    lease: Length,
    patience: u64,
    lock_delay: u64,
    pub(super) token_above: u64,
    inbox: u64,
    label: String,
    value: Value,
    count: Option<u64>,
    quorum: Option<Terms>,
    /// In a renewal: extends nothing.
    polls: bool,
}

/// [`QuorumTerms`] in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    keep: u64,
    min_age: u64,
    #[serde(default)]
    again: bool,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            id: Id::default(),
            limit: 1,
            units: 1,
            up_to: false,
            leave: false,
            barging: false,
            lease: Length::Millis(30_000),
            patience: 10_000,
            lock_delay: 0,
            token_above: 0,
            inbox: 0,
            label: String::new(),
            value: Value::default(),
            count: None,
            quorum: None,
            polls: false,
        }
    }
}

impl Asked {
    /// The claim, on this key.
    pub fn claim(&self, key: &Key) -> Claim {
        Claim {
            key: key.clone(),
            id: self.id.0,
            limit: self.limit,
            units: if self.up_to { Units::UpTo(self.units) } else { Units::Exactly(self.units) },
            if_busy: if self.leave { IfBusy::Leave } else { IfBusy::Queue },
            order: if self.barging { Order::Barging } else { Order::Fair },
            lease: match self.lease {
                Length::Millis(lease) => Some(Duration::from_millis(lease)),
                Length::Word(Word::Forever) => None,
            },
            patience: Duration::from_millis(self.patience),
            lock_delay: Duration::from_millis(self.lock_delay),
            token_above: self.token_above,
            inbox: Inbox(self.inbox),
            label: self.label.as_str().into(),
            value: self.value.bytes(),
            count: self.count,
            quorum: self.quorum.map(|terms| QuorumTerms {
                keep: Duration::from_millis(terms.keep),
                min_age: Duration::from_millis(terms.min_age),
                again: terms.again,
            }),
            round: 0,
            extend: if self.polls { Extend::Nothing } else { Extend::Lease },
        }
    }
}

/// A [`Change`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// [`Change::Units`].
    Units {
        /// How many.
        to: u64,
        /// Which change.
        op: u64,
    },
    /// [`Change::Give`].
    Give {
        /// How many.
        n: u64,
        /// Which request.
        op: u64,
        /// Which latch.
        token: u64,
    },
    /// [`Change::Value`].
    Value {
        /// Which value.
        to: Value,
        /// Which change.
        op: u64,
    },
    /// [`Change::Owner`].
    Owner {
        /// Its heir.
        to: Box<Asked>,
        /// For how long the old id is refused.
        refuse_for: u64,
    },
    /// [`Change::Tail`].
    Tail(u64),
    /// [`Change::Limit`].
    Limit(u64),
    /// [`Change::Ask`].
    Ask(u64),
}

impl Wish {
    /// The change, on this key.
    pub fn change(&self, key: &Key) -> Change {
        match self {
            Self::Units { to, op } => Change::Units { to: *to, op: *op },
            Self::Give { n, op, token } => Change::Give { n: *n, op: *op, token: *token },
            Self::Value { to, op } => Change::Value { to: to.bytes(), op: *op },
            Self::Owner { to, refuse_for } => {
                Change::Owner { to: Box::new(to.claim(key)), refuse_for: Duration::from_millis(*refuse_for) }
            }
            Self::Tail(length) => Change::Tail(Duration::from_millis(*length)),
            Self::Limit(limit) => Change::Limit(*limit),
            Self::Ask(token) => Change::Ask(*token),
        }
    }
}

/// Milliseconds, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Length {
    /// So many milliseconds.
    Millis(u64),
    /// No end.
    Word(Word),
}

/// The one length that is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// No end.
    Forever,
}

impl Length {
    pub(super) fn of(length: Duration) -> Self {
        if length == Duration::MAX { Self::Word(Word::Forever) } else { Self::Millis(millis(length)) }
    }
}
