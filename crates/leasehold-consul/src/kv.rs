//! Consul's key-value store and its transactions, as far as locks need them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use leasehold_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::http::{Effect, Http, Reply, escape};

/// A key's entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) key: String,
    value: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) create_index: u64,
    pub(crate) modify_index: u64,
}

impl Entry {
    /// Its value's bytes.
    pub(crate) fn value(&self) -> Result<Vec<u8>> {
        let text = self.value.as_deref().unwrap_or_default();
        STANDARD.decode(text).map_err(|cause| protocol("a value is not base64").because(cause))
    }
}

/// One operation of a transaction.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Op {
    verb: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
}

impl Op {
    fn new(verb: &'static str, key: String) -> Self {
        Self { verb, key, value: None, index: None, session: None }
    }

    /// Writes if the key has this index; 0 for a key that is not there.
    pub(crate) fn cas(key: String, index: u64, value: &[u8]) -> Self {
        Self { index: Some(index), value: Some(STANDARD.encode(value)), ..Self::new("cas", key) }
    }

    /// Writes an empty value, whatever is there.
    pub(crate) fn touch(key: String) -> Self {
        Self { value: Some(String::new()), ..Self::new("set", key) }
    }

    /// Fails if the key is there.
    pub(crate) fn absent(key: String) -> Self {
        Self::new("check-not-exists", key)
    }

    /// Removes the key if it has this index.
    pub(crate) fn delete_cas(key: String, index: u64) -> Self {
        Self { index: Some(index), ..Self::new("delete-cas", key) }
    }

    /// Removes the key, if it is there.
    pub(crate) fn delete(key: String) -> Self {
        Self::new("delete", key)
    }

    /// Reads the key, which must be there.
    fn get(key: String) -> Self {
        Self::new("get", key)
    }

    /// Fails unless the key has this index.
    pub(crate) fn check(key: String, index: u64) -> Self {
        Self { index: Some(index), ..Self::new("check-index", key) }
    }

    /// Writes and binds the key to the session, which must live.
    pub(crate) fn hold(key: String, session: &str, value: &[u8]) -> Self {
        let value = Some(STANDARD.encode(value));
        Self { value, session: Some(session.to_owned()), ..Self::new("lock", key) }
    }

    /// Writes and frees the key from the session, which must hold it.
    pub(crate) fn free(key: String, session: &str, value: &[u8]) -> Self {
        let value = Some(STANDARD.encode(value));
        Self { value, session: Some(session.to_owned()), ..Self::new("unlock", key) }
    }
}

/// What became of a transaction.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All of it was done. One entry for each operation that leaves one.
    Done(Vec<Entry>),
    /// Nothing was done: the places of the operations that could not be.
    Failed(Vec<usize>),
}

/// What became of a look at several keys.
#[derive(Debug)]
pub(crate) enum Found {
    /// All of them are there.
    All(Vec<Entry>),
    /// The places of those that are not, in their order; the others were not read.
    Absent(Vec<usize>),
}

#[derive(Deserialize)]
struct Said {
    #[serde(rename = "Results", default)]
    results: Option<Vec<Result1>>,
    #[serde(rename = "Errors", default)]
    errors: Option<Vec<OpError>>,
}

#[derive(Deserialize)]
struct Result1 {
    #[serde(rename = "KV")]
    kv: Entry,
}

#[derive(Deserialize)]
struct OpError {
    #[serde(rename = "OpIndex")]
    at: usize,
    #[serde(rename = "What", default)]
    what: String,
}

impl Http {
    /// All of these or none, through the leader and its majority.
    pub(crate) async fn transact(&self, ops: Vec<Op>) -> Result<Outcome> {
        self.send_all("/v1/txn?", ops, Effect::Writes).await
    }

    /// The entries of several keys, as the majority has them.
    pub(crate) async fn get_all(&self, keys: Vec<String>) -> Result<Found> {
        let ops = keys.into_iter().map(Op::get).collect();
        match self.send_all("/v1/txn?consistent", ops, Effect::Reads).await? {
            Outcome::Done(entries) => Ok(Found::All(entries)),
            Outcome::Failed(places) if places.is_empty() => {
                Err(protocol("a transaction failed without a reason"))
            }
            Outcome::Failed(mut places) => {
                places.sort_unstable();
                Ok(Found::Absent(places))
            }
        }
    }

