//! Connections that nobody uses at the moment. Those that nobody needs any more are closed: a server has few, and a rush that
//! is over should not keep them from others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mysql_async::Conn;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// How long one is kept that nobody needs.
const KEPT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last one that was used is the next one: the first ones are those that nobody needs.
    connections: Vec<(Conn, Instant)>,
    closing: Option<AbortHandle>,
}

impl Idle {
    pub(crate) fn take(&self) -> Option<Conn> {
        self.lock().connections.pop().map(|(conn, _)| conn)
    }

    pub(crate) fn put(self: &Arc<Self>, conn: Conn) {
        let mut state = self.lock();
        state.connections.push((conn, Instant::now()));
        if state.connections.len() > 1 && state.closing.as_ref().is_none_or(AbortHandle::is_finished) {
            let idle = Arc::downgrade(self);
            let closing = tokio::spawn(async move {
                loop {
                    sleep(KEPT).await;
                    let Some(idle) = idle.upgrade() else { return };
                    if idle.close_some() == Left::One {
                        return;
                    }
                }
            });
            state.closing = Some(closing.abort_handle());
        }
    }

    pub(crate) fn clear(&self) {
        self.lock().connections.clear();
    }

    /// Closes those that nobody needed for a while, all but one.
    fn close_some(&self) -> Left {
        let mut state = self.lock();
        let unused = state.connections.iter().take_while(|(_, since)| since.elapsed() >= KEPT).count();
        let most = state.connections.len().saturating_sub(1);
        state.connections.drain(..unused.min(most));
        if state.connections.len() > 1 {
            return Left::More;
        }
        // Below the lock: who puts one back from here on starts it again.
        state.closing = None;
        Left::One
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below the lock panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many there are after some were closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    One,
    More,
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(closing) = &self.lock().closing {
            closing.abort();
        }
    }
}
