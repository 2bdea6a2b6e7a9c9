//! How much to test: the one place that reads `LEASEHOLD_FULL` and `LEASEHOLD_SOAK`.

use std::ffi::OsString;

/// Asks for what the full tier has time for.
const FULL: &str = "LEASEHOLD_FULL";
/// Asks for the long form.
const SOAK: &str = "LEASEHOLD_SOAK";

/// How much of a test that can run for any length of time to run.
///
/// ```
/// use leasehold_conformance::Scale;
/// let cycles = Scale::Full.pick(500, 4_000, 100_000);
/// assert_eq!(cycles, 4_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// What CI has time for.
    Small,
    /// What the full tier has time for: the environment variable `LEASEHOLD_FULL` is set.
    Full,
    /// The long form: the environment variable `LEASEHOLD_SOAK` is set.
    Soak,
}

impl Scale {
    /// The scale that the environment asks for. A variable that is empty or `0` asks for nothing.
    pub fn chosen() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let is_set = |name| variable(name).is_some_and(|value| !value.is_empty() && value != "0");
        match (is_set(SOAK), is_set(FULL)) {
            (true, _) => Self::Soak,
            (false, true) => Self::Full,
            (false, false) => Self::Small,
        }
    }

    /// The value for this scale.
    pub fn pick<T>(self, small: T, full: T, soak: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
            Self::Soak => soak,
        }
    }

    /// Why tests of the full tier are ignored at this scale; `None` when they run.
    pub fn why_full_tier_is_ignored(self) -> Option<String> {
        (self < Self::Full).then(|| format!("part of the full tier: set {FULL}=1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Scale {
        Scale::of(|name| set.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_larger_of_two_requests_counts() {
        assert_eq!(with(&[]), Scale::Small);
        assert_eq!(with(&[(FULL, "1")]), Scale::Full);
        assert_eq!(with(&[(SOAK, "1")]), Scale::Soak);
        assert_eq!(with(&[(FULL, "1"), (SOAK, "1")]), Scale::Soak);
    }

    #[test]
    fn a_variable_that_is_empty_or_zero_asks_for_nothing() {
        assert_eq!(with(&[(FULL, "0"), (SOAK, "")]), Scale::Small);
        assert_eq!(with(&[(FULL, "1"), (SOAK, "0")]), Scale::Full);
    }
}
