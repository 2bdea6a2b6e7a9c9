//! What the tests of each package need on the machine besides Rust.

use std::fmt;

use crate::fetch::Suite;
use crate::selection::Selection;
use crate::tiers::Tier::{self, Full, Quick, Standard};

/// Something that must be on the machine.
#[derive(Debug)]
pub(crate) struct Need {
    /// Its name for `--allow-missing`: the store's name where a store needs it.
    pub(crate) name: &'static str,
    /// The program that shows that it is there.
    pub(crate) program: &'static str,
    /// The Debian packages that bring it.
    pub(crate) packages: &'static [&'static str],
    /// The packages whose tests need it, each with the first tier in which they do. Empty if every run needs it.
    users: &'static [(&'static str, Tier)],
}

/// Everything that any run needs.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        // The linker of Rust, and the compiler of SQLite and of the clocks of servers.
        name: "cc",
        program: "cc",
        packages: &["gcc", "libc6-dev"],
        users: &[],
    },
    Need {
        name: "redis",
        program: "redis-server",
        packages: &["redis-server", "redis-tools"],
        users: &[
            ("leasehold-redis", Quick),
            ("leasehold-cli", Standard),
            ("leasehold", Standard),
            ("leasehold-servers", Standard),
        ],
    },
    Need {
        name: "valkey",
        program: "valkey-server",
        packages: &["valkey-server", "valkey-tools"],
        users: &[("leasehold-redis", Quick)],
    },
    Need {
        name: "postgres",
        program: "postgres",
        packages: &["postgresql"],
        users: &[
            ("leasehold-postgres", Standard),
            ("leasehold-mysql", Standard),
            ("leasehold-cli", Standard),
            ("leasehold", Standard),
            ("leasehold-servers", Standard),
            ("leasehold-bench", Full),
        ],
    },
    Need {
        name: "mysql",
        program: "mariadbd",
        packages: &["mariadb-server"],
        users: &[
            ("leasehold-mysql", Standard),
            ("leasehold", Standard),
            ("leasehold-servers", Standard),
            ("leasehold-bench", Full),
        ],
    },
    Need {
        name: "pgbouncer",
        program: "pgbouncer",
        packages: &["pgbouncer"],
        users: &[("leasehold-postgres", Standard)],
    },
    Need {
        name: "zookeeper",
        program: "/usr/share/zookeeper/bin/zkServer.sh",
        packages: &["zookeeper", "default-jre-headless"],
        users: &[
            ("leasehold-zookeeper", Standard),
            ("leasehold", Standard),
            ("leasehold-servers", Standard),
            ("leasehold-bench", Full),
        ],
    },
    Need {
        name: "etcd",
        program: "etcd",
        packages: &["etcd-server", "etcd-client"],
        users: &[
            ("leasehold-etcd", Standard),
            ("leasehold-cli", Standard),
            ("leasehold", Standard),
            ("leasehold-bench", Full),
        ],
    },
    Need {
        name: "memcached",
        program: "memcached",
        packages: &["memcached"],
        users: &[("leasehold-memcached", Standard), ("leasehold", Standard), ("leasehold-servers", Standard)],
    },
    Need {
        // Makes the certificates for tests of TLS.
        name: "openssl",
        program: "openssl",
        packages: &["openssl"],
        users: &[
            ("leasehold-redis", Quick),
            ("leasehold-postgres", Standard),
            ("leasehold-mysql", Standard),
            ("leasehold-zookeeper", Standard),
            ("leasehold-etcd", Standard),
            ("leasehold-consul", Standard),
        ],
    },
    Need {
        name: "consul",
        program: "consul",
        packages: &["consul"],
        users: &[
            ("leasehold-consul", Standard),
            ("leasehold", Standard),
            ("leasehold-servers", Standard),
            ("leasehold-bench", Full),
        ],
    },
    Need {
        // A file system that a program serves.
        name: "bindfs",
        program: "bindfs",
        packages: &["bindfs"],
        users: &[("leasehold-file", Standard), ("leasehold-sqlite", Standard)],
    },
    Need {
        // Stops the runner at a system call.
        name: "strace",
        program: "strace",
        packages: &["strace"],
        users: &[("leasehold-cli", Standard)],
    },
    Need {
        // Prepares the other versions of servers.
        name: "patchelf",
        program: "patchelf",
        packages: &["patchelf"],
        users: &[
            ("leasehold-redis", Full),
            ("leasehold-etcd", Full),
            ("leasehold-postgres", Full),
            ("leasehold-mysql", Full),
        ],
    },
];

