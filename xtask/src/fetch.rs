//! Servers that this machine's release of Debian does not have: fetched from another suite, into the build's own directory.
//!
//! From where is up to the machine: its own apt sources are read, and only the suite is another one. Neither they nor
//! anything else of the system is changed, and root is not needed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo;

/// Where fetched servers are unpacked.
fn directory() -> PathBuf {
    cargo::target().join("servers")
}

/// Where a program may be besides the path: what `LEASEHOLD_PROGRAM` names, and what was fetched.
pub(crate) fn programs(program: &str) -> Vec<PathBuf> {
    let named = std::env::var_os(format!("LEASEHOLD_{}", program.to_uppercase().replace('-', "_")));
    let named = named.and_then(|file| Some(Path::new(&file).parent()?.to_owned()));
    let fetched = directory().join(program).join("usr/bin");
    named.into_iter().chain([fetched]).collect()
}

/// Which of Debian's suites has a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    /// A release of this name.
    Release(&'static str),
    /// What was added to this machine's release after it was made, or, where that does not have it, the release itself.
    Backports,
}

impl Suite {
    /// Its names, the best first.
    fn names(self, os_release: &str) -> Result<Vec<String>, String> {
        match self {
            Self::Release(name) => Ok(vec![name.to_owned()]),
            Self::Backports => {
                let name = codename(os_release).ok_or("/etc/os-release does not say which Debian this is")?;
                Ok(vec![format!("{name}-backports"), name.to_owned()])
            }
        }
    }
}

/// What this machine's release is called.
fn codename(os_release: &str) -> Option<&str> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(name.trim().trim_matches(['"', '\''])).filter(|name| !name.is_empty())
}

/// Fetches packages from the first suite that has them, and unpacks them. Or why no suite could be used.
pub(crate) fn fetch(program: &str, packages: &[&str], suite: Suite) -> Result<(), String> {
    let os_release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let mut problems = Vec::new();
    for name in suite.names(&os_release)? {
        match fetch_from(program, packages, &name) {
            Ok(()) => return Ok(()),
            Err(problem) => problems.push(format!("Debian's {name}: {problem}")),
        }
    }
    Err(problems.join("\n"))
}

fn fetch_from(program: &str, packages: &[&str], release: &str) -> Result<(), String> {
    let servers = directory();
    let (work, ready) = (servers.join(format!("{program}.part")), servers.join(program));
    prepare(&work, release)?;
    eprintln!("xtask: fetching {program} from Debian's {release}");
    run(apt(&work).arg("update"))?;
    run(apt(&work).arg("download").args(packages).current_dir(&work))?;
    unpack(&work, &work.join("root"))?;
    let _ = std::fs::remove_dir_all(&ready);
    std::fs::rename(work.join("root"), &ready)
        .map_err(|e| format!("cannot make {}: {e}", ready.display()))?;
    let _ = std::fs::remove_dir_all(&work);
    Ok(())
}

/// Makes the directory anew, with the sources of a release.
fn prepare(work: &Path, release: &str) -> Result<(), String> {
    // What an earlier attempt left is of no use.
    let _ = std::fs::remove_dir_all(work);
    for part in ["lists/partial", "cache/archives/partial", "root"] {
        std::fs::create_dir_all(work.join(part))
            .map_err(|e| format!("cannot make {}: {e}", work.display()))?;
    }
    let source = source(release).ok_or("this machine's apt has no source of Debian packages")?;
    std::fs::write(work.join("sources.list"), source).map_err(|e| format!("cannot write the source: {e}"))
}

/// Unpacks all packages of a directory.
fn unpack(packages: &Path, root: &Path) -> Result<(), String> {
    let files =
        std::fs::read_dir(packages).map_err(|e| format!("cannot read {}: {e}", packages.display()))?;
    let is_package = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "deb");
    for file in files.flatten().map(|file| file.path()).filter(is_package) {
        run(Command::new("dpkg").arg("-x").arg(&file).arg(root))?;
    }
    Ok(())
}

/// Fetches a package with everything that it needs, as if nothing were installed, and unpacks all of it below `root` in
/// `directory`.
pub(crate) fn fetch_with_libraries(directory: &Path, package: &str, release: &str) -> Result<(), String> {
    prepare(directory, release)?;
    eprintln!("xtask: fetching {package} with its libraries from Debian's {release}");
    let status = directory.join("status");
    std::fs::write(&status, "").map_err(|e| format!("cannot write {}: {e}", status.display()))?;
    let nothing_installed = format!("-oDir::State::status={}", status.display());
    run(apt(directory).arg(&nothing_installed).arg("update"))?;
    let options = ["-y", "--download-only", "--no-install-recommends", "-oDebug::NoLocking=true", "install"];
    run(apt(directory).arg(&nothing_installed).args(options).arg(package))?;
    unpack(&directory.join("cache/archives"), &directory.join("root"))?;
    let _ = std::fs::remove_dir_all(directory.join("cache"));
    Ok(())
}

