//! Where the file is: URLs, the default path, and whether the place can be trusted.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_core::local::Network;
use leasehold_core::url::{About, PathUrl};
use leasehold_core::{Check, Error, ErrorKind, Result, Warnings};

use crate::place;
use crate::settings::{Settings, SyncMode};

/// What URLs are about here.
const ABOUT: About = About {
    store: "sqlite",
    forms: "write it like sqlite:///path/locks.db, with three slashes, or sqlite:relative/locks.db",
};

/// What can be chosen.
const KNOWN: &str = "known are sync=normal and sync=full, network=on and network=off";

/// The path and settings that a URL names: `sqlite:///absolute/path`, `sqlite:relative/path`, or `sqlite:`
/// for the default path, each with `?sync=normal` or `?sync=full`, and `?network=on` for a shared file system.
pub(crate) fn parse(url: &str) -> Result<(PathBuf, Settings)> {
    let PathUrl { path, mut query } = PathUrl::parse(ABOUT, url)?;
    let path = if path.as_os_str().is_empty() { default_path()? } else { path };
    let settings = match query.take("sync").as_deref() {
        None => Settings::new(),
        Some("normal") => Settings::new().sync(SyncMode::Normal),
        Some("full") => Settings::new().sync(SyncMode::Full),
        Some(_) => return Err(ABOUT.invalid(format!("nothing else can be chosen: {KNOWN}"))),
    };
    let settings = match query.switch("network")? {
        Some(true) => settings.network(Network::Accepted),
        _ => settings,
    };
    query.done(KNOWN)?;
    Ok((path, settings))
}

/// The file that is used when none is named: `leasehold/locks.db` in the user's state directory.
///
/// That is `$XDG_STATE_HOME`, or else `$HOME/.local/state`. Users do not share it: name a path where
/// programs of several users must exclude each other.
///
/// # Errors
/// `Invalid` when neither variable is set to an absolute path.
pub fn default_path() -> Result<PathBuf> {
    default_path_from(|name| std::env::var_os(name))
}

fn default_path_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("leasehold/locks.db")).ok_or_else(|| {
        ABOUT.invalid("no place for the locks, neither XDG_STATE_HOME nor HOME is set: name one with --store sqlite:///path")
    })
}

/// Makes sure that the file exists in a place where its locks mean something, and that nobody else decides what it is.
/// Returns its path with the directories resolved, and what was checked.
pub(crate) fn prepare(path: &Path, network: Network, warnings: &Warnings) -> Result<(PathBuf, Vec<Check>)> {
    let Some(name) = path.file_name() else {
        return Err(ABOUT.invalid(format!("{} names no file: name one, like locks.db", path.display())));
    };
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if default_path().is_ok_and(|default| default == path) {
        create_directories(directory).map_err(|e| refused(directory, "cannot create the directory", e))?;
    } else if !directory.exists() {
        // Creating the directory of a mistyped path would create a store that no other process uses.
        let message =
            format!("there is no directory {}: create it, or correct the path", directory.display());
        return Err(ABOUT.invalid(message));
    }
    let directory =
        fs::canonicalize(directory).map_err(|e| refused(directory, "cannot open the directory", e))?;
    trust(&directory)?;
    let mut checks =
        vec![place::file_system(&directory, network).map_err(|e| refused(&directory, "cannot examine", e))?];
    // Before anything is created there.
    warnings.judge(&checks, "sqlite")?;
    let path = directory.join(name);
    create(&path)?;
    let found = place::file(&path).map_err(|e| refused(&path, "cannot examine", e))?;
    warnings.judge(&found, "sqlite")?;
    checks.extend(found);
    Ok((path, checks))
}

fn create_directories(directory: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

/// Refuses a directory in which anybody may replace our file.
fn trust(directory: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let found =
            fs::metadata(directory).map_err(|e| refused(directory, "cannot open the directory", e))?;
        if found.permissions().mode() & 0o1002 == 0o0002 {
            let message = format!(
                "anybody may replace files in {}: set its sticky bit (chmod +t) or choose another directory",
                directory.display()
            );
            return Err(Error::new(ErrorKind::Denied, message));
        }
    }
    Ok(())
}

/// Creates the file if it is not there. One that exists is never opened here: closing it again would drop
/// the locks that SQLite has on it elsewhere in this process (POSIX locks belong to the process).
fn create(path: &Path) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(refused(path, "cannot create the file", e))
        }
        _ => {
            let found = fs::symlink_metadata(path).map_err(|e| refused(path, "cannot open the file", e))?;
            if found.is_file() {
                return Ok(());
            }
            let what = if found.is_symlink() { "a symbolic link" } else { "not a file" };
            let message = format!("{} is {what}: name the file itself", path.display());
            Err(Error::new(ErrorKind::Denied, message))
        }
    }
}

pub(crate) fn refused(path: &Path, problem: &str, cause: std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, way_out) = match cause.kind() {
        Io::PermissionDenied | Io::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "choose a place that you may write, or ask for the right to")
        }
        Io::StorageFull | Io::QuotaExceeded => (ErrorKind::Unavailable, "free some space"),
        _ => (ErrorKind::Invalid, "choose another path"),
    };
    Error::new(kind, format!("{problem} {}: {way_out}", path.display())).because(cause)
}

#[cfg(test)]
mod tests;
