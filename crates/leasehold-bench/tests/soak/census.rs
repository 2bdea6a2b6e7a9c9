//! Counting what this process has open, and waiting for counts to come right.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use crate::Outcome;

/// How long something may take to go away: leases, marks and sweeps included, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often to look.
const LOOK: Duration = Duration::from_millis(20);

/// What this process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    descriptors: usize,
    threads: usize,
}

impl Census {
    pub(crate) fn take() -> Outcome<Self> {
        let count = |folder| Ok::<_, std::io::Error>(std::fs::read_dir(folder)?.count());
        Ok(Self { descriptors: count("/proc/self/fd")?, threads: count("/proc/self/task")? })
    }

    /// How much more this is than `other`. Less is right too: what a warm-up opened may still be closing when a trial
    /// begins, and who is not busy any more may keep fewer connections.
    pub(crate) fn beyond(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.saturating_sub(other.descriptors),
            threads: self.threads.saturating_sub(other.threads),
        }
    }

    /// Waits, outside of any runtime, until this process has no more than this again.
    pub(crate) fn comes_back(self) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let more = Self::take()?.beyond(self);
            if more == Self::default() {
                return Ok(());
            }
            complain("too much in this process", &more, &Self::default(), deadline)?;
            std::thread::sleep(LOOK);
        }
    }
}

/// Looks until it sees `wanted`.
pub(crate) async fn becomes<T, F>(what: &str, wanted: T, mut look: impl FnMut() -> F) -> Outcome<()>
where
    T: Debug + PartialEq,
    F: Future<Output = Outcome<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = look().await?;
        if seen == wanted {
            return Ok(());
        }
        complain(what, &seen, &wanted, deadline)?;
        tokio::time::sleep(LOOK).await;
    }
}

fn complain<T: Debug>(what: &str, seen: &T, wanted: &T, deadline: Instant) -> Outcome<()> {
    if Instant::now() > deadline {
        return Err(format!("{what}: {seen:?} after {PATIENCE:?}, should be {wanted:?}").into());
    }
    Ok(())
}
