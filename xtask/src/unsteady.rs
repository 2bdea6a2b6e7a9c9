//! The tests that once failed beside other tests and passed alone.
//!
//! `docs/unsteady-tests.md` lists each with its cause and the commit that fixed it. If a listed test fails again,
//! its fix was wrong, so the run fails, even if the test passes alone. An unlisted one fails only the full tier:
//! there it must be explained.

use std::fs;

use crate::cargo;

/// The committed list.
const FILE: &str = "docs/unsteady-tests.md";

/// The rows of the list.
#[derive(Debug, Default)]
pub(crate) struct Unsteady(Vec<Row>);

/// A test that was unsteady once.
#[derive(Debug)]
struct Row {
    test: String,
    package: String,
}

impl Unsteady {
    pub(crate) fn read() -> Result<Self, String> {
        let text = fs::read_to_string(cargo::root().join(FILE));
        text.map(|text| Self::parse(&text)).map_err(|error| format!("cannot read {FILE}: {error}"))
    }

    /// The first column of each row of the table: a test's name in backquotes, then `in` and its package.
    fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let (test, rest) = line.strip_prefix("| `")?.split_once('`')?;
            let package = rest.split('|').next()?.trim().strip_prefix("in ")?;
            Some(Row { test: test.to_owned(), package: package.to_owned() })
        };
        Self(text.lines().filter_map(row).collect())
    }

    /// Whether the list has this test of a package. The suite for all stores puts the store before the name.
    pub(crate) fn has(&self, package: &str, test: &str) -> bool {
        let name = test.rsplit_once('/').map_or(test, |(_, name)| name);
        self.0.iter().any(|row| row.package == package && (row.test == test || row.test == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_column_names_the_test_and_its_package() {
        let text = "| test | cause | fixed by |\n|---|---|---|\n| `leaks::cycles` in etcd | slow | abc |\n\
            | `cluster::cut` in consul | x | y |\n";
        let listed = Unsteady::parse(text);
        assert!(listed.has("consul", "cluster::cut") && listed.has("etcd", "etcd/leaks::cycles"));
        assert!(!listed.has("etcd", "other::leaks::cycles") && !listed.has("etcd", "test"));
    }

    #[test]
    fn test_of_the_same_name_in_another_package_is_not_listed() {
        let listed = Unsteady::parse("| `wakes_one` in etcd | x | y |\n");
        assert!(listed.has("etcd", "wakes_one") && !listed.has("consul", "wakes_one"));
    }

    #[test]
    fn every_row_of_the_committed_list_is_complete() {
        let text = fs::read_to_string(cargo::root().join(FILE)).unwrap();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
        let listed = Unsteady::parse(&text).0;
        assert!(!rows.is_empty() && rows.len() == listed.len(), "a row names no package");
        for (line, row) in rows.iter().zip(listed) {
            assert!(cargo::root().join("crates").join(&row.package).is_dir(), "no package: {}", row.package);
            let [_, _, cause, fixes, _] = line.split('|').collect::<Vec<_>>().try_into().unwrap();
            let is_commit = |hash: &str| hash.len() >= 7 && hash.chars().all(|c| c.is_ascii_hexdigit());
            assert!(
                !cause.trim().is_empty() && fixes.split(',').all(|hash| is_commit(hash.trim())),
                "{line}"
            );
        }
    }
}
