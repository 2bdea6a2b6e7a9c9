//! A disk whose power can be cut: an ext4 file system in a file.
//!
//! To kill a server proves nothing about what it has synced, because the page cache survives. [`PowerDisk::cut`] shuts the file
//! system down without writing anything back (`EXT4_IOC_SHUTDOWN`). When it is mounted again it has what was synced, and its
//! journal is replayed, as after a power cut.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::disk::Mounted;
use crate::postgres::give_away;
use crate::process::wait_until;

/// `_IOR('X', 125, u32)` with 2, which means: write back nothing, not even the journal.
const SHUT_DOWN: &str = "open(my $disk, '<', $ARGV[0]) or die $!; my $how = pack('L', 2);
    ioctl($disk, 0x8004587d, $how) or die $!";

/// How long programs that were killed may take to be gone.
const UNUSED: Duration = Duration::from_secs(30);

/// A disk whose power can be cut. It is gone when it is dropped, or when this process ends.
#[derive(Debug)]
pub struct PowerDisk {
    mounted: Mounted,
    image: PathBuf,
    _directory: TempDir,
}

impl PowerDisk {
    /// A disk with so many megabytes, which belongs to the user that servers run as.
    ///
    /// # Errors
    /// Why this machine does not allow it, for the list of ignored tests.
    pub fn of(megabytes: u32) -> Result<Self, String> {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let image = directory.path().join("image");
        let file = File::create(&image).expect("the directory is ours");
        file.set_len(u64::from(megabytes) << 20).expect("a file may have holes");
        let made = Command::new("/sbin/mkfs.ext4").arg("-q").arg(&image).output();
        if !made.is_ok_and(|made| made.status.success()) {
            return Err("mkfs.ext4 does not work here".to_owned());
        }
        let mounted = Mounted::by(&format!("mount -o loop '{}' \"$0\"", image.display()))
            .ok_or("this user may not mount a loop device")?;
        give_away(&mounted.seen_from_here());
        Ok(Self { mounted, image, _directory: directory })
    }

    /// Where it is, for a program that is started with [`words`](Self::words).
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// The words before the name of a program that is to see it.
    pub fn words(&self) -> Vec<OsString> {
        self.mounted.words()
    }

    /// Where it is for this process, for instance to look at a file.
    pub fn seen_from_here(&self) -> PathBuf {
        self.mounted.seen_from_here()
    }

    /// Syncs all that was written so far, for instance by a program that made files and does not sync.
    ///
    /// # Panics
    /// When the disk has no power.
    pub fn sync(&self) {
        self.run(&["sync", "-f", &self.path().display().to_string()]);
    }

    /// Cuts the power: from this moment nothing that is written stays. Programs on it see errors, and must be killed before
    /// [`restore`](Self::restore).
    ///
    /// # Panics
    /// When the file system cannot be shut down.
    pub fn cut(&self) {
        self.run(&["perl", "-e", SHUT_DOWN, &self.path().display().to_string()]);
    }

    /// Gives the power back: mounts the disk again, with what was synced.
    ///
    /// # Panics
    /// When a program still uses it.
    pub fn restore(&self) {
        let path = self.path().display().to_string();
        // The kernel closes the files of a killed program a little later, where it still has requests under way.
        wait_until("nobody uses the disk", UNUSED, || self.mounted.run(&["umount", &path]).status.success());
        self.run(&["mount", "-o", "loop", &self.image.display().to_string(), &path]);
    }

    fn run(&self, program: &[&str]) {
        let done = self.mounted.run(program);
        assert!(done.status.success(), "{program:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
