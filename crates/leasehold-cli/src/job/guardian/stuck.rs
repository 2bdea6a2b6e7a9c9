//! A runner that is stopped inside a write of a SQLite file, and blocks the other clients of the file.

use std::time::Duration;

use leasehold::{Moment, TICK};
use rustix::process::{Pid, Signal, getppid, kill_process};

use crate::job::locks::holds_write_lock;
use crate::job::table;
use crate::store::StoreKind;

/// A runner that has been stopped inside a write for this long after its deadline is killed.
const STUCK: Duration = Duration::from_millis(300);
/// How often the guardian looks at such a runner.
const PROBE: Duration = Duration::from_millis(30);

/// The guardian's view of the runner.
pub(super) struct Runner {
    pid: Option<Pid>,
    store: StoreKind,
    stuck_since: Option<Moment>,
}

impl Runner {
    /// Our parent.
    pub(super) fn of_this_guardian(store: StoreKind) -> Self {
        Self { pid: getppid(), store, stuck_since: None }
    }

    /// The runner has reported in time.
    pub(super) fn is_in_time(&mut self) {
        self.stuck_since = None;
    }

    /// Kills the runner if it is stuck. Returns how long the guardian may wait before it calls this again.
    pub(super) fn kill_if_stuck(&mut self, now: Moment) -> Duration {
        // If the runner is no longer our parent, its number may belong to another process.
        let pid = self.pid.filter(|pid| getppid() == Some(*pid));
        let Some(pid) = pid.filter(|pid| self.is_stuck(*pid)) else {
            self.stuck_since = None;
            return TICK;
        };
        let since = *self.stuck_since.get_or_insert(now);
        if now.since(since) >= STUCK {
            let _ = kill_process(pid, Signal::KILL);
        }
        PROBE
    }

    /// A runner that waits for a slow disk is not stuck. If the system does not tell, the guardian assumes the worse: killing
    /// a suspended runner costs less than a blocked file.
    fn is_stuck(&self, pid: Pid) -> bool {
        self.store == StoreKind::Sqlite
            && table::is_stopped(pid).unwrap_or(true)
            && holds_write_lock(pid).unwrap_or(true)
    }
}
