//! The bare operations that ours are held against in benchmarks: the same connections, and nothing of a lock library.

use std::sync::Arc;

use hyper::Method;
use leasehold_core::{Error, ErrorKind, Result};

use crate::http::{Effect, Http};
use crate::kv::{self, Op, Outcome};
use crate::listen::{LATE, WAIT};
use crate::url::Target;

/// A way to the servers.
#[derive(Clone, Debug)]
pub struct Raw(Arc<Http>);

impl Raw {
    /// The way to the servers that a URL names.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self(Arc::new(Http::new(Target::parse(url)?))))
    }

    /// Stores a key if it is not there: its index then.
    ///
    /// # Errors
    /// When it is there, or nobody answers.
    pub async fn put(&self, key: &str) -> Result<u64> {
        done(self.0.transact(vec![Op::cas(key.to_owned(), 0, b"held")]).await?)
    }

    /// Removes a key if it has this index.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn delete(&self, key: &str, index: u64) -> Result<()> {
        self.0.transact(vec![Op::delete_cas(key.to_owned(), index)]).await.map(drop)
    }

    /// Waits until a key is not as it was at this index.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn changed(&self, key: &str, index: u64) -> Result<()> {
        let path = format!("/v1/kv/{}?index={index}&wait={}s", kv::path(key), WAIT.as_secs());
        self.0.ask_within(Method::GET, &path, Vec::new(), Effect::Reads, WAIT + LATE).await.map(drop)
    }
}

/// The same with what a lock cannot do without: the key goes with a session, and is written only while who asks was not
/// given up; and it is known whether it was there when it is removed.
#[derive(Clone, Debug)]
pub struct Safe {
    raw: Raw,
    session: String,
    alive: (String, u64),
}

impl Safe {
    /// Opens a session of a minute.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn open(raw: Raw) -> Result<Self> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        struct Created {
            id: String,
        }
        let create = br#"{"TTL":"60s","Behavior":"delete","LockDelay":"0s","NodeChecks":[]}"#.to_vec();
        let reply = raw.0.ask(Method::PUT, "/v1/session/create?", create, Effect::Writes).await?;
        let Created { id: session } = kv::read(&reply)?;
        let key = format!("bench-alive/{session}");
        let alive = done(raw.0.transact(vec![Op::hold(key.clone(), &session, b"0")]).await?)?;
        Ok(Self { raw, session, alive: (key, alive) })
    }

    /// Stores a key if it is not there: its index then.
    ///
    /// # Errors
    /// When it is there, or nobody answers.
    pub async fn put(&self, key: &str, value: &[u8]) -> Result<u64> {
        let (alive, index) = self.alive.clone();
        let hold = Op::hold(key.to_owned(), &self.session, value);
        done(self.raw.0.transact(vec![Op::check(alive, index), Op::absent(key.to_owned()), hold]).await?)
    }

    /// Removes a key that has this index.
    ///
    /// # Errors
    /// When it has another, or nobody answers.
    pub async fn delete(&self, key: &str, index: u64) -> Result<()> {
        let ops = vec![Op::check(key.to_owned(), index), Op::delete_cas(key.to_owned(), index)];
        done(self.raw.0.transact(ops).await?).map(drop)
    }
}

/// The index of what was written last.
fn done(outcome: Outcome) -> Result<u64> {
    match outcome {
        Outcome::Done(entries) => Ok(entries.last().map_or(0, |entry| entry.modify_index)),
        Outcome::Failed(_) => Err(Error::new(ErrorKind::Conflict, "somebody else has it")),
    }
}
