//! How long to wait before trying again.

use std::time::Duration;

/// The pause after so many failures in a row, counted from zero: `first`, then twice as long each time up to `longest`, all of
/// them give or take a random half, so that a crowd that failed together does not come back together.
///
/// ```
/// use leasehold_core::back_off;
/// use std::time::Duration;
/// let pause = |failed| back_off(failed, Duration::from_millis(10), Duration::from_secs(1));
/// assert!(pause(0) < Duration::from_millis(16) && pause(1) < Duration::from_millis(31));
/// assert!(pause(100) >= Duration::from_millis(500));
/// ```
pub fn back_off(failed: u32, first: Duration, longest: Duration) -> Duration {
    first.saturating_mul(1 << failed.min(20)).min(longest).mul_f64(0.5 + fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_give_or_take_a_half() {
        let millis = Duration::from_millis;
        for (failed, middle) in [(0, 10), (1, 20), (2, 40), (3, 40), (u32::MAX, 40)] {
            let pause = back_off(failed, millis(10), millis(40));
            assert!(pause >= millis(middle) / 2 && pause <= millis(middle) * 3 / 2, "{failed}: {pause:?}");
        }
    }
}
