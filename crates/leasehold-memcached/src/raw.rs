//! The bare operations that ours are held against in benchmarks: the same connection, and nothing of a lock library.

use std::sync::Arc;

use leasehold_core::{Error, ErrorKind, Result};

use crate::link::{Answers, Link};
use crate::protocol::Reply;
use crate::url::Target;

/// A way to the server.
#[derive(Clone, Debug)]
pub struct Raw(Arc<Link>);

impl Raw {
    /// The way to the server that a URL names.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self(Arc::new(Link::new(Target::parse(url)?))))
    }

    /// Stores an item for a minute if it is not there.
    ///
    /// # Errors
    /// When it is there, or nobody answers.
    pub async fn add(&self, name: &str) -> Result<()> {
        self.ask(format!("ms {name} 4 ME T60\r\nheld\r\n")).await
    }

    /// Removes an item.
    ///
    /// # Errors
    /// When it is not there, or nobody answers.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.ask(format!("md {name}\r\n")).await
    }

    async fn ask(&self, text: String) -> Result<()> {
        let wire = self.0.wire().await?;
        match wire.ask(text.into_bytes(), Answers::Exactly(1)).await?.pop() {
            Some(Reply::Done(_)) => Ok(()),
            _ => Err(Error::new(ErrorKind::Conflict, "somebody else has it")),
        }
    }
}
