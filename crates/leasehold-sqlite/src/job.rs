//! A request on its way to the thread and back.

use std::fmt;

use leasehold_core::{Error, Result};
use tokio::sync::oneshot;

use crate::step::{Mode, Step};

/// What the thread knows of a request.
pub(crate) trait Job: fmt::Debug + Send {
    /// Whether anybody still waits for it. If not, it is never begun.
    fn is_wanted(&self) -> bool;
    /// What it needs.
    fn mode(&self) -> Mode;
    /// Does it, as part of a step that may yet be undone and repeated.
    fn run(&mut self, step: &mut Step<'_>) -> Result<()>;
    /// Hands over what the last run found, after its commit.
    fn answer(self: Box<Self>);
    /// Says why nothing came of it.
    fn fail(self: Box<Self>, error: Error);
}

/// A request and the way back to who made it.
pub(crate) struct Request<T, F> {
    mode: Mode,
    body: F,
    found: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Request<T, F> {
    pub(crate) fn new(mode: Mode, body: F, reply: oneshot::Sender<Result<T>>) -> Self {
        Self { mode, body, found: None, reply }
    }
}

impl<T, F> fmt::Debug for Request<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

impl<T, F> Job for Request<T, F>
where
    T: Send,
    F: Fn(&mut Step<'_>) -> Result<T> + Send,
{
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn run(&mut self, step: &mut Step<'_>) -> Result<()> {
        self.found = Some((self.body)(step)?);
        Ok(())
    }

    fn answer(self: Box<Self>) {
        if let Some(found) = self.found {
            // Who does not wait any more finds out by asking again.
            let _ = self.reply.send(Ok(found));
        }
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}
