//! The test programs that cargo built, and running several of them side by side.
//!
//! Most tests wait: for a lease to end, for a server to come back. One after the other they would leave the
//! machine idle for most of the time.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::cargo;

/// How many run at a time.
const LANES: usize = 3;

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The file to run.
    executable: PathBuf,
    /// Its package's directory, where cargo would run it.
    package: PathBuf,
}

/// Builds the tests and says which programs came of it.
pub(crate) fn build(options: &[&str]) -> Result<Vec<Program>, String> {
    let mut build = cargo::command();
    build.arg("test").args(options).args(["--no-run", "--message-format=json-render-diagnostics"]);
    let built = build.stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !built.status.success() {
        return Err(format!("the tests cannot be built: cargo ended with {}", built.status));
    }
    Ok(String::from_utf8_lossy(&built.stdout).lines().filter_map(Program::of).collect())
}

impl Program {
    /// The program that a line of cargo's report names, if it is one of tests.
    fn of(line: &str) -> Option<Self> {
        // A target says by the same word that it can be tested: what was built says it in its profile.
        let profile = line.split_once("\"profile\":{")?.1.split_once('}')?.0;
        let is_test = profile.contains("\"test\":true");
        let executable = PathBuf::from(text(line, "executable").filter(|_| is_test)?);
        let package = Path::new(text(line, "manifest_path")?).parent()?.to_owned();
        Some(Self { executable, package })
    }

    /// Runs one of its tests with nothing beside it: what it said, and whether it went well.
    pub(crate) fn run_alone(&self, test: &str, prepare: impl Fn(&mut Command)) -> (String, bool) {
        let mut command = self.command();
        prepare(command.args(["--exact", test]));
        let (said, is_well, _) = listen(command);
        (said, is_well)
    }

    /// The package and the program.
    pub(crate) fn name(&self) -> String {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{} {}", name(&self.package), name(&self.executable))
    }

    fn command(&self) -> Command {
        // Whoever runs us in the background, or with nohup, has signals ignored that programs under test are sent.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,QUIT,TERM").arg(&self.executable);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package).stdin(Stdio::null());
        command
    }
}

/// The value of a field that is plain text: paths here have no quotes.
fn text<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let after = line.split_once(&format!("\"{field}\":\""))?.1;
    after.split_once('"').map(|(value, _)| value)
}

/// Runs the programs, [`LANES`] at a time, each with what `prepare` adds. What a program said is printed when it has
/// ended, so that no two mix, and handed to `count` with its program and whether it went well.
pub(crate) fn run(
    programs: &[Program],
    prepare: impl Fn(&mut Command) + Sync,
    out: &mut (impl Write + Send),
    count: &mut (impl FnMut(&Program, &str, bool) + Send),
) {
    let next = Mutex::new(programs.iter());
    let report = Mutex::new((out, count));
    let lane = || {
        let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some(program) = take() {
            let mut command = program.command();
            prepare(&mut command);
            let (said, is_well, took) = listen(command);
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            let (out, count) = &mut *report;
            // Whoever reads may have gone; the tests are run to their end all the same.
            let _ = writeln!(out, "     Ran {} in {took} s\n{said}", program.name());
            let _ = out.flush();
            count(program, &said, is_well);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
}

/// Runs a program to its end: everything it said, whether it went well, the seconds it took.
fn listen(mut command: Command) -> (String, bool, u64) {
    let start = Instant::now();
    let ended = command.output();
    let took = start.elapsed().as_secs();
    match ended {
        Ok(ended) => {
            let said = [ended.stdout, ended.stderr].concat();
            (String::from_utf8_lossy(&said).into_owned(), ended.status.success(), took)
        }
        Err(error) => (format!("cannot start it: {error}"), false, took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_found_in_cargo_s_report() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/src/a/Cargo.toml","profile":{"test":true},"executable":"/t/a-1"}"#;
        let program = Program { executable: "/t/a-1".into(), package: "/src/a".into() };
        assert_eq!(Program::of(line), Some(program));
    }

    #[test]
    fn what_is_no_test_is_not_run() {
        let line = r#"{"manifest_path":"/src/a/Cargo.toml","target":{"test":true},"profile":{"test":false},"executable":"/t/a-1"}"#;
        assert_eq!(Program::of(line), None);
        let library = r#"{"manifest_path":"/src/a/Cargo.toml","profile":{"test":true},"executable":null}"#;
        assert_eq!(Program::of(library), None);
    }

    #[test]
    fn every_program_is_run_and_one_that_fails_is_told() {
        let program = |name: &str| Program { executable: name.into(), package: "/".into() };
        let (mut well, mut ill) = (0, 0);
        let programs: Vec<_> = ["true", "false", "true", "no such program"].map(program).into();
        run(&programs, |_| {}, &mut std::io::sink(), &mut |_, _, is_well| {
            if is_well { well += 1 } else { ill += 1 }
        });
        assert_eq!((well, ill), (2, 2));
    }
}
