//! The bare operations that ours are held against in benchmarks: the same connection, and nothing of a lock library.

use std::sync::Arc;

use leasehold_core::Result;

use crate::url::Target;
use crate::wire::message::{Txn, Watch, WatchCreate, Watched};
use crate::wire::{Connection, Incoming, Link};
use crate::words::{delete, is_absent, put};

/// A connection, and a lease for its keys.
#[derive(Clone, Debug)]
pub struct Raw {
    member: Arc<Connection>,
    lease: i64,
}

impl Raw {
    /// Connects to a member that the URL names.
    ///
    /// # Errors
    /// As any store's.
    pub async fn connect(url: &str) -> Result<Self> {
        let member = Arc::new(Link::new(Target::parse(url)?)).connection().await?;
        let lease = member.grant(600).await?.id;
        Ok(Self { member, lease })
    }

    /// Stores a key on the lease if it is not there.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn put(&self, key: &str) -> Result<bool> {
        let name = key.as_bytes().to_vec();
        let txn = Txn {
            compare: vec![is_absent(&name)],
            success: vec![put(name, b"held".to_vec(), self.lease)],
            failure: Vec::new(),
        };
        Ok(self.member.txn(&txn).await?.succeeded)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let success = vec![delete(key.as_bytes().to_vec())];
        self.member.txn(&Txn { success, ..Txn::default() }).await?;
        Ok(())
    }

    /// Another lease: the server's lock is re-entrant for one.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn apart(&self) -> Result<Self> {
        Ok(Self { member: self.member.clone(), lease: self.member.grant(600).await?.id })
    }

    /// The server's own lock on this one's lease.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn lock(&self, name: &str) -> Result<Vec<u8>> {
        Ok(self.member.lock(name, self.lease).await?.key)
    }

    /// Gives it back.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn unlock(&self, key: Vec<u8>) -> Result<()> {
        Ok(self.member.unlock(key).await?)
    }

    /// Listens to a key.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn watch(&self, key: &str) -> Result<Events> {
        let create = Some(WatchCreate { key: key.as_bytes().to_vec(), ..WatchCreate::default() });
        let mut events = Events(self.member.watch(&Watch { create }).await?);
        // That it is there.
        events.next().await?;
        Ok(events)
    }
}

/// What happens to a key.
#[derive(Debug)]
pub struct Events(Incoming);

impl Events {
    /// Waits for the next.
    ///
    /// # Errors
    /// When the stream ends.
    pub async fn next(&mut self) -> Result<()> {
        self.0.next::<Watched>().await?;
        Ok(())
    }
}
