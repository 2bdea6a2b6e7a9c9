//! What the promises rest on outside of the file: its file system, its names, its owner.
//!
//! In WAL mode SQLite keeps the log and its locks in files that it finds by the name of the database. Under a second
//! name (a hard link, a bind mount of the file) it finds others, and two clients hold one lock.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold_core::local::{FileSystem, Network};
use leasehold_core::{Check, Error, ErrorKind, Severity};

use crate::fault::Stop;

const TWO_NAMES: &str =
    "each name has a log of its own, so clients of one name do not see the locks of the other";
const SHARE: &str = "share the directory, not the file";
/// The files that SQLite puts beside the database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Looks at the file system of the directory.
pub(crate) fn file_system(directory: &Path, network: Network) -> io::Result<Check> {
    Ok(FileSystem::of(fs::File::open(directory)?)?.check(network))
}

/// Looks at the file itself. It is never opened: closing it again would drop the locks that SQLite has on it elsewhere in
/// this process.
pub(crate) fn file(path: &Path) -> io::Result<Vec<Check>> {
    let found = fs::symlink_metadata(path)?;
    let directory = fs::metadata(parent(path))?;
    let mut checks =
        vec![links(path, &found), mount_point(path)?, owner(path, &found, &directory), mode(&found)];
    checks.extend(companions(path, &found, &directory)?);
    Ok(checks)
}

fn links(path: &Path, found: &Metadata) -> Check {
    match found.nlink() {
        // Deleted: the next look at its identity says so.
        count @ (0 | 1) => Check::ok("links", count),
        count => Check::refused("links", count)
            .effect(format!("{} has another name, and {TWO_NAMES}", path.display()))
            .remedy(format!("remove the other name and {SHARE}")),
    }
}

fn mount_point(path: &Path) -> io::Result<Check> {
    let name = "mount point";
    Ok(match is_mount_point(path)? {
        false => Check::ok(name, "no"),
        true => {
            let effect = format!("{} was mounted alone, and {TWO_NAMES}", path.display());
            Check::refused(name, "yes").effect(effect).remedy(SHARE)
        }
    })
}

/// Whether something is mounted on the file: its mount is then another than that of its directory.
#[cfg(target_os = "linux")]
fn is_mount_point(path: &Path) -> io::Result<bool> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let mount = |path: &Path| statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID);
    let (file, directory) = (mount(path)?, mount(parent(path))?);
    if file.stx_mask & directory.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        return Ok(file.stx_mnt_id != directory.stx_mnt_id);
    }
    // Kernels before 5.8 do not say. The files of overlayfs can be on another device than their directory.
    let is_overlay = FileSystem::of(fs::File::open(parent(path))?)?.name == "overlayfs";
    Ok(!is_overlay && fs::symlink_metadata(path)?.dev() != fs::metadata(parent(path))?.dev())
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(path: &Path) -> io::Result<bool> {
    Ok(fs::symlink_metadata(path)?.dev() != fs::metadata(parent(path))?.dev())
}

/// Refuses a file of another user in a directory in which every user can create files: that user may have created the
/// file first, and then decides who holds what. In other directories only the owner and the members of the group can
/// create files. These are lock clients, and lock clients trust each other.
fn owner(path: &Path, found: &Metadata, directory: &Metadata) -> Check {
    match !is_open_to_all(directory) || is_trusted(found.uid(), directory) {
        true => Check::ok("owner", found.uid()),
        false => Check::refused("owner", found.uid())
            .effect(format!("another user created {} and can change every lock in it", path.display()))
            .remedy("remove the file, or choose a directory of your own"),
    }
}

/// Whether every user of the machine can create files in the directory.
fn is_open_to_all(directory: &Metadata) -> bool {
    directory.mode() & 0o002 != 0
}

fn is_trusted(owner: u32, directory: &Metadata) -> bool {
    [rustix::process::geteuid().as_raw(), 0, directory.uid()].contains(&owner)
}

fn mode(found: &Metadata) -> Check {
    let (bits, shown) = (found.mode() & 0o7777, format!("{:04o}", found.mode() & 0o7777));
    match bits & 0o002 {
        0 => Check::ok("mode", shown),
        _ => Check::warning("mode", shown)
            .effect("every user of this machine can end locks and take them")
            .remedy("chmod o-w the file, or give it to a group"),
    }
}

/// Refuses a log that another user has put beside the file, in the same directories and for the same reason.
fn companions(path: &Path, found: &Metadata, directory: &Metadata) -> io::Result<Vec<Check>> {
    if !is_open_to_all(directory) {
        return Ok(Vec::new());
    }
    let mut checks = Vec::new();
    for suffix in COMPANIONS {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let owner = match fs::symlink_metadata(PathBuf::from(name)) {
            Ok(companion) => companion.uid(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if owner != found.uid() && !is_trusted(owner, directory) {
            let check = Check::refused(format!("owner of {suffix}"), owner)
                .effect("another user created SQLite's log and can change every lock in it")
                .remedy("remove that file, or choose a directory of your own");
            checks.push(check);
        }
    }
    Ok(checks)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Which file a path led to.
#[derive(Debug)]
pub(crate) struct Identity {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Identity {
    pub(crate) fn of(path: PathBuf) -> Self {
        let file = device_and_inode(&path);
        Self { path, file }
    }

    /// Looks whether the path still leads to the file, and by this name alone. The number of a file that is open is not
    /// given to another.
    pub(crate) fn confirm(&self) -> Result<(), Stop> {
        let found = fs::metadata(&self.path).ok();
        if found.as_ref().map(numbers) != self.file {
            return Err(Stop::Moved);
        }
        match found.map(|found| links(&self.path, &found)) {
            Some(check) if check.severity == Severity::Refused => {
                Err(Error::new(ErrorKind::Unavailable, check.to_string()).at("sqlite").into())
            }
            _ => Ok(()),
        }
    }
}

/// What a file is called whatever its path.
pub(crate) fn device_and_inode(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().as_ref().map(numbers)
}

fn numbers(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
