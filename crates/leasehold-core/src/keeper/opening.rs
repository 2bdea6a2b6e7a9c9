//! Opening the store: before anything is asked of it, and once for all tasks that need it.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Keeper, RETRY_FIRST, RETRY_LONGEST, Tries, closed, runtime_ended, wakes};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::pause::back_off;

/// The least that an attempt may take when the limit of an operation, or of a connect, is nearly over.
const SHORTEST: Duration = Duration::from_millis(100);
const ONE_ATTEMPT: Duration = Duration::from_secs(1);

impl Keeper {
    /// Whether the store is connected, and its settings are checked.
    pub(crate) fn is_ready(&self) -> bool {
        self.opened.initialized()
    }

    /// Opens the store unless it is open, repeating what fails until `until` or for as long as one call may take.
    ///
    /// A claim is checked against what the store promises, and that depends on the settings which opening reads. So a
    /// request that makes a claim calls this first.
    pub(crate) async fn ready(&self, until: Option<Moment>) -> Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        self.check_open()?;
        let patience = self.clock.now() + self.call_timeout;
        let until = until.map_or(patience, |until| until.min(patience));
        let mut tries = Tries::new(until);
        loop {
            let left = until.since(self.clock.now());
            match self.open_within(left.max(SHORTEST)).await {
                Ok(()) => return Ok(()),
                Err(error) => tries.pause_after(error, &*self.clock).await?,
            }
        }
    }

    /// Opens the store. If its servers answer, but none can serve at the moment, tries again until `limit` has passed.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<()> {
        let until = self.clock.now() + limit;
        let (mut failed, mut has_answered) = (0, false);
        loop {
            let left = until.since(self.clock.now());
            let patience = if limit.is_zero() { self.call_timeout } else { left.max(ONE_ATTEMPT) };
            let error = match self.open_within(patience).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // Servers that have answered once may restart before one of them can serve.
            let may_recover = (has_answered || error.is_transient()) && error.is_retryable();
            let pause = back_off(failed, RETRY_FIRST, RETRY_LONGEST);
            if !may_recover || self.clock.now() + pause >= until {
                return Err(error);
            }
            if !std::mem::replace(&mut has_answered, true) {
                tracing::warn!(%error, "waiting for the store");
            }
            failed += 1;
            tokio::time::sleep(pause).await;
        }
    }

    /// Opens the store unless it is open. One attempt, which tasks that need it at the same time share.
    pub(crate) async fn open_within(&self, limit: Duration) -> Result<()> {
        let limit = limit.min(self.call_timeout);
        let opened = timeout(limit, self.opened.get_or_try_init(|| self.open())).await;
        let opened = opened.unwrap_or_else(|_| {
            let message =
                format!("no answer within {limit:.1?}: check that the store runs and can be reached");
            Err(Error::new(ErrorKind::Unavailable, message))
        });
        // Opening changes no lock, so there is nothing to be in doubt about.
        opened.map(drop).map_err(|error| error.at(self.store.info().name).nothing_happened())
    }

    /// On the runtime that carries the task: a store's listener must live as long as that.
    async fn open(&self) -> Result<()> {
        let keeper = self.me.upgrade().ok_or_else(closed)?;
        let open = async move { keeper.store.open(keeper.inbox, wakes::sink(&keeper)).await };
        let mut opening = Opening(self.runtime.spawn(open));
        (&mut opening.0).await.unwrap_or_else(|_| Err(runtime_ended()))
    }
}

/// An attempt. It ends when the task that started it gives up, and the next task starts another.
struct Opening(JoinHandle<Result<()>>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.abort();
    }
}
