//! Which test programs each tier runs.
//!
//! The standard tier is what CI runs: every store on one real server of its kind, every law, the command, the
//! simulation and the planted bugs. The full tier adds what takes longer and is run before an issue is called
//! resolved.

/// How much to test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// Unit tests, memory, SQLite and one Redis: at most 4 minutes.
    Quick,
    /// The README's command, and CI's: at most 20 minutes when everything is built.
    #[default]
    Standard,
    /// Also ensembles, all SQL modes, other servers, soaks, power cuts and long simulations: at most 75 minutes.
    Full,
}

/// Programs of the full tier: package, program, and what it adds to the standard tier.
const FULL: &[(&str, &str, &str)] = &[
    ("leasehold-redis", "cluster", "ensemble"),
    ("leasehold-redis", "sentinel", "ensemble"),
    ("leasehold-redis", "redlock", "ensemble"),
    ("leasehold-redis", "replicas", "ensemble"),
    ("leasehold-redis", "guarded", "TLS and a password, with the whole suite"),
    ("leasehold-redis", "valkey", "another server"),
    ("leasehold-redis", "valkey_replicas", "another server"),
    ("leasehold-zookeeper", "ensemble", "ensemble"),
    ("leasehold-etcd", "ensemble", "ensemble"),
    ("leasehold-consul", "ensemble", "ensemble"),
    ("leasehold", "failovers", "ensemble"),
    ("leasehold-postgres", "advisory", "SQL mode"),
    ("leasehold-postgres", "rowlock", "SQL mode"),
    ("leasehold-mysql", "advisory", "SQL mode"),
    ("leasehold-mysql", "rowlock", "SQL mode"),
    ("leasehold-postgres", "power", "power cuts"),
    ("leasehold-mysql", "power", "power cuts"),
    ("leasehold-sqlite", "power", "power cuts"),
    ("leasehold-etcd", "power", "power cuts"),
    ("leasehold-sqlite", "versions", "the versions of rusqlite"),
    ("leasehold-bench", "soak", "soak"),
];

/// Programs of the quick tier besides the unit tests.
const QUICK: &[(&str, &str)] = &[
    ("leasehold-core", "conformance"),
    ("leasehold-sqlite", "conformance"),
    ("leasehold-redis", "conformance"),
];

/// Packages whose unit tests start servers that the quick tier does without.
const SERVED_UNITS: &[&str] =
    &["leasehold-memcached", "leasehold-mysql", "leasehold-postgres", "leasehold-servers"];

impl Tier {
    /// The first tier that runs a program.
    pub(crate) fn of(package: &str, program: &str) -> Self {
        let is_unit = matches!(program, "lib" | "bin") && !SERVED_UNITS.contains(&package);
        if FULL.iter().any(|(p, name, _)| (*p, *name) == (package, program)) {
            Self::Full
        } else if is_unit || QUICK.contains(&(package, program)) {
            Self::Quick
        } else {
            Self::Standard
        }
    }

    /// What the programs of this tier find in their environment.
    pub(crate) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Quick | Self::Standard => &[],
            Self::Full => &[("LEASEHOLD_FULL", "1")],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_are_quick_and_ensembles_are_not() {
        assert_eq!(Tier::of("leasehold-etcd", "lib"), Tier::Quick);
        assert_eq!(Tier::of("leasehold-postgres", "lib"), Tier::Standard, "it starts PostgreSQL");
        assert_eq!(Tier::of("leasehold-redis", "conformance"), Tier::Quick);
        assert_eq!(Tier::of("leasehold-etcd", "conformance"), Tier::Standard);
        assert_eq!(Tier::of("leasehold-etcd", "ensemble"), Tier::Full);
    }

    #[test]
    fn every_program_that_a_tier_names_exists() {
        let crates = crate::cargo::root().join("crates");
        let named =
            FULL.iter().map(|(package, program, _)| (*package, *program)).chain(QUICK.iter().copied());
        for (package, program) in named {
            let tests = crates.join(package).join("tests");
            let exists = tests.join(format!("{program}.rs")).is_file()
                || tests.join(program).join("main.rs").is_file();
            assert!(exists, "{package} has no test program {program}");
        }
    }
}