/// apt with sources, lists and a cache of its own.
fn apt(work: &Path) -> Command {
    let mut apt = Command::new("apt-get");
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    apt.arg(option("Dir::Etc::sourcelist", &work.join("sources.list")))
        .arg("-oDir::Etc::sourceparts=-")
        .arg(option("Dir::State::lists", &work.join("lists")))
        .arg(option("Dir::Cache", &work.join("cache")))
        // Nobody else can write there.
        .arg("-oAPT::Sandbox::User=root")
        .arg("-q");
    apt
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// A line of `sources.list` like this machine's, for another suite.
fn source(release: &str) -> Option<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let more = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(more.map(|file| file.path()));
    files.sort();
    files.iter().find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => from_lines(&text, release),
            Some("sources") => from_stanzas(&text, release),
            _ => None,
        }
    })
}

/// From the one-line format: `deb [options] URI suite components`.
fn from_lines(text: &str, release: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim();
        let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((options, rest)) => (options.trim(), rest),
            None => ("", rest),
        };
        let mut words = rest.split_whitespace();
        line_for(options, words.next()?, release).filter(|_| words.next().is_some_and(is_release))
    })
}

/// From stanzas with fields (deb822).
fn from_stanzas(text: &str, release: &str) -> Option<String> {
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| {
            let mut values = stanza.lines().filter_map(|line| line.split_once(':'));
            values.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        field("Types")?.split_whitespace().find(|kind| *kind == "deb")?;
        field("Suites")?.split_whitespace().find(|suite| is_release(suite))?;
        // A key that stands in the stanza itself is not a file to point to.
        let key = field("Signed-By").filter(|key| key.starts_with('/'));
        let options = key.map(|key| format!("signed-by={key}")).unwrap_or_default();
        line_for(&options, field("URIs")?.split_whitespace().next()?, release)
    })
}

/// `None` for what is not Debian's own archive.
fn line_for(options: &str, uri: &str, release: &str) -> Option<String> {
    uri.trim_end_matches('/').strip_suffix("/debian")?;
    let options = if options.is_empty() { String::new() } else { format!("[{options}] ") };
    Some(format!("deb {options}{uri} {release} main\n"))
}

/// Whether a suite is a release, not its updates.
fn is_release(suite: &str) -> bool {
    !suite.contains('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_this_machine_becomes_one_for_another_release() {
        let text = "# deb http://old.example/debian x main\n\
                    deb http://security.example/debian-security bookworm-security main\n\
                    deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n";
        let expected = "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bullseye main\n";
        assert_eq!(from_lines(text, "bullseye").as_deref(), Some(expected));
        let plain = "deb http://mirror.example/debian/ bookworm main";
        assert_eq!(from_lines(plain, "b").as_deref(), Some("deb http://mirror.example/debian/ b main\n"));
    }

    #[test]
    fn a_stanza_of_this_machine_becomes_a_line_for_another_release() {
        let text = "Types: deb\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\n\n\
                    Types: deb\n# a comment\nURIs: http://mirror.example/debian\n\
                    Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n";
        let expected = "deb [signed-by=/k.gpg] http://mirror.example/debian bullseye main\n";
        assert_eq!(from_stanzas(text, "bullseye").as_deref(), Some(expected));
    }

    #[test]
    fn what_was_added_later_is_looked_for_before_the_release_itself() {
        let bookworm = "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(Suite::Backports.names(bookworm).unwrap(), ["bookworm-backports", "bookworm"]);
        assert_eq!(codename("VERSION_CODENAME=\"trixie\"\n"), Some("trixie"));
        assert_eq!(Suite::Release("bullseye").names(bookworm).unwrap(), ["bullseye"]);
        // Before its first release a testing system may say nothing.
        assert!(Suite::Backports.names("ID=debian\nVERSION_CODENAME=\n").is_err());
    }

    #[test]
    fn what_is_not_debians_is_no_source() {
        assert_eq!(from_lines("deb http://other.example/apt stable main", "bullseye"), None);
        assert_eq!(
            from_stanzas("Types: deb-src\nURIs: http://m.example/debian\nSuites: x", "bullseye"),
            None
        );
    }
}
