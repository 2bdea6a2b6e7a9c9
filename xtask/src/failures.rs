//! The tests that failed: their names and messages, for the end of the report.
//!
//! A report of ten thousand tests is read from its end, and some readers are shown nothing else.

/// Words in the name or the message of a test that saw two holders, or a token that did not rise. Such a test is
/// never rerun: once is enough.
const SAFETY: [&str; 4] = ["overlap", "two hold", "two run", "token"];

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Its name, as its program takes it.
    pub(crate) test: String,
    /// Its message.
    message: String,
}

impl Failure {
    /// Finds the failures in a program's output: each has a block of its own, under a line with its name.
    pub(crate) fn find(output: &str) -> Vec<Self> {
        let mut failures: Vec<Self> = Vec::new();
        let heading = |line: &str| {
            let test = line.strip_prefix("---- ")?.strip_suffix(" ----")?;
            Some(test.strip_suffix(" stdout").unwrap_or(test).to_owned())
        };
        // Until the first heading there is only the list of all tests.
        let mut is_inside = false;
        for line in output.lines() {
            if let Some(test) = heading(line) {
                failures.push(Self { test, message: String::new() });
                is_inside = true;
            } else if line == "failures:" || line.starts_with("test result: ") {
                is_inside = false;
            } else if let (true, Some(last)) = (is_inside, failures.last_mut()) {
                last.message.push_str(line);
                last.message.push('\n');
            }
        }
        failures
    }

    /// Whether it saw what must never happen, however busy the machine was.
    pub(crate) fn is_safety_violation(&self) -> bool {
        let text = format!("{} {}", self.test, self.message).to_lowercase();
        SAFETY.iter().any(|word| text.contains(word))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LINES: usize = 8;
        write!(f, "{}", self.test)?;
        let said = self.message.lines().take_while(|line| *line != "stack backtrace:");
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
    fn every_failed_test_is_found_with_its_message() {
        let [failure] = Failure::find(LIBTEST).try_into().unwrap();
        let shown =
            "a::b\n    thread 'a::b' (7) panicked at x.rs:1:2:\n    the waiters are served: Elapsed(())";
        assert_eq!(failure.to_string(), shown);
        let names: Vec<_> = Failure::find(MIMIC).into_iter().map(|failure| failure.test).collect();
        assert_eq!(names, ["mutex::one", "fair::two"]);
    }

    #[test]
    fn a_successful_run_has_no_failures() {
        assert!(Failure::find("test a ... ok\n\ntest result: ok. 1 passed; 0 failed\n").is_empty());
    }

    #[test]
    fn two_holders_are_a_safety_violation() {
        let found: Vec<_> = Failure::find(MIMIC).iter().map(Failure::is_safety_violation).collect();
        assert_eq!(found, [true, false]);
    }
}
