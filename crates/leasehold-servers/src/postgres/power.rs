//! Servers on a disk whose power can be cut.

use super::Postgres;
use crate::place::Place;
use crate::power::PowerDisk;

/// The size of such a disk.
const MEGABYTES: u32 = 300;

impl Postgres {
    /// A server with these settings, on a disk whose power can be cut: see [`cut_power`](Self::cut_power).
    ///
    /// # Errors
    /// Why this machine has no such disk, for the list of ignored tests.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    pub fn on_a_power_disk(settings: &[&str]) -> Result<Self, String> {
        let place = Place::Powered(PowerDisk::of(MEGABYTES)?);
        place.initdb();
        place.power().sync();
        Ok(Self::on(place, settings))
    }

    /// Syncs what it has, for a server that does not sync by itself.
    ///
    /// # Panics
    /// When it is not on a disk whose power can be cut.
    pub fn sync(&self) {
        self.sql("CHECKPOINT");
        self.place.power().sync();
    }

    /// Cuts its power, and starts it again with what was synced, on the same port.
    ///
    /// # Panics
    /// When it is not on such a disk, or does not start.
    pub fn cut_power(&mut self) {
        self.place.power().cut();
        self.kill();
        self.place.power().restore();
        self.start_again();
    }
}
