//! Comparing what was seen with what must be, times within a slack.

use serde::Serialize;
use serde_json::Value as Json;

use crate::record::format::State;

/// Without refusals that are over: when they are forgotten is the store's affair.
pub(super) fn pruned(state: &State) -> State {
    let mut state = state.clone();
    state.refused.retain(|_, until| *until > 0);
    state
}

pub(super) fn json(value: &impl Serialize) -> Json {
    serde_json::to_value(value).expect("strings and numbers always serialise")
}

/// The members whose numbers are times.
const TIMES: &[&str] = &[
    "since",
    "expires",
    "quiet_until",
    "agreed_until",
    "refused",
    "look_in",
    "lease",
    "held_for",
    "lease_left",
    "waiting_for",
    "started",
    "due_in",
];

/// Notes every difference, with the path to it.
pub(super) fn differences(path: &str, is: &Json, must: &Json, slack: u64, wrong: &mut Vec<String>) {
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
