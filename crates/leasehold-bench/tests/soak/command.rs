//! The real command, built when it is not there yet.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::Outcome;

/// The variable by which everything that a trial started can be found.
pub(crate) const MARK: &str = "LEASEHOLD_SOAK_MARK";

/// `leasehold run` of `soak-step` with a lease.
pub(crate) fn run(url: &str, lease: &str, key: &str, step: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["run", "--store", url, "--lease", lease, key, "--", env!("CARGO_BIN_EXE_soak-step")]);
    command.args(step).stdin(Stdio::null());
    command
}

/// Cargo gives a test the binaries of its own package only, so ours asks for the other one.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let this = std::env::current_exe().expect("a running test has a path");
        let folder = this.ancestors().nth(2).expect("tests are in target/PROFILE/deps");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            None | Some("debug") => "dev",
            Some(name) => name,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "-q", "-p", "leasehold-cli", "--bin", "leasehold", "--profile", profile])
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cargo could not build leasehold-cli");
        folder.join("leasehold")
    })
}

/// How many processes have this mark in their environment.
pub(crate) fn processes_marked(mark: &str) -> Outcome<usize> {
    let wanted = format!("{MARK}={mark}");
    let mut count = 0;
    for process in std::fs::read_dir("/proc")? {
        // Gone or somebody else's: not ours.
        let Ok(environment) = std::fs::read(process?.path().join("environ")) else { continue };
        let ours = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        count += usize::from(ours);
    }
    Ok(count)
}
