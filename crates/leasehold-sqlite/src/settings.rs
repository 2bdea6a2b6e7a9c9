//! What a user can choose about a SQLite store.

use std::sync::Arc;

use leasehold_core::local::Network;
use leasehold_core::{BootClock, Clock};

use crate::epoch::Epoch;
use crate::fence::WallClock;

/// How much of a power cut a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// The last commits may be gone after a power cut, which also ended every process that relied on them.
    /// State that outlives processes (latches, resized limits, tails) is synced all the same.
    #[default]
    Normal,
    /// Every commit is on the disk before it is answered.
    Full,
}

/// How a [`Sqlite`](crate::Sqlite) store works; the default is right for most.
///
/// ```
/// use leasehold_sqlite::{Settings, SyncMode};
/// let careful = Settings::new().sync(SyncMode::Full);
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) sync: SyncMode,
    pub(crate) network: Network,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall_clock: Arc<dyn Clock>,
    pub(crate) epoch: Epoch,
}

impl Settings {
    /// The defaults: [`SyncMode::Normal`], no network file systems, and the machine's clocks.
    pub fn new() -> Self {
        Self {
            sync: SyncMode::default(),
            network: Network::default(),
            clock: Arc::new(BootClock),
            wall_clock: Arc::new(WallClock),
            epoch: Epoch::of_this_machine(),
        }
    }

    /// Chooses what a commit survives.
    #[must_use]
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.sync = mode;
        self
    }

    /// Chooses whether the file may be on a file system that other machines share, where SQLite's locks may mean nothing.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Counts leases on this clock: for tests. All processes on one file must share a clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Lets tokens follow this clock, which counts since 1970 and may be set back: for tests.
    #[must_use]
    pub fn wall_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.wall_clock = clock;
        self
    }

    /// Pretends that this process lives in another boot or time namespace: for tests.
    #[must_use]
    pub fn epoch(mut self, name: impl Into<String>) -> Self {
        self.epoch = Epoch::named(name.into());
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}
