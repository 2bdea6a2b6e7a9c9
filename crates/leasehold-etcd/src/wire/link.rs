//! The members that a URL names: one connection at a time, to another member when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind, Result};
use tokio::sync::Mutex;

use super::connection::Connection;
use super::fault::Fault;
use crate::url::Target;

#[derive(Debug)]
pub(crate) struct Link {
    target: Target,
    current: Mutex<Option<Arc<Connection>>>,
    /// Which member is tried first.
    first: AtomicUsize,
}

impl Link {
    pub(crate) fn new(target: Target) -> Self {
        // Clients spread over the members; each stays where it is for as long as that works.
        let first = AtomicUsize::new(fastrand::usize(..target.members.len().max(1)));
        Self { target, current: Mutex::default(), first }
    }

    /// How long a call may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.target.timeout
    }

    /// The connection, made anew if need be.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_retired()) {
            return Ok(connection.clone());
        }
        *current = None;
        let members = &self.target.members;
        let mut failure = Error::new(ErrorKind::Invalid, "no host is named");
        for _ in 0..members.len() {
            let at = self.first.load(Ordering::Relaxed) % members.len();
            match Connection::dial(&self.target, &members[at]).await {
                Ok(connection) => return Ok(current.insert(connection).clone()),
                Err(Fault::Final(error)) => return Err(error),
                Err(fault) => {
                    self.first.store(at + 1, Ordering::Relaxed);
                    failure = fault.into();
                }
            }
        }
        // Nothing was sent that could have happened: logging in does not count.
        Err(match failure.kind() {
            ErrorKind::Indeterminate => {
                Error::new(ErrorKind::Unavailable, "no member could be reached").because(failure)
            }
            _ => failure,
        })
    }

    /// What a fault means for its connection: after most of them another member is tried.
    pub(crate) fn note(&self, connection: &Connection, fault: &Fault) {
        if matches!(fault, Fault::Member(_)) && !connection.is_retired() {
            connection.retire();
            self.first.fetch_add(1, Ordering::Relaxed);
        } else if matches!(fault, Fault::LoggedOut) {
            connection.retire();
        }
    }
}
