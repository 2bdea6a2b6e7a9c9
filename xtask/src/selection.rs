//! Which tests a run was asked for: all of them, or those of some stores and packages.

use std::fs;

use crate::cargo;
use crate::tiers::Tier;

/// Stores whose tests are part of another package: the name, the package, and the programs. Without programs it is the
/// whole package.
const ALIASES: &[(&str, &str, &[&str])] = &[
    ("memory", "leasehold-core", &[]),
    ("mariadb", "leasehold-mysql", &[]),
    ("valkey", "leasehold-redis", &["valkey", "valkey_replicas"]),
    ("redlock", "leasehold-redis", &["redlock"]),
];

/// The names after `cargo xtask test`; none for all tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection(Vec<Named>);

#[derive(Debug, PartialEq, Eq)]
struct Named {
    package: String,
    /// Only these programs, whichever tier they belong to; empty for the programs of the tier.
    programs: &'static [&'static str],
}

impl Selection {
    /// Adds the tests of a store or a package.
    pub(crate) fn add(&mut self, name: &str) -> Result<(), String> {
        let alias = ALIASES.iter().find(|(alias, ..)| *alias == name);
        let named = match alias {
            Some((_, package, programs)) => Named { package: (*package).to_owned(), programs },
            None => {
                let is_named = |package: &String| package == name || short(package) == name;
                let package = packages().into_iter().find(is_named).ok_or_else(|| unknown(name))?;
                Named { package, programs: &[] }
            }
        };
        self.0.push(named);
        Ok(())
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any test of this package runs, as far as the tier has one.
    pub(crate) fn has(&self, package: &str) -> bool {
        self.is_everything() || self.0.iter().any(|named| named.package == package)
    }

    /// Whether a run of this tier includes the program.
    pub(crate) fn wants(&self, package: &str, program: &str, tier: Tier) -> bool {
        let is_in_tier = Tier::of(package, program) <= tier;
        let is_wanted = |named: &Named| match named.programs {
            [] => is_in_tier,
            programs => programs.contains(&program),
        };
        let mut named = self.0.iter().filter(|named| named.package == package);
        if self.is_everything() { is_in_tier } else { named.any(is_wanted) }
    }

    /// The words with which cargo builds these tests.
    pub(crate) fn cargo_words(&self, tier: Tier) -> Vec<String> {
        // All features, as the lints and the documentation are built: one set of artefacts serves them all.
        let mut words = vec!["--all-features"];
        if self.is_everything() {
            words.push("--workspace");
        } else {
            // With core, so that its features are those of a build of the whole workspace.
            words.extend(["-p", "leasehold-core"]);
            words.extend(self.0.iter().flat_map(|named| ["-p", named.package.as_str()]));
        }
        if tier == Tier::Quick && self.0.iter().all(|named| named.programs.is_empty()) {
            words.extend(["--lib", "--bins", "--test", "conformance"]);
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

/// The packages of the workspace.
fn packages() -> Vec<String> {
    let crates = fs::read_dir(cargo::root().join("crates")).into_iter().flatten().flatten();
    let mut packages: Vec<_> =
        crates.map(|directory| directory.file_name().to_string_lossy().into_owned()).collect();
    packages.push("xtask".to_owned());
    packages.sort();
    packages
}

/// A package without the name that all of them begin with.
fn short(package: &str) -> &str {
    package.strip_prefix("leasehold-").unwrap_or(package)
}

fn unknown(name: &str) -> String {
    let packages = packages();
    let mut known: Vec<_> = packages.iter().map(|package| short(package)).collect();
    known.extend(ALIASES.iter().map(|(alias, ..)| *alias));
    known.sort_unstable();
    format!("unknown store or package {name:?} (available: {})", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(names: &[&str]) -> Selection {
        let mut selection = Selection::default();
        names.iter().for_each(|name| selection.add(name).unwrap());
        selection
    }

    #[test]
    fn store_selects_the_programs_of_its_package_up_to_the_tier() {
        let redis = selection(&["redis"]);
        assert!(redis.wants("leasehold-redis", "failures", Tier::Standard));
        assert!(!redis.wants("leasehold-redis", "cluster", Tier::Standard));
        assert!(redis.wants("leasehold-redis", "cluster", Tier::Full));
        assert!(!redis.wants("leasehold-etcd", "failures", Tier::Full));
    }

    #[test]
    fn store_without_a_package_of_its_own_selects_the_programs_that_test_it() {
        assert!(selection(&["memory"]).wants("leasehold-core", "conformance", Tier::Standard));
        assert!(selection(&["mariadb"]).wants("leasehold-mysql", "conformance", Tier::Standard));
        let valkey = selection(&["valkey"]);
        assert!(valkey.wants("leasehold-redis", "valkey", Tier::Standard), "of the full tier, but named");
        assert!(!valkey.wants("leasehold-redis", "conformance", Tier::Full));
        assert!(selection(&["redlock"]).wants("leasehold-redis", "redlock", Tier::Standard));
    }

    #[test]
    fn packages_are_named_with_or_without_their_prefix() {
        for name in ["leasehold-redis", "redis"] {
            assert!(selection(&[name]).cargo_words(Tier::Standard).contains(&"leasehold-redis".to_owned()));
        }
        assert!(selection(&["leasehold"]).has("leasehold") && selection(&["xtask"]).has("xtask"));
    }

    #[test]
    fn no_name_selects_the_whole_tier() {
        let all = selection(&[]);
        assert!(all.wants("leasehold-etcd", "failures", Tier::Standard));
        assert!(!all.wants("leasehold-etcd", "ensemble", Tier::Standard));
        assert!(all.cargo_words(Tier::Standard).contains(&"--workspace".to_owned()));
    }

    #[test]
    fn unknown_name_is_an_error_that_lists_the_known_ones() {
        let problem = Selection::default().add("redsi").unwrap_err();
        for name in ["redsi", "redis", "memory", "valkey", "cli"] {
            assert!(problem.contains(name), "{problem}");
        }
    }

    #[test]
    fn every_program_of_an_alias_exists() {
        for (_, package, programs) in ALIASES {
            let tests = cargo::root().join("crates").join(package).join("tests");
            for program in *programs {
                assert!(tests.join(format!("{program}.rs")).is_file(), "{package} has no program {program}");
            }
        }
    }
}
