//! Providing what the tests need: servers, and tools that the tests start.
//!
//! Something that is missing is installed where that is possible without asking anybody; otherwise the exact command is
//! printed and the run fails: a suite that skips quietly proves nothing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::fetch;
use crate::needs::{NEEDS, Need};
use crate::options::Options;
use crate::versions;

/// Makes sure that everything is there that the run needs, except for what may be missing.
pub(crate) fn provide(options: &Options) -> Result<(), String> {
    check_names(&options.allow_missing)?;
    let missing = || -> Vec<&'static Need> {
        let needs = NEEDS.iter().filter(|need| need.is_for(&options.selection, options.tier));
        let needs = needs.filter(|need| !options.allow_missing.iter().any(|name| name == need.name));
        needs.filter(|need| find(need.program).is_none()).collect()
    };
    let absent = missing();
    if absent.is_empty() {
        return Ok(());
    }
    for need in &absent {
        eprintln!("xtask: missing: {need}");
    }
    install(&absent)?;
    match missing().first() {
        None => Ok(()),
        Some(need) => Err(format!("installed, but still missing: {need}")),
    }
}

/// Refuses a name for `--allow-missing` that no server has.
fn check_names(allowed: &[String]) -> Result<(), String> {
    let known: Vec<_> = NEEDS.iter().map(|need| need.name).chain(versions::names()).collect();
    match allowed.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            Err(format!("--allow-missing: unknown server {unknown:?} (available: {})", known.join(", ")))
        }
    }
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

    #[test]
    fn unknown_name_is_refused_and_the_known_ones_are_listed() {
        let problem = check_names(&["redsi".to_owned()]).unwrap_err();
        assert!(problem.contains("redsi") && problem.contains("cc"), "{problem}");
        assert_eq!(check_names(&["redis".to_owned(), "postgres-17".to_owned()]), Ok(()));
    }

    #[test]
    fn a_program_that_is_there_is_found_and_another_is_not() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
