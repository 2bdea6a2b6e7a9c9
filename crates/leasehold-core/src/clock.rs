//! Time: a clock that goes on counting while the machine sleeps.
//!
//! `std::time::Instant` stops during suspend on Linux, so a guard timed by it would believe in a lease
//! that ended hours ago. Everything here counts on `CLOCK_BOOTTIME` instead, and waits in short ticks,
//! because the runtime's own timers stop during suspend too.

use std::fmt::Debug;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest a sleeper goes without looking at the clock: how late it can be after a suspend.
pub const TICK: Duration = Duration::from_millis(500);

/// A point on a [`Clock`]; comparable only with others of the same clock.
///
/// ```
/// use leasehold_core::{BootClock, Clock};
/// use std::time::Duration;
/// let start = BootClock.now();
/// let end = start + Duration::from_secs(2);
/// assert_eq!((end.since(start), start.since(end)), (Duration::from_secs(2), Duration::ZERO));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the clock's origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole microseconds since the clock's origin.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Where the runtime reads the time. Tests put [`TestClock`] here.
///
/// ```
/// use leasehold_core::{BootClock, Clock};
/// let (before, after) = (BootClock.now(), BootClock.now());
/// assert!(before <= after);
/// ```
pub trait Clock: Debug + Send + Sync + 'static {
    /// The present; never goes back.
    fn now(&self) -> Moment;
}

/// The real clock: time since boot, suspend included.
///
/// ```
/// use leasehold_core::{BootClock, Clock};
/// assert!(BootClock.now().as_millis() > 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::Boottime;
        // Elsewhere the monotonic clock is what there is; on macOS it goes on during sleep.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Monotonic;
        let t = rustix::time::clock_gettime(id);
        let (seconds, nanos) = (t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs());
        Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}

/// A clock for tests: follows tokio's clock (so it stands still when that is paused), can run fast or
/// slow, and can jump, as the real one does across a suspend.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Loss, Memory, TestClock};
/// # use std::{sync::Arc, time::Duration};
/// let clock = Arc::new(TestClock::new());
/// let store = Memory::with_clock(clock.clone());
/// let client = Client::builder().clock(clock.clone()).connect(store).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// clock.jump(Duration::from_secs(3600)); // the lid was closed for an hour
/// assert!(!guard.is_valid());
/// assert_eq!(guard.lost().await, Loss::Expired);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TestClock {
    origin: tokio::time::Instant,
    start: u64,
    rate_per_mille: u64,
    jumped: AtomicU64,
}

impl TestClock {
    /// A clock that runs at tokio's rate.
    pub fn new() -> Self {
        Self::with_rate(1000)
    }

    /// A clock that runs at `per_mille` thousandths of tokio's rate.
    pub fn with_rate(per_mille: u64) -> Self {
        // Not zero: a deadline may be computed backwards from the start.
        let start = Duration::from_secs(1_000).as_nanos() as u64;
        let origin = tokio::time::Instant::now();
        Self { origin, start, rate_per_mille: per_mille, jumped: AtomicU64::new(0) }
    }

    /// Moves the clock ahead at once, as a suspend does. Sleepers notice within [`TICK`].
    pub fn jump(&self, by: Duration) {
        self.jumped.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        let elapsed = self.origin.elapsed().as_nanos() as u64;
        let scaled = elapsed / 1000 * self.rate_per_mille + elapsed % 1000 * self.rate_per_mille / 1000;
        Moment(self.start + scaled + self.jumped.load(Ordering::SeqCst))
    }
}

/// Sleeps until `when` on `clock`, looking at it at least every [`TICK`].
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use leasehold_core::{BootClock, Clock, sleep_until};
/// let end = BootClock.now() + Duration::from_millis(5);
/// sleep_until(&BootClock, end).await;
/// assert!(BootClock.now() >= end);
/// # }
/// ```
pub async fn sleep_until(clock: &dyn Clock, when: Moment) {
    loop {
        let left = when.since(clock.now());
        if left.is_zero() {
            return;
        }
        // tokio rounds down to its own millisecond: one more keeps a slow clock from spinning.
        tokio::time::sleep(left.min(TICK) + Duration::from_micros(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_clock_moves_forward() {
        let (a, b) = (BootClock.now(), BootClock.now());
        assert!(b >= a);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeper_notices_a_jump_within_a_tick() {
        let clock = TestClock::new();
        let start = tokio::time::Instant::now();
        let until = clock.now() + Duration::from_secs(3600);
        clock.jump(Duration::from_secs(7200));
        sleep_until(&clock, until).await;
        assert!(start.elapsed() <= TICK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_clock_sleeps_longer() {
        let clock = TestClock::with_rate(500);
        let start = tokio::time::Instant::now();
        sleep_until(&clock, clock.now() + Duration::from_secs(1)).await;
        assert!(start.elapsed() >= Duration::from_secs(2));
    }
}
