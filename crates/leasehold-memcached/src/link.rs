//! One connection at a time, made when it is needed. Every call ends in time.

mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{BootClock, Clock, Error, ErrorKind, Result};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::url::Target;
pub(crate) use wire::{Answers, Wire};

/// How long the server's time is believed, in milliseconds.
const LOOKS_EVERY: u64 = 5_000;

/// The way to a server.
#[derive(Debug)]
pub(crate) struct Link {
    target: Target,
    current: Mutex<Option<Arc<Wire>>>,
    generations: AtomicU64,
}

impl Link {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, current: Mutex::default(), generations: AtomicU64::new(1) }
    }

    /// The connection, with the server's time known.
    pub(crate) async fn wire(&self) -> Result<Arc<Wire>> {
        let mut current = self.current.lock().await;
        let wire = match current.as_ref().filter(|wire| !wire.is_broken()) {
            Some(wire) => wire.clone(),
            None => {
                let wire = self.connect().await?;
                wire.measure().await?;
                current.insert(wire).clone()
            }
        };
        if !knows_the_time(&wire) {
            wire.look().await?;
        }
        Ok(wire)
    }

    /// The connection, if it can be used without asking the server for anything before.
    pub(crate) fn at_hand(&self) -> Option<Arc<Wire>> {
        let current = self.current.try_lock().ok()?;
        current.as_ref().filter(|wire| !wire.is_broken() && knows_the_time(wire)).cloned()
    }

    /// The connection that a record was read on, if it is still there. On another one the record's version means
    /// nothing: a server that was started again counts from one.
    pub(crate) async fn same(&self, generation: u64) -> Option<Arc<Wire>> {
        let current = self.current.lock().await;
        current.as_ref().filter(|wire| wire.generation() == generation && !wire.is_broken()).cloned()
    }

    async fn connect(&self) -> Result<Arc<Wire>> {
        let address = &self.target.address;
        let unreachable = |why: &str| {
            let message = format!("cannot reach {address}: {why}: check that memcached runs there");
            Error::new(ErrorKind::Unavailable, message).at("memcached")
        };
        let connecting = TcpStream::connect((address.host.as_str(), address.port));
        let stream = match timeout(self.target.timeout, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(cause)) => return Err(unreachable("no connection").because(cause)),
            Err(_) => return Err(unreachable("no answer in time")),
        };
        // Requests are small, and their answers are waited for.
        let _ = stream.set_nodelay(true);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(server = %address, "connected");
        Ok(Arc::new(Wire::new(stream, generation, self.target.timeout)))
    }
}

fn knows_the_time(wire: &Wire) -> bool {
    wire.looked_at().is_some_and(|at| BootClock.now().as_millis() <= at + LOOKS_EVERY)
}
