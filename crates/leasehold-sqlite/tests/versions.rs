//! The versions of `rusqlite` that a program may use beside this store. Part of the full tier: set `LEASEHOLD_FULL=1`.
//!
//! Cargo links one SQLite into a program, so this store must accept the version that the program's other crates need. Each
//! trial is a small program of its own, resolved and compiled by cargo.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::Path;
use std::process::{Command, ExitCode};

use leasehold_conformance::Scale;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// The range in the workspace's `Cargo.toml`.
const OLDEST: &str = "rusqlite = \"0.30\"";
const NEWEST: &str = "rusqlite = \"0.41\"";

/// What programs use beside the store.
const USED: &[(&str, &str)] = &[
    ("oldest_rusqlite", OLDEST),
    ("rusqlite_0_32", "rusqlite = \"0.32\""),
    ("rusqlite_0_39", "rusqlite = \"0.39\""),
    ("newest_rusqlite", NEWEST),
    ("sqlx_0_7", "sqlx = { version = \"0.7\", default-features = false, features = [\"sqlite\"] }"),
    ("sqlx_0_8", "sqlx = { version = \"0.8\", default-features = false, features = [\"sqlite\"] }"),
    ("sqlx_0_9", "sqlx = { version = \"0.9\", default-features = false, features = [\"sqlite\"] }"),
    ("tokio_rusqlite_0_6", "tokio-rusqlite = \"0.6\""),
    ("tokio_rusqlite_0_7", "tokio-rusqlite = \"0.7\""),
    ("diesel_2", "diesel = { version = \"2\", features = [\"sqlite\"] }"),
];

fn main() -> ExitCode {
    let resolves = USED.iter().map(|(name, used)| {
        Trial::ignorable_test(format!("{name}_resolves"), || judge(used, &["generate-lockfile"]))
    });
    let compiles = [("oldest", OLDEST), ("newest", NEWEST)].map(|(name, used)| {
        Trial::ignorable_test(format!("store_compiles_with_{name}_rusqlite"), move || judge(used, &["check"]))
    });
    libtest_mimic::run(&Arguments::from_args(), resolves.chain(compiles).collect()).exit_code()
}

fn judge(used: &str, cargo: &[&str]) -> Result<Completion, Failed> {
    if let Some(reason) = Scale::chosen().why_full_tier_is_ignored() {
        return Ok(Completion::ignored_with(reason));
    }
    let place = tempfile::tempdir()?;
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).display().to_string();
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nleasehold-sqlite = {{ path = {store:?} }}\n{used}\n"
    );
    std::fs::create_dir(place.path().join("src"))?;
    std::fs::write(place.path().join("src/lib.rs"), "")?;
    std::fs::write(place.path().join("Cargo.toml"), manifest)?;
    let mut command = Command::new(env!("CARGO"));
    command.args(cargo).current_dir(place.path());
    // The two programs that are compiled share what they have in common.
    command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("versions"));
    let output = command.output()?;
    match output.status.success() {
        true => Ok(Completion::Completed),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}
