//! The golden vectors: named cases of the rule as data, for every translation of it.
//!
//! A case says what is stored, what is asked, what must be answered and what must be stored then. The
//! reference passes them (`rule/vectors.rs`); a store that runs the rule on its server loads
//! [`Case::state`], performs [`Case::op`] and hands what it saw to [`Case::verify`]. The format is described
//! in `vectors/README.md`.

mod asked;
mod compare;
mod said;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use asked::{Asked, Length, Op, Wish, Word};
use compare::{differences, json, pruned};
pub use said::{Promoted, Said, Shown, ShownHolder, ShownWaiter};

use crate::claim::ClaimId;
use crate::record::format::Id;
pub use crate::record::format::State;

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
    /// For how long the store has forgotten nothing, in milliseconds; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
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
            number(&mut state.agreed);
            for claim in &mut state.claims {
                // Claims that nobody owns are named after their seat.
                let ownerless = claim.id.0 == ClaimId::ownerless(claim.seat);
                number(&mut claim.seat);
                number(&mut claim.token);
                if ownerless {
                    claim.id = Id(ClaimId::ownerless(claim.seat));
                }
            }
        }
        for promoted in &mut self.promoted {
            number(&mut promoted.seat);
            number(&mut promoted.token);
        }
        match &mut self.op {
            Op::Claim(asked) | Op::Renew(asked) => number(&mut asked.token_above),
            Op::Amend { claim, change } => {
                number(&mut claim.token_above);
                if let Wish::Ask(token) | Wish::Give { token, .. } = change {
                    number(token);
                }
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
                for finished in &mut shown.finished {
                    number(&mut finished.seat);
                    number(&mut finished.token);
                }
                shown.waiters.iter_mut().for_each(|waiter| number(&mut waiter.seat));
            }
            _ => {}
        }
        self
    }
}
