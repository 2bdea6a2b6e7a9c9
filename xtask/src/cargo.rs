//! Calling cargo from a task that cargo called.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where the repository is.
pub(crate) fn root() -> PathBuf {
    // Set by `cargo run`; by hand the tasks are run from the root.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.as_deref().and_then(|xtask| xtask.parent()).map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// The target directory, which is where this program was built.
pub(crate) fn target() -> PathBuf {
    let this = std::env::current_exe().ok();
    let found =
        this.as_deref().and_then(|file| file.ancestors().find(|at| at.join("CACHEDIR.TAG").is_file()));
    found.map_or_else(|| root().join("target"), PathBuf::from)
}

/// The same cargo that runs this task, at the root, without anything to read.
pub(crate) fn command() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).stdin(Stdio::null());
    cargo
}

/// Draws or checks the README's matrix. An example of its own, because it is built with every store, and the
/// other tasks must run where the stores cannot be built yet.
pub(crate) fn matrix(options: &[&str]) -> Result<(), String> {
    let mut cargo = command();
    cargo.args(["run", "--quiet", "--package", "xtask", "--example", "matrix", "--"]).args(options);
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the matrix is not in order".to_owned()),
        Err(error) => Err(format!("cannot start cargo: {error}")),
    }
}
