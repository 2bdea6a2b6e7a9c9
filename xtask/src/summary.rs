//! The results of full runs, one line per test program, in `docs/test-summary.txt`.
//!
//! The file is committed. A full run of some stores replaces only their lines, so each line names the commit that was
//! tested. Lines are written as programs end, which lets `--resume` continue an interrupted run.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::cargo;
use crate::programs::Program;
use crate::tally::Tally;

/// The committed summary.
pub(crate) const FILE: &str = "docs/test-summary.txt";

/// Follows the commit if the tree had changes that were not committed.
const CHANGES: &str = "+changes";

/// How one program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) program: String,
    pub(crate) tally: Tally,
    pub(crate) seconds: u64,
    pub(crate) commit: String,
}

impl Line {
    /// Whether the program passed. Two trees with changes look the same here but may differ, so their results never
    /// count.
    pub(crate) fn has_passed(&self) -> bool {
        self.tally.failed == 0 && !self.commit.ends_with(CHANGES)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let commit = words.pop()?.to_owned();
        let mut number = || words.pop()?.parse::<u64>().ok();
        let (seconds, skipped, failed, passed) = (number()?, number()?, number()?, number()?);
        let tally = Tally { passed, failed, skipped };
        (!words.is_empty()).then(|| Self { program: words.join(" "), tally, seconds, commit })
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { passed, failed, skipped } = self.tally;
        let Self { program, seconds, commit, .. } = self;
        write!(f, "{program:<42} {passed:>7} {failed:>7} {skipped:>8} {seconds:>8}  {commit}")
    }
}

/// The lines of a summary, sorted by program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary(pub(crate) Vec<Line>);

impl Summary {
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(Line::parse).collect())
    }

    /// The committed summary; empty if there is none.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string(cargo::root().join(FILE)).unwrap_or_default())
    }

    pub(crate) fn get(&self, program: &str) -> Option<&Line> {
        self.0.iter().find(|line| line.program == program)
    }

    /// Removes the programs that already passed, at this commit if one is given, and returns their counts.
    pub(crate) fn resume(&self, programs: &mut Vec<Program>, commit: Option<&str>) -> Tally {
        let mut kept = Tally::default();
        let is_kept = |line: &&Line| line.has_passed() && commit.is_none_or(|commit| line.commit == commit);
        programs.retain(|program| {
            let line = self.get(&program.name()).filter(is_kept);
            line.inspect(|line| kept.add(&line.tally)).is_none()
        });
        kept
    }

    /// Replaces the line of a program.
    pub(crate) fn record(&mut self, line: Line) {
        self.0.retain(|other| other.program != line.program);
        let place = self.0.partition_point(|other| other.program < line.program);
        self.0.insert(place, line);
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        let mut total = Tally::default();
        self.0.iter().for_each(|line| total.add(&line.tally));
        let mut text = String::from(
            "# The last results of each program under `cargo xtask test --full`, which writes this file. Commit it.\n",
        );
        let _ = writeln!(text, "# {total}");
        let _ = writeln!(
            text,
            "# {:<40} {:>7} {:>7} {:>8} {:>8}  commit",
            "program", "passed", "failed", "skipped", "seconds"
        );
        self.0.iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
        fs::write(cargo::root().join(FILE), text).map_err(|error| format!("cannot write {FILE}: {error}"))
    }
}

/// The commit that is tested, with a mark if the tree has changes.
pub(crate) fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").current_dir(cargo::root()).args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    match git(&["status", "--porcelain"]) {
        Some(changes) if is_clean(&changes) => commit,
        _ => format!("{commit}{CHANGES}"),
    }
}

/// Whether nothing but the summary has changed, by what `git status --porcelain` prints. A new file counts: it may be a
/// test.
fn is_clean(changes: &str) -> bool {
    changes.lines().all(|line| line.ends_with(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, commit: &str) -> Line {
        let tally = Tally { passed: 468, failed: 0, skipped: 12 };
        Line { program: program.into(), tally, seconds: 95, commit: commit.into() }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = line("leasehold-redis conformance", "abc");
        let text = format!("# 468 passed\n# program 1 2 3 4 abc\n{line}\nnot a line\n");
        assert_eq!(Summary::parse(&text).0, [line]);
    }

    #[test]
    fn a_partial_run_replaces_only_its_own_lines() {
        let mut summary = Summary::default();
        for (program, commit) in [("b x", "old"), ("a x", "old"), ("b x", "new")] {
            summary.record(line(program, commit));
        }
        assert_eq!(summary.0, [line("a x", "old"), line("b x", "new")]);
    }

    /// The counts that a resumed run starts with, and the programs that it still runs.
    fn resumed(line: Line, commit: &str) -> (Tally, usize) {
        let mut programs = vec![Program::executable("a"), Program::executable("b")];
        let kept = Summary(vec![line]).resume(&mut programs, Some(commit));
        (kept, programs.len())
    }

    #[test]
    fn run_of_the_failed_programs_keeps_those_that_passed_at_another_commit() {
        let mut failed = line("test b", "old");
        failed.tally.failed = 1;
        let summary = Summary(vec![line("test a", "old"), failed]);
        let mut programs = ["a", "b", "c"].map(Program::executable).to_vec();
        assert_eq!(summary.resume(&mut programs, None), line("test a", "old").tally);
        assert_eq!(programs, ["b", "c"].map(Program::executable));
    }

    #[test]
    fn resumed_run_keeps_the_counts_of_programs_that_passed() {
        let passed = line("test a", "abc");
        assert_eq!(resumed(passed.clone(), "abc"), (passed.tally, 1));
    }

    #[test]
    fn failures_and_other_commits_run_again() {
        let mut failed = line("test a", "abc");
        failed.tally.failed = 1;
        assert_eq!(resumed(failed, "abc"), (Tally::default(), 2));
        assert_eq!(resumed(line("test a", "abc"), "def"), (Tally::default(), 2));
    }

    #[test]
    fn results_of_a_tree_with_changes_are_never_kept() {
        assert_eq!(resumed(line("test a", "abc+changes"), "abc+changes"), (Tally::default(), 2));
    }

    #[test]
    fn only_the_summary_itself_may_change() {
        assert!(is_clean("") && is_clean(" M docs/test-summary.txt") && is_clean("?? docs/test-summary.txt"));
        assert!(!is_clean(" M docs/test-summary.txt\n?? crates/a/tests/new.rs"));
    }
}
