//! A connection that carries locks, for as long as it is renewed.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Inbox, Key, Result};
use tokio::sync::watch;

use crate::database::{Connection, Sharing};

/// One connection. Whatever is asked of it ends when it is closed.
#[derive(Debug)]
pub(crate) struct Line<C> {
    connection: C,
    pub(crate) id: u64,
    pub(crate) inbox: Inbox,
    pub(crate) lease: Duration,
    closed: watch::Sender<bool>,
}

impl<C: Connection> Line<C> {
    pub(crate) fn new(connection: C, inbox: Inbox, lease: Duration) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { connection, id, inbox, lease, closed: watch::Sender::new(false) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.connection.number()
    }

    /// Takes it, or waits for it.
    pub(crate) async fn take_within(
        &self,
        key: &Key,
        sharing: Sharing,
        about: Option<Duration>,
    ) -> Result<Option<u64>> {
        match about {
            None => self.while_open(self.connection.take(key, sharing)).await,
            Some(about) => self.while_open(self.connection.wait(key, sharing, about)).await,
        }
    }

    /// See [`Connection::cancel`].
    pub(crate) async fn cancel(&self) {
        self.connection.cancel().await;
    }

    pub(crate) async fn give(&self, key: &Key, sharing: Sharing) -> Result<()> {
        self.while_open(self.connection.give(key, sharing)).await
    }

    pub(crate) async fn beat(&self) -> Result<()> {
        self.while_open(self.connection.beat()).await
    }

    /// Waits until it has ended, or was closed.
    pub(crate) async fn ended(&self) {
        let ended = async {
            self.connection.ended().await;
            Ok(())
        };
        let _ = self.while_open(ended).await;
    }

    /// Uses it for nothing more. The connection goes with the last who has the line.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    async fn while_open<T>(&self, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            done = work => done,
            _ = closed.wait_for(|closed| *closed) => {
                let message = "the connection that carried the lock was given up";
                Err(Error::new(ErrorKind::Indeterminate, message))
            }
        }
    }
}
