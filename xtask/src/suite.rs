//! Running every test and counting them, whichever harness they run on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use crate::failures::Failure;
use crate::programs::Program;
use crate::{cargo, programs, servers};

/// What `cargo xtask test` was told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    quick: bool,
    allow_missing: Vec<String>,
}

impl Options {
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match (*word, word.split_once('=')) {
                ("--quick", _) => options.quick = true,
                ("--allow-missing", _) => {
                    let name = words.next().ok_or("--allow-missing needs a name")?;
                    options.allow_missing.push((*name).to_owned());
                }
                (_, Some(("--allow-missing", name))) => options.allow_missing.push(name.to_owned()),
                _ => return Err(format!("no such option: {word}")),
            }
        }
        Ok(options)
    }
}

/// Runs the suite. Its last line is the tally; a failure when any test failed, or when none ran.
pub(crate) fn run(options: &Options) -> Result<ExitCode, String> {
    servers::provide(&options.allow_missing)?;
    // All features, as the lints and the documentation are built: one set of artefacts serves them all.
    let everything = ["--workspace", "--all-features"];
    let quick: &[&str] = if options.quick { &["--lib", "--bins", "--test", "conformance"] } else { &[] };
    let programs = programs::build(&[&everything, quick].concat())?;
    let missing = options.allow_missing.join(",");
    let prepare = |program: &mut Command| {
        if !missing.is_empty() {
            program.env("LEASEHOLD_ALLOW_MISSING", &missing);
        }
    };
    let (mut tally, mut out, mut failed) = (Tally::default(), std::io::stdout(), Vec::new());
    programs::run(&programs, prepare, &mut out, &mut |program, said, is_well| {
        tally.add(&Tally::told(said, is_well));
        failed.extend(Failure::told(said).into_iter().map(|failure| (program.clone(), failure)));
    });
    if !options.quick {
        let mut documentation = cargo::command();
        documentation.arg("test").args(everything).args(["--doc", "--no-fail-fast"]);
        tally.add(&stream(documentation, &mut out)?);
        tally.add(&stream(simulation(), &mut out)?);
    }
    tally.passed_alone(second_chance(&failed, prepare));
    println!("{tally}");
    Ok(if tally.failed > 0 || tally.passed == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs again, one at a time, what failed while other programs ran beside it, and tells of every failure. How many went
/// well alone: their limits are too narrow for a busy machine, which is to be mended but breaks no promise.
fn second_chance(failed: &[(Program, Failure)], prepare: impl Fn(&mut Command)) -> u64 {
    /// More than this many are no accident.
    const CHANCES: usize = 10;
    let mut unsteady = 0;
    for (program, failure) in failed {
        println!("\nFAILED in {}: {failure}", program.name());
        if failed.len() > CHANCES || !failure.may_be_the_machine() {
            continue;
        }
        let (said, is_well) = program.run_alone(&failure.test, &prepare);
        // A program that does not know the name goes well, too.
        if is_well && Tally::told(&said, is_well).passed == 1 {
            println!("    UNSTEADY: it went well alone");
            unsteady += 1;
        } else {
            Failure::told(&said).iter().for_each(|again| println!("    and alone: {again}"));
        }
    }
    unsteady
}

/// The client runtime under seeded faults: as many schedules as only a release build can run.
fn simulation() -> Command {
    let mut cargo = cargo::command();
    cargo.args(["run", "--release", "--package", "leasehold-simulation", "--", "--check"]);
    cargo
}

/// Passes the output on, line by line, and counts what it reports.
fn stream(mut command: Command, out: &mut impl Write) -> Result<Tally, String> {
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("cannot start cargo: {error}"))?;
    let output = child.stdout.take().ok_or("cargo has no output")?;
    let mut tally = Tally::default();
    // Bytes, not text: a test may print anything.
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(|error| format!("cannot read the tests' output: {error}"))?;
        tally.add(&Tally::of(&String::from_utf8_lossy(&line)));
        // Whoever reads may have gone; the tests are run to their end all the same.
        let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    }
    let status = child.wait().map_err(|error| format!("cannot wait for cargo: {error}"))?;
    Ok(tally.ended(status.success()))
}

/// How the tests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// What one line reports: nothing, unless it is a harness's last line.
    fn of(line: &str) -> Self {
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

    /// What a program reports that has ended.
    fn told(said: &str, is_well: bool) -> Self {
        let mut tally = Self::default();
        for line in said.lines() {
            tally.add(&Self::of(line));
        }
        tally.ended(is_well)
    }

    /// A program that dies without saying which test failed is one failure.
    fn ended(mut self, is_well: bool) -> Self {
        if !is_well && self.failed == 0 {
            eprintln!("xtask: a program failed, and no test says why: counted as one failure");
            self.failed = 1;
        }
        self
    }

    /// So many of those that failed went well in the end.
    fn passed_alone(&mut self, unsteady: u64) {
        self.failed -= unsteady;
        self.passed += unsteady;
    }

    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

    fn shell(script: &str) -> Tally {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        // Not to the real output: whoever runs these tests counts such lines.
        stream(command, &mut std::io::sink()).unwrap()
    }

    #[test]
    fn a_harness_s_last_line_is_counted() {
        let line = "test result: FAILED. 12 passed; 2 failed; 3 ignored; 0 measured; 0 filtered out; finished in 1.52s";
        assert_eq!(Tally::of(line), Tally { passed: 12, failed: 2, skipped: 3 });
    }

    #[test]
    fn other_lines_are_not_counted() {
        assert_eq!(Tally::of("test rule::it ... ok, as in test result: ok. 5 passed"), Tally::default());
        assert_eq!(Tally::of("5 passed; 1 failed"), Tally::default());
    }

    #[test]
    fn the_results_of_all_programs_are_added_up() {
        let tally = shell(
            "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; echo 'test result: ok. 3 passed; 0 failed; 1 ignored'",
        );
        assert_eq!(tally.to_string(), "5 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_run_that_dies_without_a_failed_test_is_a_failure() {
        assert_eq!(
            shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 101").to_string(),
            "2 passed, 1 failed"
        );
    }

    #[test]
    fn output_that_is_not_text_does_not_stop_the_count() {
        assert_eq!(
            shell("printf '\\377\\n'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'").passed,
            1
        );
    }

    #[test]
    fn options_are_understood_and_others_refused() {
        let parsed = Options::parse(&["--quick", "--allow-missing", "a", "--allow-missing=b"]).unwrap();
        assert_eq!(parsed, Options { quick: true, allow_missing: vec!["a".into(), "b".into()] });
        assert!(Options::parse(&["--allow-missing"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
    }
}
