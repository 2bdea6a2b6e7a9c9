//! What the tests need beyond Rust, and getting it.
//!
//! One line per thing. A thing that is missing is installed where that is possible without asking anybody;
//! otherwise the exact command is printed and the run fails: a suite that skips quietly proves nothing.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fetch::{self, Suite};

/// Something that must be on the machine.
#[derive(Debug)]
pub(crate) struct Need {
    /// Its name for `--allow-missing`: the store's name where a store needs it.
    name: &'static str,
    /// The program that shows that it is there.
    program: &'static str,
    /// The Debian packages that bring it.
    packages: &'static [&'static str],
    /// Who needs it.
    by: &'static str,
}

/// Everything that the suite needs.
const NEEDS: &[Need] = &[
    Need {
        name: "cc",
        program: "cc",
        packages: &["gcc", "libc6-dev"],
        by: "leasehold-sqlite, which compiles SQLite into itself",
    },
    Need {
        name: "redis",
        program: "redis-server",
        packages: &["redis-server", "redis-tools"],
        by: "leasehold-redis and leasehold-servers",
    },
    Need {
        name: "valkey",
        program: "valkey-server",
        packages: &["valkey-server", "valkey-tools"],
        by: "leasehold-redis",
    },
    Need {
        name: "postgres",
        program: "postgres",
        packages: &["postgresql"],
        by: "leasehold-postgres and leasehold-servers",
    },
    Need {
        name: "mysql",
        program: "mariadbd",
        packages: &["mariadb-server"],
        by: "leasehold-mysql and leasehold-servers",
    },
    Need {
        name: "pgbouncer",
        program: "pgbouncer",
        packages: &["pgbouncer"],
        by: "leasehold-postgres and leasehold-servers",
    },
    Need {
        name: "zookeeper",
        program: "/usr/share/zookeeper/bin/zkServer.sh",
        packages: &["zookeeper", "default-jre-headless"],
        by: "leasehold-zookeeper and leasehold-servers",
    },
    Need {
        name: "etcd",
        program: "etcd",
        packages: &["etcd-server", "etcd-client"],
        by: "leasehold-etcd and leasehold-servers",
    },
    Need {
        name: "memcached",
        program: "memcached",
        packages: &["memcached"],
        by: "leasehold-memcached and leasehold-servers",
    },
    Need {
        name: "openssl",
        program: "openssl",
        packages: &["openssl"],
        by: "leasehold-servers, which makes certificates for tests of TLS",
    },
    Need {
        name: "consul",
        program: "consul",
        packages: &["consul"],
        by: "leasehold-consul and leasehold-servers",
    },
    Need {
        name: "bindfs",
        program: "bindfs",
        packages: &["bindfs"],
        by: "leasehold-file, for a file system that no kernel keeps",
    },
];

/// What Debian has only in another suite: that is unpacked beside the build, and the machine stays as it is. The libraries
/// that it needs are this machine's: Valkey's are those of Redis.
const ELSEWHERE: &[(&str, Suite)] = &[("consul", Suite::Release("bullseye")), ("valkey", Suite::Backports)];

impl Need {
    /// The suite that has it, when it is not this machine's release.
    fn suite(&self) -> Option<Suite> {
        ELSEWHERE.iter().find(|(name, _)| *name == self.name).map(|(_, suite)| *suite)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (program `{}`, needed by {})", self.name, self.program, self.by)
    }
}

/// Makes sure that everything is there, except for what `allowed` names.
pub(crate) fn provide(allowed: &[String]) -> Result<(), String> {
    if let Some(unknown) = allowed.iter().find(|name| NEEDS.iter().all(|need| need.name != name.as_str())) {
        let known: Vec<_> = NEEDS.iter().map(|need| need.name).collect();
        return Err(format!("nothing called {unknown:?} is needed, only: {}", known.join(", ")));
    }
    let missing = missing(NEEDS, allowed, |program| find(program).is_some());
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        eprintln!("xtask: missing: {need}");
    }
    install(&missing)?;
    match self::missing(NEEDS, allowed, |program| find(program).is_some()).first() {
        None => Ok(()),
        Some(need) => Err(format!("installed, but still missing: {need}")),
    }
}

