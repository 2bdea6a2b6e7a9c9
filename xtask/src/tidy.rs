//! The house rules that the compiler and clippy do not know.
//!
//! Each rule is a function from the repository's files to complaints, so that each is tested on a file that
//! breaks it. That no `unwrap` is in the code is clippy's to say (`unwrap_used`); here it is checked that no
//! crate opts out of that.

mod coverage;
mod rules;
#[cfg(test)]
mod tests;

use std::process::Command;

use crate::cargo;

/// A text file of the repository.
#[derive(Debug)]
struct File {
    /// Its path from the root.
    path: String,
    text: String,
}

impl File {
    /// Complains about the file, at a line where there is one to point at.
    fn complain(&self, line: Option<usize>, what: impl std::fmt::Display) -> String {
        match line {
            Some(index) => format!("{}:{}: {what}", self.path, index + 1),
            None => format!("{}: {what}", self.path),
        }
    }
}

type Rule = fn(&[File]) -> Vec<String>;

const RULES: &[Rule] = &[
    rules::files_are_short,
    rules::stores_explain_themselves,
    rules::crates_inherit_the_lints,
    rules::exceptions_have_a_reason,
    rules::nothing_names_this_machine,
    rules::dependencies_come_from_the_default_registry,
    rules::links_lead_somewhere,
    coverage::the_full_run_covers_every_program,
    rules::documented_tests_exist,
];

/// Checks everything and prints every complaint.
pub(crate) fn run() -> Result<(), String> {
    let files = files()?;
    let complaints: Vec<_> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    let matrix = cargo::matrix(&["--check"]);
    if !complaints.is_empty() {
        return Err(format!("{} complaints", complaints.len()));
    }
    matrix?;
    println!("tidy: {} files, {} rules and the matrix", files.len(), RULES.len());
    Ok(())
}

/// Every text file that is or could be committed.
fn files() -> Result<Vec<File>, String> {
    let mut git = Command::new("git");
    git.current_dir(cargo::root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = git.output().map_err(|error| format!("cannot start git: {error}"))?;
    if !listed.status.success() {
        return Err(format!("git cannot list the files: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    let paths = String::from_utf8_lossy(&listed.stdout).into_owned();
    // What cannot be read is a binary file, or was deleted and not committed yet.
    let read = |path: &str| {
        let text = std::fs::read_to_string(cargo::root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text })
    };
    Ok(paths.split('\0').filter(|path| !path.is_empty()).filter_map(read).collect())
}
