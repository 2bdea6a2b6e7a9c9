//! File systems that only the programs of one test see: a small one that can be filled.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::Process;

/// How long mounting may take.
const MOUNTED: Duration = Duration::from_secs(30);

/// A file system in a mount namespace of its own: gone with its keeper, whatever happens to this process.
#[derive(Debug)]
pub(crate) struct Mounted {
    keeper: Process,
    directory: TempDir,
}

impl Mounted {
    /// What a command of the shell mounts on the directory `"$0"`; none where this user may mount nothing.
    pub(crate) fn by(mount: &str) -> Option<Self> {
        if !rustix::process::getuid().is_root() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let script = format!("{mount} 2>/dev/null && exec sleep infinity");
        let mut words = ["--mount", "sh", "-c", &script].map(OsString::from).to_vec();
        words.push(directory.path().into());
        let keeper = Process::start("unshare", &words);
        let outside = fs::metadata(directory.path()).expect("it was made").dev();
        let mut disk = Self { keeper, directory };
        let end = Instant::now() + MOUNTED;
        while disk.keeper.is_running() && Instant::now() < end {
            if fs::metadata(disk.seen_from_here()).is_ok_and(|inside| inside.dev() != outside) {
                return Some(disk);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Where it is, for a program that is started with [`words`](Self::words).
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The words before the name of a program that is to see it.
    pub(crate) fn words(&self) -> Vec<OsString> {
        ["nsenter", "--mount", "--target", &self.keeper.pid().to_string()].map(OsString::from).to_vec()
    }

    /// Runs a program that sees it.
    pub(crate) fn run(&self, program: &[&str]) -> Output {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(program).current_dir("/");
        command.output().expect("nsenter is on every machine")
    }

    /// Where it is for this process.
    pub(crate) fn seen_from_here(&self) -> PathBuf {
        let inside = self.directory.path().strip_prefix("/").expect("temporary directories have full paths");
        Path::new("/proc").join(self.keeper.pid().to_string()).join("root").join(inside)
    }
}

/// A file system in memory that can be filled.
#[derive(Debug)]
pub(crate) struct SmallDisk(Mounted);

impl SmallDisk {
    /// One with so many megabytes; none where this user may not mount any.
    pub(crate) fn of(megabytes: u32) -> Option<Self> {
        Mounted::by(&format!("mount -t tmpfs -o size={megabytes}m,mode=777 none \"$0\"")).map(Self)
    }

    pub(crate) fn mounted(&self) -> &Mounted {
        &self.0
    }

    /// Fills it to the last byte.
    pub(crate) fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).expect("an empty file needs no room");
        while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    }

    /// Takes out again what filled it.
    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.0.seen_from_here().join("filler")
    }
}
