//! The summary of the full runs is complete: every test program is in it, and none failed.

use super::File;
use crate::programs::Program;
use crate::summary::{self, Summary};
use crate::tiers::Tier;
use crate::versions;

/// Unit tests may be missing from the summary, because nothing but cargo knows which packages have them.
pub(super) fn the_full_run_covers_every_program(files: &[File]) -> Vec<String> {
    let Some(file) = files.iter().find(|file| file.path == summary::FILE) else {
        return vec![format!("{} is missing: run `cargo xtask test --full` and commit it", summary::FILE)];
    };
    let summary = Summary::parse(&file.text);
    let missing = expected(files).into_iter().filter(|program| summary.get(program).is_none());
    let missing = missing.map(|program| format!("no line for `{program}`: run `cargo xtask test --full`"));
    let failed = summary.0.iter().filter(|line| line.tally.failed > 0);
    let failed = failed.map(|line| format!("`{}` failed: fix it and run it again", line.program));
    missing.chain(failed).map(|what| file.complain(None, what)).collect()
}

/// The programs that a full run of everything has, except for unit tests.
fn expected(files: &[File]) -> Vec<String> {
    let mut programs: Vec<_> = files.iter().filter_map(|file| test_program(&file.path)).collect();
    programs.extend([Program::documentation(), Program::simulation(Tier::Full)].map(|p| p.name()));
    programs.extend(versions::programs());
    programs
}

/// The package and the test program whose main file this is.
fn test_program(path: &str) -> Option<String> {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["crates", package, "tests", file] => Some(format!("{package} {}", file.strip_suffix(".rs")?)),
        ["crates", package, "tests", program, "main.rs"] => Some(format!("{package} {program}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Complaints about a repository with these test programs, whose summary has all of its lines but `without`.
    fn complaints(without: &str, failed: u64) -> Vec<String> {
        let file = |path: &str, text: String| File { path: path.to_owned(), text };
        let mut files = vec![
            file("crates/a/tests/access.rs", String::new()),
            file("crates/a/tests/cuts/main.rs", String::new()),
            file("crates/a/tests/cuts/leader.rs", String::new()),
        ];
        let programs = expected(&files).into_iter().filter(|program| program != without);
        let lines = programs.map(|program| format!("{program} 3 {failed} 0 7 abc\n"));
        let summary = file(summary::FILE, lines.collect());
        files.push(summary);
        the_full_run_covers_every_program(&files)
    }

    #[test]
    fn complete_summary_without_failures_is_in_order() {
        assert_eq!(complaints("", 0), [""; 0]);
    }

    #[test]
    fn missing_summary_is_reported() {
        let [complaint] = the_full_run_covers_every_program(&[]).try_into().unwrap();
        assert!(complaint.contains("docs/test-summary.txt is missing"), "{complaint}");
    }

    #[test]
    fn program_without_a_line_is_named() {
        for program in [
            "a access",
            "a cuts",
            "workspace simulation",
            "workspace documentation",
            "leasehold-mysql conformance on mysql-9",
            "leasehold-postgres laws on postgres-17",
        ] {
            let [complaint] = complaints(program, 0).try_into().unwrap();
            assert!(complaint.contains(&format!("no line for `{program}`")), "{complaint}");
        }
    }

    #[test]
    fn program_that_failed_is_named() {
        let complaints = complaints("", 1);
        assert!(complaints.len() > 3 && complaints[0].contains("`a access` failed"), "{complaints:?}");
    }
}
