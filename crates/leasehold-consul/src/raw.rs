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
        match self.0.transact(vec![Op::cas(key.to_owned(), 0, b"held")]).await? {
            Outcome::Done(entries) => Ok(entries.first().map_or(0, |entry| entry.modify_index)),
            Outcome::Failed(_) => Err(Error::new(ErrorKind::Conflict, "somebody else has it")),
        }
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