    async fn send_all(&self, path: &str, ops: Vec<Op>, effect: Effect) -> Result<Outcome> {
        #[derive(Serialize)]
        struct Item {
            #[serde(rename = "KV")]
            kv: Op,
        }
        let body: Vec<Item> = ops.into_iter().map(|kv| Item { kv }).collect();
        let body = serde_json::to_vec(&body).map_err(|cause| protocol("cannot be sent").because(cause))?;
        let reply = self.ask(Method::PUT, path, body, effect).await?;
        if reply.status != 200 && reply.status != 409 {
            return Err(refused(&reply, effect));
        }
        let said: Said = read(&reply)?;
        if reply.status == 200 {
            return Ok(Outcome::Done(said.results.unwrap_or_default().into_iter().map(|r| r.kv).collect()));
        }
        let errors = said.errors.unwrap_or_default();
        if let Some(denied) = errors.iter().find(|error| error.what.contains("Permission denied")) {
            return Err(denied_because(reply.status, &denied.what));
        }
        Ok(Outcome::Failed(errors.into_iter().map(|error| error.at).collect()))
    }

    /// A key's entry, as the majority has it.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let path = format!("/v1/kv/{}?consistent", path(key));
        let reply = self.ask(Method::GET, &path, Vec::new(), Effect::Reads).await?;
        match reply.status {
            200 => Ok(read::<Vec<Entry>>(&reply)?.pop()),
            404 => Ok(None),
            _ => Err(refused(&reply, Effect::Reads)),
        }
    }

    /// The keys that start with this, as the majority has them.
    pub(crate) async fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        let path = format!("/v1/kv/{}?keys&consistent", path(prefix));
        let reply = self.ask(Method::GET, &path, Vec::new(), Effect::Reads).await?;
        match reply.status {
            200 => read(&reply),
            404 => Ok(Vec::new()),
            _ => Err(refused(&reply, Effect::Reads)),
        }
    }
}

/// A key as the path of a request.
pub(crate) fn path(key: &str) -> String {
    key.split('/').map(escape).collect::<Vec<_>>().join("/")
}

/// The JSON of a reply.
pub(crate) fn read<'a, T: Deserialize<'a>>(reply: &'a Reply) -> Result<T> {
    serde_json::from_slice(&reply.body)
        .map_err(|cause| protocol("the answer is not Consul's: check the URL").because(cause))
}

/// What an answer means that is not the one that was hoped for.
pub(crate) fn refused(reply: &Reply, effect: Effect) -> Error {
    let text = reply.text();
    let has_no_leader = text.contains("No cluster leader") || text.contains("No known Consul servers");
    let kind = match (reply.status, effect) {
        (401 | 403, _) => ErrorKind::Denied,
        (413, _) => ErrorKind::Invalid,
        (429 | 503, _) => ErrorKind::Unavailable,
        (500.., Effect::Reads) => ErrorKind::Unavailable,
        // Not even sent on.
        (500.., _) if has_no_leader => ErrorKind::Unavailable,
        (500.., Effect::Writes) => ErrorKind::Indeterminate,
        _ => ErrorKind::Protocol,
    };
    if kind == ErrorKind::Denied {
        return denied_because(reply.status, &text);
    }
    said(kind, reply.status, &text, "ask the cluster's operator").transient_if(has_no_leader)
}

fn denied_because(status: u16, text: &str) -> Error {
    let advice = "give the token key:write for the prefix and session:write for the agent's node";
    said(ErrorKind::Denied, status, text, advice)
}

fn said(kind: ErrorKind, status: u16, text: &str, advice: &str) -> Error {
    Error::new(kind, format!("Consul answered {status} \"{}\": {advice}", text.escape_debug())).at("consul")
}

pub(crate) fn protocol(message: &str) -> Error {
    Error::new(ErrorKind::Protocol, message).at("consul")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_write_that_no_leader_saw_surely_did_not_happen() {
        let kind = |text: &'static str, effect| {
            let reply = Reply { status: 500, index: 0, body: text.into() };
            refused(&reply, effect).kind()
        };
        for ambiguous in [
            "leadership lost while committing log",
            "rpc error making call: leadership lost while committing log",
            "rpc error making call: EOF",
            "timed out enqueuing operation",
        ] {
            assert_eq!(kind(ambiguous, Effect::Writes), ErrorKind::Indeterminate, "{ambiguous}");
            assert_eq!(kind(ambiguous, Effect::Reads), ErrorKind::Unavailable, "{ambiguous}");
        }
        for unsent in ["No cluster leader", "No known Consul servers"] {
            assert_eq!(kind(unsent, Effect::Writes), ErrorKind::Unavailable, "{unsent}");
        }
    }
}
