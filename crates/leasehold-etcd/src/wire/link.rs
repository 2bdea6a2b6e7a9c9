//! The members that a URL names: one connection at a time, to another member when it fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::url::{Login, Unreached};
use leasehold_core::{Error, ErrorKind, Result};

use super::connection::Connection;
use super::fault::Fault;
use crate::url::Target;

#[derive(Debug)]
pub(crate) struct Link {
    target: Target,
    current: Mutex<Option<Arc<Connection>>>,
    /// One task at a time makes a connection.
    dialling: tokio::sync::Mutex<()>,
    /// Which member is tried first.
    first: AtomicUsize,
}

impl Link {
    pub(crate) fn new(target: Target) -> Self {
        // Clients spread over the members; each stays where it is for as long as that works.
        let first = AtomicUsize::new(fastrand::usize(..target.members.len().max(1)));
        Self { target, current: Mutex::default(), dialling: tokio::sync::Mutex::default(), first }
    }

    /// How long a call may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.target.timeout
    }

    /// Who we are to the cluster.
    pub(crate) fn login(&self) -> &Login {
        &self.target.login
    }

    /// The connection, made anew if need be: on a task of its own, because others wait for it too, and whoever asked first
    /// may not be polled any more.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let link = self.clone();
        let ended = |_| Error::new(ErrorKind::Unavailable, "the runtime has ended: connect again");
        tokio::spawn(async move { link.dial().await }).await.unwrap_or_else(|e| Err(ended(e)))
    }

    fn current(&self) -> Option<Arc<Connection>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|connection| !connection.is_retired())
    }

    async fn dial(&self) -> Result<Arc<Connection>> {
        let _turn = self.dialling.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let members = &self.target.members;
        let (mut unreached, mut is_transient, mut refusal) = (Unreached::default(), false, None);
        for _ in 0..members.len() {
            let at = self.first.load(Ordering::Relaxed) % members.len();
            match Connection::dial(&self.target, &members[at]).await {
                Ok(connection) => {
                    let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                    return Ok(current.insert(connection).clone());
                }
                Err(Fault::Final(error)) => return Err(error),
                Err(fault) => {
                    self.first.store(at + 1, Ordering::Relaxed);
                    let error = Error::from(fault);
                    is_transient |= error.is_transient();
                    match error.is_retryable() {
                        true => unreached.add(&members[at], error),
                        false => refusal = Some(error),
                    }
                }
            }
        }
        if let Some(error) = refusal {
            return Err(error);
        }
        // Nothing was sent that could have happened: logging in does not count.
        Err(unreached.into_error("etcd").transient_if(is_transient))
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
