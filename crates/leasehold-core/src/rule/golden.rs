//! The golden vectors: named cases of the rule as data, for every translation of it.
//!
//! A case says what is stored, what is asked, what must be answered and what must be stored then. The
//! reference passes them (`rule/vectors.rs`); a store that runs the rule on its server loads
//! [`Case::state`], performs [`Case::op`] and hands what it saw to [`Case::verify`]. The format is described
//! in `vectors/README.md`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::ledger::millis;
use crate::claim::{Answer, Change, Claim, IfBusy, Inbox, Order, Released, Units};
use crate::error::{ErrorKind, Result};
use crate::key::Key;
use crate::record::format::{Id, State, Value};
use crate::store::{Promotion, Snapshot};

/// Seats, tokens and fences in the files are counted from here: above every clock in microseconds, so that
/// stores with hybrid numbers answer the last plus one, and below 2^53.
pub const BASE: u64 = 5_000_000_000_000_000;

const FILES: &[(&str, &str)] = &[
    ("claim.json", include_str!("../../vectors/claim.json")),
    ("renew.json", include_str!("../../vectors/renew.json")),
    ("amend.json", include_str!("../../vectors/amend.json")),
    ("release.json", include_str!("../../vectors/release.json")),
];

/// All cases, their numbers raised by [`BASE`].
///
/// # Panics
/// When a file is not well formed: they are part of this crate.
pub fn load() -> Vec<Case> {
    let mut cases = Vec::new();
    for (file, text) in FILES {
        let parsed: Vec<Case> = serde_json::from_str(text).unwrap_or_else(|e| panic!("{file}: {e}"));
        cases.extend(parsed.into_iter().map(Case::raised));
    }
    cases
}

/// One case.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The last number drawn before.
    pub fence: u64,
    /// What is stored before, times relative to the moment of the operation.
    pub state: State,
    /// What is asked.
    pub op: Op,
    /// What must be answered.
    #[serde(default)]
    pub answer: Said,
    /// Whom the operation must promote, besides the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promoted: Vec<Promoted>,
    /// The inboxes whose claim it must end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<u64>,
    /// What must be stored afterwards; absent: what was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<State>,
    /// The last number drawn afterwards; absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence_after: Option<u64>,
}

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
    token_above: u64,
    inbox: u64,
    label: String,
    value: Value,
    count: Option<u64>,
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
        }
    }
}

/// A [`Change`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// [`Change::Units`].
    Units(u64),
    /// [`Change::Give`].
    Give {
        /// How many.
        n: u64,
        /// Which request.
        op: u64,
    },
    /// [`Change::Value`].
    Value(Value),
    /// [`Change::Owner`].
    Owner(Box<Asked>),
    /// [`Change::Tail`].
    Tail(u64),
    /// [`Change::Limit`].
    Limit(u64),
}

