//! What a database must be able to do so that its own locks can be a store.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use leasehold_core::{Key, Result};

/// Whether others may hold beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Nobody.
    Exclusive,
    /// Others who share.
    Shared,
}

/// Somebody who holds a lock, as the server shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which of the server's connections: [`Connection::number`]; `None` where the server does not tell.
    pub connection: Option<u64>,
    /// How.
    pub sharing: Sharing,
}

/// A server with locks that belong to connections.
pub trait Database: Debug + Send + Sync + 'static {
    /// One of its connections.
    type Connection: Connection;

    /// Sees that this is the right kind of server.
    fn check(&self) -> impl Future<Output = Result<()>> + Send;

    /// Makes a connection that the server ends by itself, with all its locks, when it was silent for this long.
    fn connect(&self, silence: Duration) -> impl Future<Output = Result<Self::Connection>> + Send;

    /// Who holds a lock.
    fn holders(&self, key: &Key) -> impl Future<Output = Result<Vec<Held>>> + Send;
}

/// A connection that has locks. Its statements are answered in order, or it is of no more use.
pub trait Connection: Debug + Send + Sync + 'static {
    /// The server's number for it.
    fn number(&self) -> u64;

    /// Takes a lock if it is free, and draws a token when it has it.
    fn take(&self, key: &Key, sharing: Sharing) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// The same, and waits in the server's queue for about so long, or not at all where the server cannot wait for so short
    /// a time. Nothing else can be said on the connection meanwhile.
    fn wait(
        &self,
        key: &Key,
        sharing: Sharing,
        about: Duration,
    ) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// Has the server forget who waits on this connection, which is of no more use then.
    fn cancel(&self) -> impl Future<Output = ()> + Send;

    /// Gives a lock back. No error when there is nothing to give back.
    fn give(&self, key: &Key, sharing: Sharing) -> impl Future<Output = Result<()>> + Send;

    /// Says something, so that the server knows that we are there.
    fn beat(&self) -> impl Future<Output = Result<()>> + Send;

    /// Waits until it has ended.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}
