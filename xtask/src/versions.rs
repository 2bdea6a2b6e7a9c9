//! Other versions of servers, for the full tier: from newer releases of Debian, with all of their libraries.
//!
//! Their programs are changed to use the loader and the libraries they came with, because this machine's may be
//! older. Everything is unpacked in the target directory, and nothing is installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::fetch;
use crate::programs::{Program, Server, Unprovided};

/// A server of another version, and what is tested on it.
#[derive(Debug)]
struct Version {
    /// Its name in reports.
    name: &'static str,
    /// The release of Debian that has it.
    suite: &'static str,
    package: &'static str,
    /// The program in the package, or the directory of its programs.
    program: &'static str,
    /// Arguments that the program needs away from its usual place; `{}` is that place.
    arguments: &'static str,
    /// The variable that names it to the tests.
    variable: &'static str,
    /// The package whose tests run on it.
    tests: &'static str,
    /// Its programs, each with arguments. The conformance tests run on every version; other programs have tests of what
    /// only this version has, which are ignored elsewhere.
    programs: &'static [(&'static str, &'static [&'static str])],
}

const CONFORMANCE: (&str, &[&str]) = ("conformance", &[]);

const VERSIONS: &[Version] = &[
    Version {
        name: "redis-8",
        suite: "trixie",
        package: "redis-server",
        program: "usr/bin/redis-server",
        arguments: "",
        variable: "LEASEHOLD_REDIS_SERVER",
        tests: "leasehold-redis",
        programs: &[CONFORMANCE],
    },
    Version {
        name: "etcd-3.5",
        suite: "trixie",
        package: "etcd-server",
        program: "usr/bin/etcd",
        arguments: "",
        variable: "LEASEHOLD_ETCD",
        tests: "leasehold-etcd",
        programs: &[CONFORMANCE],
    },
    Version {
        name: "postgres-17",
        suite: "trixie",
        package: "postgresql-17",
        program: "usr/lib/postgresql/17/bin",
        arguments: "",
        variable: "LEASEHOLD_POSTGRES",
        tests: "leasehold-postgres",
        programs: &[CONFORMANCE, ("laws", &["--include-ignored"])],
    },
    Version {
        name: "mariadb-11",
        suite: "trixie",
        package: "mariadb-server-core",
        program: "usr/sbin/mariadbd",
        arguments: "--lc-messages-dir={}/usr/share/mysql --plugin-dir={}/usr/lib/mysql/plugin",
        variable: "LEASEHOLD_MARIADBD",
        tests: "leasehold-mysql",
        programs: &[CONFORMANCE],
    },
    Version {
        name: "mysql-9",
        suite: "sid",
        package: "mysql-server-core",
        program: "usr/sbin/mysqld",
        arguments: "--lc-messages-dir={}/usr/share/mysql --plugin-dir={}/usr/lib/mysql/plugin",
        variable: "LEASEHOLD_MARIADBD",
        tests: "leasehold-mysql",
        // The other tests of `settings` are about settings of MariaDB.
        programs: &[CONFORMANCE, ("settings", &["--ignored"])],
    },
];

/// The names of all versions.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    VERSIONS.iter().map(|version| version.name)
}

/// The names of the programs that a full run of everything adds.
pub(crate) fn programs() -> impl Iterator<Item = String> {
    let of_version = |version: &'static Version| {
        let name = move |(program, _): &(&str, _)| format!("{} {program} on {}", version.tests, version.name);
        version.programs.iter().map(name)
    };
    VERSIONS.iter().flat_map(of_version)
}

/// Fetches the other versions of the servers under test, and adds their programs. A version that cannot be fetched does
/// not stop the run: its programs count as failed, or as skipped if it may be missing.
pub(crate) fn add(programs: &mut Vec<Program>, allowed: &[String]) {
    let more: Vec<_> = VERSIONS.iter().flat_map(|version| version.on(programs, allowed)).collect();
    programs.extend(more);
}

impl Version {
    /// The selected programs that test this version. The server is fetched only if there are any.
    fn on(&self, selected: &[Program], allowed: &[String]) -> Vec<Program> {
        let find = |name: &str| {
            selected.iter().find(|program| program.package == self.tests && program.target == name)
        };
        let found: Vec<_> =
            self.programs.iter().filter_map(|(name, arguments)| Some((find(name)?, *arguments))).collect();
        if found.is_empty() {
            return Vec::new();
        }
        let provided = self.provide().map_err(|problem| self.unprovided(problem, allowed));
        let Self { name, variable, .. } = *self;
        let on = |(program, arguments): (&Program, &'static [&'static str])| {
            let place = provided.as_ref().cloned().unwrap_or_default();
            let program = program.on(Server { name, variable, place, arguments });
            match &provided {
                Ok(_) => program,
                Err(reason) => program.unprovided(reason.clone()),
            }
        };
        found.into_iter().map(on).collect()
    }

    fn unprovided(&self, problem: String, allowed: &[String]) -> Unprovided {
        eprintln!("xtask: cannot provide {}: {problem}", self.name);
        if allowed.iter().any(|name| name == self.name) {
            Unprovided::Allowed(problem)
        } else {
            let name = self.name;
            Unprovided::Failed(format!("{problem}\ngo on without {name} with --allow-missing {name}"))
        }
    }

    /// What the variable must name. Fetches the server if it is not there yet.
    fn provide(&self) -> Result<PathBuf, String> {
        let directory = cargo::target().join("servers").join(self.name);
        let (root, wrapper) = (directory.join("root"), directory.join("run"));
        let (program, is_ready) = (root.join(self.program), directory.join("ready"));
        if !is_ready.is_file() {
            fetch::fetch_with_libraries(&directory, self.package, self.suite)?;
            patch(&program, &root)?;
            if !program.is_dir() {
                let arguments = self.arguments.replace("{}", &root.display().to_string());
                let script = format!("#!/bin/sh\nexec {} \"$@\" {arguments}\n", program.display());
                write_program(&wrapper, &script)?;
            }
            write_program(&is_ready, "")?;
        }
        Ok(if program.is_dir() { program } else { wrapper })
    }
}

