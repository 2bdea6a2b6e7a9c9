//! The tests that failed: their names and what they said, for the end of the report.
//!
//! A report of ten thousand tests is read from its end, and some readers are shown nothing else.

/// What a test is called, or says, that saw two holders, or a token that did not rise. Such a test is never run again: to have seen it
/// once is enough.
const SAFETY: [&str; 4] = ["overlap", "two hold", "two run", "token"];

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Its name, as its program takes it.
    pub(crate) test: String,
    /// What it said.
    why: String,
}

impl Failure {
    /// Those of which a program's output tells: each has a block of its own, under a line with its name.
    pub(crate) fn told(said: &str) -> Vec<Self> {
        let mut failures: Vec<Self> = Vec::new();
        let heading = |line: &str| {
            let test = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
            Some(test.strip_suffix(" stdout").unwrap_or(test).to_owned())
        };
        // Until the first heading there is only the list of all tests.
        let mut is_inside = false;
        for line in said.lines() {
            if let Some(test) = heading(line) {
                failures.push(Self { test, why: String::new() });
                is_inside = true;
            } else if line == "failures:" || line.starts_with("test result: ") {
                is_inside = false;
            } else if let (true, Some(last)) = (is_inside, failures.last_mut()) {
                last.why.push_str(line);
                last.why.push('\n');
            }
        }
        failures
    }

    /// Whether it may have failed for want of time alone, on a machine that did other things beside it.
    pub(crate) fn may_be_the_machine(&self) -> bool {
        let told = format!("{} {}", self.test, self.why).to_lowercase();
        !SAFETY.iter().any(|word| told.contains(word))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LINES: usize = 8;
        write!(f, "{}", self.test)?;
        let said = self.why.lines().take_while(|line| *line != "stack backtrace:");
        let said = said.filter(|line| !line.trim().is_empty() && !line.starts_with("note: run with"));
        said.take(LINES).try_for_each(|line| write!(f, "\n    {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBTEST: &str = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n\nthread 'a::b' (7) panicked at x.rs:1:2:\n\
        the waiters are served: Elapsed(())\nnote: run with `RUST_BACKTRACE=1`\n\n\nfailures:\n    a::b\n\n\
        test result: FAILED. 0 passed; 1 failed\n";
    const MIMIC: &str = "failures:\n\n---- mutex::one ----\nan overlap of two holds\n\n---- fair::two ----\nstill waiting\n\n\
        failures:\n    mutex::one\n    fair::two\n";

    #[test]
    fn every_failed_test_is_found_with_its_reason() {
        let [failure] = Failure::told(LIBTEST).try_into().unwrap();
        let shown =
            "a::b\n    thread 'a::b' (7) panicked at x.rs:1:2:\n    the waiters are served: Elapsed(())";
        assert_eq!(failure.to_string(), shown);
        let names: Vec<_> = Failure::told(MIMIC).into_iter().map(|failure| failure.test).collect();
        assert_eq!(names, ["mutex::one", "fair::two"]);
    }

    #[test]
    fn what_went_well_has_no_failures() {
        assert!(Failure::told("test a ... ok\n\ntest result: ok. 1 passed; 0 failed\n").is_empty());
    }

    #[test]
    fn two_holders_are_not_blamed_on_the_machine() {
        let blamed: Vec<_> = Failure::told(MIMIC).iter().map(Failure::may_be_the_machine).collect();
        assert_eq!(blamed, [false, true]);
    }
}
