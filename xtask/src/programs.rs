//! The test programs: those that cargo builds, the documentation's examples, and the simulation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo;
use crate::tiers::Tier;

/// Something that runs tests and reports how they ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package it tests.
    pub(crate) package: String,
    /// `lib` and `bin` for unit tests, else the name of the test target.
    pub(crate) target: String,
    what: What,
    /// A server other than this machine's.
    server: Option<Server>,
}

/// A server other than this machine's, and the tests that run on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// The variable that names it to the tests.
    pub(crate) variable: &'static str,
    /// What the variable holds.
    pub(crate) place: PathBuf,
    /// The program's arguments, for example `--ignored`; empty for its usual tests.
    pub(crate) arguments: &'static [&'static str],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// A file that cargo built, and the directory where cargo would run it.
    Executable(PathBuf, PathBuf),
    /// Cargo with these words, which builds and runs something itself.
    Cargo(Vec<String>),
    /// Nothing, because its server could not be provided.
    Unprovided(Unprovided),
}

/// Why a server could not be provided, and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unprovided {
    /// The program counts as failed.
    Failed(String),
    /// `--allow-missing` names the server, so the program counts as skipped.
    Allowed(String),
}

/// Builds the tests and lists the programs.
pub(crate) fn build(selection: &[String]) -> Result<Vec<Program>, String> {
    let mut build = cargo::command();
    build.arg("test").args(selection).args(["--no-run", "--message-format=json-render-diagnostics"]);
    let built = build.stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !built.status.success() {
        return Err(format!("the tests cannot be built: cargo ended with {}", built.status));
    }
    Ok(String::from_utf8_lossy(&built.stdout).lines().filter_map(Program::of_report).collect())
}

impl Program {
    /// The program that a line of cargo's report names, if it is one of tests.
    fn of_report(line: &str) -> Option<Self> {
        // A target says by the same word that it can be tested; what was built says it in its profile.
        let profile = line.split_once("\"profile\":{")?.1.split_once('}')?.0;
        let is_test = profile.contains("\"test\":true");
        let executable = PathBuf::from(text(line, "executable").filter(|_| is_test)?);
        let directory = Path::new(text(line, "manifest_path")?).parent()?.to_owned();
        let package = directory.file_name()?.to_string_lossy().into_owned();
        let target = line.split_once("\"target\":{")?.1;
        let kind = target.split_once("\"kind\":[\"")?.1.split_once('"')?.0;
        let target = if kind == "test" { text(target, "name")? } else { kind }.to_owned();
        let what = What::Executable(executable, directory);
        Some(Self { package, target, what, server: None })
    }

    /// The examples in the documentation of all packages.
    pub(crate) fn documentation() -> Self {
        Self::cargo("documentation", &["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"])
    }

    /// The client runtime under seeded faults: in a release build, which runs far more schedules.
    pub(crate) fn simulation(tier: Tier) -> Self {
        let size: &[&str] = match tier {
            Tier::Full => &["--schedules", "200000"],
            // As many as fit into two minutes.
            Tier::Quick | Tier::Standard => &[],
        };
        // Quiet, so that the last lines of the output are the simulation's.
        let run = ["run", "--quiet", "--release", "--package", "leasehold-simulation", "--", "--check"];
        Self::cargo("simulation", &[&run[..], size].concat())
    }

    fn cargo(target: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let (package, target) = ("workspace".to_owned(), target.to_owned());
        Self { package, target, what: What::Cargo(words), server: None }
    }

    /// The same program on another server.
    pub(crate) fn on(&self, server: Server) -> Self {
        Self { server: Some(server), ..self.clone() }
    }

    /// A stand-in that reports why the program cannot run.
    pub(crate) fn unprovided(&self, reason: Unprovided) -> Self {
        Self { what: What::Unprovided(reason), ..self.clone() }
    }

    /// Whether its arguments select tests. Such a program fails if it finds none of them.
    pub(crate) fn selects_tests(&self) -> bool {
        let has_arguments = self.server.as_ref().is_some_and(|server| !server.arguments.is_empty());
        has_arguments && matches!(self.what, What::Executable(..))
    }

    /// The package, the target and, if it is not this machine's, the server.
    pub(crate) fn name(&self) -> String {
        let on = self.server.as_ref().map(|server| format!(" on {}", server.name)).unwrap_or_default();
        format!("{} {}{on}", self.package, self.target)
    }

    /// Runs all of its tests.
    pub(crate) fn command(&self) -> Command {
        match &self.what {
            What::Executable(file, directory) => {
                // A caller in the background, or under nohup, ignores signals that programs under test are sent.
                let mut command = Command::new("env");
                command.arg("--default-signal=HUP,INT,QUIT,TERM").arg(file);
                command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory).stdin(Stdio::null());
                if let Some(server) = &self.server {
                    command.env(server.variable, &server.place).args(server.arguments);
                }
                command
            }
            What::Cargo(words) => {
                let mut command = cargo::command();
                command.args(words);
                command
            }
            // They report in the words of a test program, which the counts are taken from.
            What::Unprovided(Unprovided::Failed(problem)) => shell("printf '%s\\n' \"$1\"; exit 1", problem),
            What::Unprovided(Unprovided::Allowed(problem)) => {
                let counts = "test result: ok. 0 passed; 0 failed; 1 ignored";
                shell(&format!("printf '%s\\n' \"$1\" '{counts}'"), problem)
            }
        }
    }

    /// Runs one of its tests; `None` if the program cannot run a single test.
    pub(crate) fn command_for(&self, test: &str) -> Option<Command> {
        let mut command = matches!(self.what, What::Executable(..)).then(|| self.command())?;
        command.args(["--exact", test]);
        Some(command)
    }

    /// A program for tests of the runner.
    #[cfg(test)]
    pub(crate) fn executable(file: &str) -> Self {
        let what = What::Executable(file.into(), "/".into());
        Self { package: "test".to_owned(), target: file.to_owned(), what, server: None }
    }
}

/// Runs a script with one argument.
fn shell(script: &str, argument: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", argument]);
    command
}

/// The value of a field that is plain text: paths here have no quotes.
fn text<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let after = line.split_once(&format!("\"{field}\":\""))?.1;
    after.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/src/a-b/Cargo.toml","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"cut","test":true}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn test_programs_are_named_by_package_and_target() {
        let program = Program::of_report(&report("test", true, "\"/t/a-1\"")).unwrap();
        assert_eq!(program.name(), "a-b cut");
        let program = Program::of_report(&report("lib", true, "\"/t/a-1\"")).unwrap();
        assert_eq!(program.name(), "a-b lib");
    }

    #[test]
    fn other_artefacts_are_not_programs() {
        assert_eq!(Program::of_report(&report("bin", false, "\"/t/a-1\"")), None);
        assert_eq!(Program::of_report(&report("lib", true, "null")), None);
    }
}
