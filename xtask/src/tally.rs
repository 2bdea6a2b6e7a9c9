//! Counting tests, whichever harness they run on.

use std::fmt;

/// How tests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// What a program's output reports. A program that dies without naming a failed test counts as one failure.
    pub(crate) fn of_output(output: &str, is_success: bool) -> Self {
        let mut tally = Self::default();
        output.lines().for_each(|line| tally.add(&Self::of_line(line)));
        if !is_success && tally.failed == 0 {
            tally.failed = 1;
        }
        tally
    }

    /// What one line reports: nothing, unless it is the last line of a harness.
    fn of_line(line: &str) -> Self {
        let mut tally = Self::default();
        let Some(result) = line.strip_prefix("test result: ") else { return tally };
        for part in result.split(['.', ';']) {
            match part.trim().split_once(' ').map(|(n, what)| (n.parse(), what)) {
                Some((Ok(n), "passed")) => tally.passed = n,
                Some((Ok(n), "failed")) => tally.failed = n,
                Some((Ok(n), "ignored")) => tally.skipped = n,
                _ => {}
            }
        }
        tally
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_each_harness_is_counted() {
        let output = "test a ... ok, as in test result: ok. 5 passed\n\
            test result: FAILED. 12 passed; 2 failed; 3 ignored; 0 measured; 0 filtered out; finished in 1.52s\n\
            test result: ok. 3 passed; 0 failed; 1 ignored\n5 passed; 1 failed\n";
        let tally = Tally::of_output(output, false);
        assert_eq!(tally, Tally { passed: 15, failed: 2, skipped: 4 });
        assert_eq!(tally.to_string(), "15 passed, 2 failed, 4 skipped");
    }

    #[test]
    fn a_program_that_dies_without_a_failed_test_is_a_failure() {
        let tally = Tally::of_output("test result: ok. 2 passed; 0 failed; 0 ignored\n", false);
        assert_eq!(tally.to_string(), "2 passed, 1 failed");
    }
}