fn missing<'a>(needs: &'a [Need], allowed: &[String], is_there: impl Fn(&str) -> bool) -> Vec<&'a Need> {
    let wanted = needs.iter().filter(|need| allowed.iter().all(|name| name != need.name));
    wanted.filter(|need| !is_there(need.program)).collect()
}

fn find(program: &str) -> Option<PathBuf> {
    // Debian keeps servers in sbin, which is not on an ordinary user's path.
    let path = std::env::var_os("PATH").unwrap_or_default();
    // And every version of PostgreSQL in a directory of its own.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin"));
    let directories =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).chain(versions);
    let directories = directories.chain(fetch::programs(program));
    directories.map(|directory| directory.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

fn install(missing: &[&Need]) -> Result<(), String> {
    let (elsewhere, missing): (Vec<&Need>, Vec<&Need>) =
        missing.iter().partition(|need| need.suite().is_some());
    for (need, suite) in elsewhere.iter().filter_map(|need| Some((need, need.suite()?))) {
        fetch::fetch(need.program, need.packages, suite).map_err(|problem| {
            let named = need.program.to_uppercase().replace('-', "_");
            format!(
                "{problem}\nput {program} on the path, name it in LEASEHOLD_{named}, or go on without it with\n  \
                 cargo xtask test --allow-missing {name}",
                program = need.program,
                name = need.name
            )
        })?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().flat_map(|need| need.packages).copied().collect();
    let names: Vec<_> = missing.iter().flat_map(|need| ["--allow-missing", need.name]).collect();
    let by_hand = format!(
        "install it with\n  sudo apt-get install -y --no-install-recommends {}\nor go on without it with\n  \
         cargo xtask test {}",
        packages.join(" "),
        names.join(" ")
    );
    let apt = |words: &[&str]| {
        let Some(mut command) = as_root() else { return false };
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(words);
        command.status().is_ok_and(|status| status.success())
    };
    let mut words = vec!["install", "-y", "--no-install-recommends"];
    words.extend(&packages);
    // The list of packages may be old or, on a fresh machine, empty.
    if apt(&words) || (apt(&["update"]) && apt(&words)) { Ok(()) } else { Err(by_hand) }
}

/// `env`, run as root without asking for a password; `None` where that cannot be, or where there is no apt.
fn as_root() -> Option<Command> {
    find("apt-get")?;
    let is_root = Path::new("/proc/self").metadata().is_ok_and(|me| me.uid() == 0);
    let mut command = Command::new(if is_root { "env" } else { "sudo" });
    command.stdin(Stdio::null());
    if is_root {
        return Some(command);
    }
    let mut probe = Command::new("sudo");
    let probe = probe.args(["-n", "true"]).stdin(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success()).then_some(())?;
    command.args(["-n", "env"]);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Need] = &[
        Need { name: "one", program: "one-server", packages: &["one"], by: "a test" },
        Need { name: "two", program: "two-server", packages: &["two"], by: "a test" },
    ];

    #[test]
    fn only_what_is_not_there_is_missing() {
        let names: Vec<_> =
            missing(TWO, &[], |program| program == "one-server").iter().map(|n| n.name).collect();
        assert_eq!(names, ["two"]);
    }

    #[test]
    fn what_is_allowed_to_be_missing_is_not_asked_for() {
        assert!(missing(TWO, &["two".to_owned()], |program| program == "one-server").is_empty());
    }

    #[test]
    fn an_unknown_name_is_refused_and_the_known_ones_are_listed() {
        let problem = provide(&["redsi".to_owned()]).unwrap_err();
        assert!(problem.contains("redsi") && problem.contains("cc"), "{problem}");
    }

    #[test]
    fn what_is_elsewhere_is_needed() {
        for (name, _) in ELSEWHERE {
            assert!(NEEDS.iter().any(|need| need.name == *name && need.suite().is_some()), "{name}");
        }
    }

    #[test]
    fn a_program_that_is_there_is_found_and_another_is_not() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
