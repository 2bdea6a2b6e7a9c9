//! What a vector expects to hear.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::asked::Length;
use crate::claim::{Answer, Released};
use crate::error::{ErrorKind, Result};
use crate::rule::ledger::millis;
use crate::store::{Promotion, Snapshot};

/// What an operation answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of Grant and Place")]
pub enum Said {
    /// [`Answer::Granted`]; `lease` absent: nothing was extended.
    Granted {
        seat: u64,
        token: u64,
        units: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Length>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asked: bool,
    },
    /// [`Answer::Waiting`].
    Waiting {
        seat: u64,
        ahead: u64,
        look_in: u64,
        held: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Length>,
    },
    /// [`Answer::Busy`].
    Busy,
    /// [`Answer::Gone`].
    #[default]
    Gone,
    /// [`Answer::Left`].
    Left(u64),
    /// [`Answer::Done`].
    Done,
    /// [`Released`]: `held`, `waiting` or `gone`.
    Released(String),
    /// Whether `evict` found the holder.
    Evicted(bool),
    /// What `inspect` shows.
    Shows(Option<Shown>),
    /// The operation failed with this kind, and must have changed nothing.
    Error(String),
}

impl Said {
    /// What a claim, renewal or amendment said.
    pub fn answer(result: &Result<Answer>) -> Self {
        match result {
            Err(error) => Self::Error(error.kind().to_string()),
            Ok(Answer::Granted(grant)) => Self::Granted {
                seat: grant.seat,
                token: grant.token,
                units: grant.units,
                lease: grant.lease.map(Length::of),
                asked: grant.asked,
            },
            Ok(Answer::Waiting(place)) => Self::Waiting {
                seat: place.seat,
                ahead: place.ahead,
                look_in: millis(place.look_in),
                held: place.held,
                lease: place.lease.map(Length::of),
            },
            Ok(Answer::Busy) => Self::Busy,
            Ok(Answer::Gone) => Self::Gone,
            Ok(Answer::Left(left)) => Self::Left(*left),
            Ok(Answer::Done) => Self::Done,
        }
    }

    /// What a release said.
    pub fn released(result: &Result<Released>) -> Self {
        let word = match result {
            Err(error) => return Self::failed(error.kind()),
            Ok(Released::Held) => "held",
            Ok(Released::Waiting) => "waiting",
            Ok(Released::Gone) => "gone",
        };
        Self::Released(word.to_owned())
    }

    /// What an eviction said.
    pub fn evicted(result: &Result<bool>) -> Self {
        result.as_ref().map_or_else(|error| Self::failed(error.kind()), |found| Self::Evicted(*found))
    }

    /// What an inspection said.
    pub fn shows(result: &Result<Option<Snapshot>>) -> Self {
        let shown = |snapshot: &Option<Snapshot>| Self::Shows(snapshot.as_ref().map(Shown::of));
        result.as_ref().map_or_else(|error| Self::failed(error.kind()), shown)
    }

    fn failed(kind: ErrorKind) -> Self {
        Self::Error(kind.to_string())
    }
}

/// A [`Snapshot`] in short.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of Snapshot, Holder and Waiter")]
pub struct Shown {
    pub limit: u64,
    pub effective: u64,
    pub holders: Vec<ShownHolder>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<ShownFinished>,
    pub waiters: Vec<ShownWaiter>,
}

/// A [`Holder`](crate::Holder) in short.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of Holder")]
pub struct ShownHolder {
    pub seat: u64,
    pub token: u64,
    pub units: u64,
    pub held_for: u64,
    pub lease_left: Length,
}

/// A [`Finished`](crate::Finished) job in short.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of Finished")]
pub struct ShownFinished {
    pub seat: u64,
    pub token: u64,
    pub units: u64,
    pub started: u64,
    pub due_in: u64,
}

/// A [`Waiter`](crate::Waiter) in short.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of Waiter")]
pub struct ShownWaiter {
    pub seat: u64,
    pub units: u64,
    pub waiting_for: u64,
    pub lease_left: u64,
}

impl Shown {
    fn of(snapshot: &Snapshot) -> Self {
        let holder = |holder: &crate::Holder| ShownHolder {
            seat: holder.seat,
            token: holder.token,
            units: holder.units,
            held_for: millis(holder.held_for),
            lease_left: Length::of(holder.lease_left.unwrap_or(Duration::MAX)),
        };
        let finished = |finished: &crate::Finished| ShownFinished {
            seat: finished.seat,
            token: finished.token,
            units: finished.units,
            started: millis(finished.started),
            due_in: millis(finished.due_in),
        };
        let waiter = |waiter: &crate::Waiter| ShownWaiter {
            seat: waiter.seat,
            units: waiter.units,
            waiting_for: millis(waiter.waiting_for),
            lease_left: millis(waiter.lease_left.unwrap_or(Duration::MAX)),
        };
        Self {
            limit: snapshot.limit,
            effective: snapshot.effective_limit,
            holders: snapshot.holders.iter().map(holder).collect(),
            finished: snapshot.finished.iter().map(finished).collect(),
            waiters: snapshot.waiters.iter().map(waiter).collect(),
        }
    }
}

/// A [`Promotion`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of Promotion")]
pub struct Promoted {
    pub inbox: u64,
    pub seat: u64,
    pub token: u64,
    pub units: u64,
}

impl From<&Promotion> for Promoted {
    fn from(p: &Promotion) -> Self {
        Self { inbox: p.inbox.0, seat: p.seat, token: p.token, units: p.units }
    }
}