fn write_program(file: &Path, text: &str) -> Result<(), String> {
    let written =
        fs::write(file, text).and_then(|()| fs::set_permissions(file, PermissionsExt::from_mode(0o755)));
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Makes a program, or all programs of a directory, use the loader and the libraries below `root`.
fn patch(program: &Path, root: &Path) -> Result<(), String> {
    let files: Vec<PathBuf> = match fs::read_dir(program) {
        Ok(files) => files.flatten().map(|file| file.path()).collect(),
        Err(_) => vec![program.to_owned()],
    };
    let is_elf = |file: &PathBuf| fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    for file in files.iter().filter(|file| is_elf(file)) {
        let mut patchelf = Command::new("patchelf");
        patchelf.arg("--set-interpreter").arg(root.join("usr/lib64/ld-linux-x86-64.so.2"));
        patchelf.arg("--force-rpath").arg("--set-rpath").arg(root.join("usr/lib/x86_64-linux-gnu"));
        fetch::run(patchelf.arg(file))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner;

    const NOWHERE: Version = Version {
        name: "none-1",
        suite: "no-such-release",
        package: "no-such-package",
        program: "usr/bin/none",
        arguments: "",
        variable: "LEASEHOLD_NONE",
        tests: "test",
        programs: &[CONFORMANCE],
    };

    /// How a program on a version that cannot be fetched is named and counted.
    fn unfetched(allowed: &[String]) -> (String, String) {
        let server =
            Server { name: NOWHERE.name, variable: "", place: PathBuf::new(), arguments: &["--ignored"] };
        let reason = NOWHERE.unprovided("no such release".to_owned(), allowed);
        let program = Program::executable("conformance").on(server).unprovided(reason);
        let outcome = runner::listen(program.clone(), program.command());
        (program.name(), outcome.tally.to_string())
    }

    #[test]
    fn version_that_cannot_be_fetched_is_a_failed_program() {
        let (name, tally) = unfetched(&[]);
        assert_eq!((name.as_str(), tally.as_str()), ("test conformance on none-1", "0 passed, 1 failed"));
    }

    #[test]
    fn version_that_may_be_missing_is_a_skipped_program() {
        assert_eq!(unfetched(&["none-1".to_owned()]).1, "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn version_is_not_fetched_if_none_of_its_tests_is_selected() {
        assert_eq!(NOWHERE.on(&[Program::executable("failures")], &[]), []);
    }

    #[test]
    fn every_program_on_a_version_exists() {
        for version in VERSIONS {
            let tests = cargo::root().join("crates").join(version.tests).join("tests");
            for (program, _) in version.programs {
                let file = tests.join(format!("{program}.rs"));
                assert!(
                    file.is_file() || tests.join(program).join("main.rs").is_file(),
                    "{}",
                    file.display()
                );
            }
        }
        assert!(programs().any(|name| name == "leasehold-postgres laws on postgres-17"));
    }

    #[test]
    fn every_ignored_test_runs_on_some_version() {
        let runs = |package: &str, file: &str| {
            VERSIONS.iter().filter(|version| version.tests == package).any(|version| {
                let is_run = |(program, arguments): &&(&str, &[&str])| {
                    let is_its = file == format!("{program}.rs") || file.starts_with(&format!("{program}/"));
                    is_its && arguments.iter().any(|word| word.ends_with("ignored"))
                };
                version.programs.iter().any(|program| is_run(&program))
            })
        };
        let mut git = Command::new("git");
        git.current_dir(cargo::root()).args(["grep", "-l", "-F", "#[ignore", "--", "crates/*/tests/*.rs"]);
        let listed = String::from_utf8(git.output().unwrap().stdout).unwrap();
        assert!(!listed.is_empty(), "git finds no ignored test");
        for path in listed.lines() {
            let [_, package, _, file] = path.splitn(4, '/').collect::<Vec<_>>().try_into().unwrap();
            assert!(runs(package, file), "{path} has ignored tests that no full run includes");
        }
    }
}
