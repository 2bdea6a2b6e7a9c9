//! Who makes a call: a task or, outside of tasks, a thread.

use std::thread::{self, ThreadId};

use tokio::task;

/// The task that runs now, or the thread if it runs none: `block_on` and the blocking API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Task(task::Id),
    Thread(ThreadId),
}

impl Caller {
    pub(crate) fn current() -> Self {
        task::try_id().map_or_else(|| Self::Thread(thread::current().id()), Self::Task)
    }
}