impl Wish {
    /// The change, on this key.
    pub fn change(&self, key: &Key) -> Change {
        match self {
            Self::Units(units) => Change::Units(*units),
            Self::Give { n, op } => Change::Give { n: *n, op: *op },
            Self::Value(value) => Change::Value(value.bytes()),
            Self::Owner(heir) => Change::Owner(Box::new(heir.claim(key))),
            Self::Tail(length) => Change::Tail(Duration::from_millis(*length)),
            Self::Limit(limit) => Change::Limit(*limit),
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
    fn of(length: Duration) -> Self {
        if length == Duration::MAX { Self::Word(Word::Forever) } else { Self::Millis(millis(length)) }
    }
}

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
        let waiter = |waiter: &crate::Waiter| ShownWaiter {
            seat: waiter.seat,
            units: waiter.units,
            waiting_for: millis(waiter.waiting_for),
            lease_left: millis(waiter.lease_left),
        };
        Self {
            limit: snapshot.limit,
            effective: snapshot.effective_limit,
            holders: snapshot.holders.iter().map(holder).collect(),
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

/// What was seen when a case was performed. What a store cannot tell stays `None` and is not compared.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The answer.
    pub answer: Said,
    /// Who was promoted, in order.
    pub promoted: Option<Vec<Promoted>>,
    /// The inboxes that were told of an end.
    pub ended: Option<Vec<u64>>,
    /// What is stored afterwards, relative to the same moment as before.
    pub after: Option<State>,
    /// The last number drawn.
    pub fence: Option<u64>,
}

impl Case {
    /// Compares what was seen with what must be. `slack` milliseconds may lie between a time and the
    /// expected one: a server's clock does not stand still.
    ///
    /// # Errors
    /// Every difference, a line each.
    pub fn verify(&self, seen: &Seen, slack: u64) -> std::result::Result<(), String> {
        let mut wrong = Vec::new();
        let mut compare = |what: &str, is: Json, must: Json| differences(what, &is, &must, slack, &mut wrong);
        compare("answer", json(&seen.answer), json(&self.answer));
        if let Some(promoted) = &seen.promoted {
            compare("promoted", json(promoted), json(&self.promoted));
        }
        if let Some(ended) = &seen.ended {
            compare("ended", json(ended), json(&self.ended));
        }
        if let Some(after) = &seen.after {
            compare("after", json(&pruned(after)), json(&pruned(self.after.as_ref().unwrap_or(&self.state))));
        }
        if let Some(fence) = seen.fence {
            compare("fence", json(&fence), json(&self.fence_after.unwrap_or(self.fence)));
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("{}:\n  {}", self.name, wrong.join("\n  "))) }
    }

    /// The same case with its numbers counted from [`BASE`].
    fn raised(mut self) -> Self {
        let number = |n: &mut u64| *n += if *n == 0 { 0 } else { BASE };
        self.fence += BASE;
        if let Some(fence) = &mut self.fence_after {
            *fence += BASE;
        }
        for state in std::iter::once(&mut self.state).chain(&mut self.after) {
            for claim in &mut state.claims {
                // Claims that nobody owns are named after their seat.
                let ownerless = claim.id.0 == crate::claim::ClaimId::ownerless(claim.seat);
                number(&mut claim.seat);
                number(&mut claim.token);
                if ownerless {
                    claim.id = Id(crate::claim::ClaimId::ownerless(claim.seat));
                }
            }
        }
        for promoted in &mut self.promoted {
            number(&mut promoted.seat);
            number(&mut promoted.token);
        }
        match &mut self.op {
            Op::Claim(asked) | Op::Renew(asked) | Op::Amend { claim: asked, .. } => {
                number(&mut asked.token_above)
            }
            Op::Evict { token } => number(token),
            Op::Release { .. } | Op::Inspect => {}
        }
        match &mut self.answer {
            Said::Granted { seat, token, .. } => {
                number(seat);
                number(token);
            }
            Said::Waiting { seat, .. } => number(seat),
            Said::Shows(Some(shown)) => {
                for holder in &mut shown.holders {
                    number(&mut holder.seat);
                    number(&mut holder.token);
                }
                shown.waiters.iter_mut().for_each(|waiter| number(&mut waiter.seat));
            }
            _ => {}
        }
        self
    }
}

/// Without refusals that are over: when they are forgotten is the store's affair.
fn pruned(state: &State) -> State {
    let mut state = state.clone();
    state.refused.retain(|_, until| *until > 0);
    state
}

fn json(value: &impl Serialize) -> Json {
    serde_json::to_value(value).expect("strings and numbers always serialise")
}

/// The members whose numbers are times.
const TIMES: &[&str] = &[
    "since",
    "expires",
    "quiet_until",
    "refused",
    "look_in",
    "lease",
    "held_for",
    "lease_left",
    "waiting_for",
];

fn differences(path: &str, is: &Json, must: &Json, slack: u64, wrong: &mut Vec<String>) {
    match (is, must) {
        (Json::Object(a), Json::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let (is, must) = (a.get(name).unwrap_or(&Json::Null), b.get(name).unwrap_or(&Json::Null));
                differences(&format!("{path}.{name}"), is, must, slack, wrong);
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (i, (is, must)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{i}]"), is, must, slack, wrong);
            }
        }
        _ if is == must => {}
        _ => {
            let is_time = path.split('.').any(|part| TIMES.contains(&part));
            let apart = || Some(is.as_i64()?.abs_diff(must.as_i64()?));
            if !(is_time && apart().is_some_and(|apart| apart <= slack)) {
                wrong.push(format!("{path} is {is}, must be {must}"));
            }
        }
    }
}