/// What Debian has only in another suite: that is unpacked beside the build, and the machine stays as it is. The libraries
/// that it needs are this machine's: Valkey's are those of Redis.
const ELSEWHERE: &[(&str, Suite)] = &[("consul", Suite::Release("bullseye")), ("valkey", Suite::Backports)];

impl Need {
    /// The suite that has it, when it is not this machine's release.
    pub(crate) fn suite(&self) -> Option<Suite> {
        ELSEWHERE.iter().find(|(name, _)| *name == self.name).map(|(_, suite)| *suite)
    }

    /// Whether a run of these tests in this tier needs it.
    pub(crate) fn is_for(&self, selection: &Selection, tier: Tier) -> bool {
        let is_user = |(package, first): &(&str, Tier)| *first <= tier && selection.has(package);
        self.users.is_empty() || self.users.iter().any(is_user)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users: Vec<_> = self.users.iter().map(|(package, _)| *package).collect();
        let users = if users.is_empty() { "every build".to_owned() } else { users.join(", ") };
        write!(f, "{} (program `{}`, needed by {users})", self.name, self.program)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::cargo;

    /// What a run of this store, or of everything, needs.
    fn needed(name: Option<&str>, tier: Tier) -> Vec<&'static str> {
        let mut selection = Selection::default();
        name.into_iter().for_each(|name| selection.add(name).unwrap());
        NEEDS.iter().filter(|need| need.is_for(&selection, tier)).map(|need| need.name).collect()
    }

    #[test]
    fn quick_run_needs_one_kind_of_server() {
        assert_eq!(needed(None, Quick), ["cc", "redis", "valkey", "openssl"]);
    }

    #[test]
    fn run_of_one_store_needs_its_own_servers() {
        assert_eq!(needed(Some("memory"), Standard), ["cc"]);
        assert_eq!(needed(Some("file"), Standard), ["cc", "bindfs"]);
        assert_eq!(needed(Some("etcd"), Standard), ["cc", "etcd", "openssl"]);
        assert_eq!(needed(Some("etcd"), Full), ["cc", "etcd", "openssl", "patchelf"]);
    }

    #[test]
    fn full_run_needs_everything() {
        assert_eq!(needed(None, Full).len(), NEEDS.len());
    }

    #[test]
    fn what_is_elsewhere_is_needed() {
        for (name, _) in ELSEWHERE {
            assert!(NEEDS.iter().any(|need| need.name == *name && need.suite().is_some()), "{name}");
        }
    }

    fn sources(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
        let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let below = directories.iter().flat_map(|directory| sources(directory));
        below.chain(files.into_iter().filter(is_source)).collect()
    }

    /// The servers that a line of a test starts.
    fn started(line: &str) -> Vec<&'static str> {
        const WORDS: &[(&str, &str)] = &[
            ("valkey", "valkey"),
            ("postgres", "postgres"),
            ("Bouncer", "pgbouncer"),
            ("mariadb", "mysql"),
            ("zookeeper", "zookeeper"),
            ("etcd", "etcd"),
            ("memcached", "memcached"),
            ("consul", "consul"),
            ("Certificates", "openssl"),
        ];
        let Some((_, names)) = line.split_once("leasehold_servers::") else { return Vec::new() };
        let mut started: Vec<_> =
            WORDS.iter().filter(|(word, _)| names.contains(word)).map(|(_, need)| *need).collect();
        if names.contains("redis") && names != "redis::Certificates;" {
            started.push("redis");
        }
        started
    }

    #[test]
    fn every_package_is_listed_with_the_servers_that_its_tests_start() {
        for package in fs::read_dir(cargo::root().join("crates")).unwrap() {
            let package = package.unwrap();
            let name = package.file_name().into_string().unwrap();
            let is_user = |need: &&str| {
                let users = NEEDS.iter().find(|known| known.name == *need).unwrap().users;
                users.iter().any(|(user, _)| *user == name)
            };
            for file in ["src", "tests"].iter().flat_map(|part| sources(&package.path().join(part))) {
                let text = fs::read_to_string(&file).unwrap();
                let unlisted = text.lines().flat_map(started).find(|need| !is_user(need));
                assert_eq!(unlisted, None, "{} starts it", file.display());
            }
        }
    }
}
