//! A process that takes a lock to be killed with it: for [`Fixture::kill_holder`](crate::Fixture::kill_holder).
//!
//! The test program starts itself again; [`victim`] at the top of its `main` sees that and plays the part.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Client, Error, ErrorKind, Key, Options, Result, Store};
use serde::{Deserialize, Serialize};

use crate::history::{believed_until, now};

/// Tells a process that it is the victim, and what to do.
const PART: &str = "LEASEHOLD_CONFORMANCE_VICTIM";

#[derive(Debug, Serialize, Deserialize)]
struct Part {
    place: String,
    key: String,
    lease_ms: u64,
}

/// What the victim says when it holds. Times are in microseconds since boot, which all processes share.
#[derive(Debug, Serialize, Deserialize)]
struct Holding {
    token: u64,
    acquired_at: u64,
    deadline: u64,
}

/// A hold of a process that was killed with it. Times are in microseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// The token of the hold.
    pub token: u64,
    /// When the process learned that it holds.
    pub acquired_at: u64,
    /// Until when the process would have relied on the hold without a renewal.
    pub deadline: u64,
    /// A moment at which the process was still alive, just before it was killed.
    pub killed_at: u64,
}

/// When this process was started by [`kill_one_that_holds`]: takes the lock and waits to be killed. `None`, at
/// once, in every other process. `connect` gets the place that `kill_one_that_holds` was given.
pub fn victim(connect: impl FnOnce(&str) -> Result<Arc<dyn Store>>) -> Option<ExitCode> {
    let part: Part = serde_json::from_str(&std::env::var(PART).ok()?).ok()?;
    let held = tokio::runtime::Runtime::new().map_err(io).and_then(|runtime| {
        runtime.block_on(async {
            let client = Client::new(connect(&part.place)?).await?;
            let options = Options::new().lease(Duration::from_millis(part.lease_ms)).label("victim");
            let guard = client.mutex(&part.key).with(options).acquire().await?;
            let (token, deadline) = (guard.token(), believed_until(&guard).unwrap_or_default());
            let holding = Holding { token, acquired_at: now(), deadline };
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&holding).map_err(io)?).map_err(io)?;
            std::future::pending::<Result<()>>().await
        })
    });
    let _ = writeln!(std::io::stderr(), "the victim could not take the lock: {held:?}");
    Some(ExitCode::FAILURE)
}

/// Starts this program again as a [`victim`] that takes `key` at `place`, and kills it as soon as it holds. Answers what
/// the process held.
///
/// # Errors
/// When the process cannot be started or does not come to hold.
pub async fn kill_one_that_holds(place: &str, key: &Key, lease: Duration) -> Result<Killed> {
    let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let part = Part { place: place.to_owned(), key: key.as_str().to_owned(), lease_ms };
    let part = serde_json::to_string(&part).map_err(io)?;
    let kill = move || {
        let program = std::env::current_exe().map_err(io)?;
        let child = Command::new(program).env(PART, part).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = KilledOnDrop(child.map_err(io)?);
        let out = child.0.stdout.take().ok_or_else(|| io("no pipe"))?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map_err(io)?;
        let holding = serde_json::from_str(&line).map_err(|_| io(format!("the victim said {line:?}")))?;
        let (Holding { token, acquired_at, deadline }, killed_at) = (holding, now());
        drop(child);
        Ok(Killed { token, acquired_at, deadline, killed_at })
    };
    tokio::task::spawn_blocking(kill).await.map_err(io)?
}

/// A process that does not outlive this value.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn io(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the process that was to be killed failed: {error}"))
}
