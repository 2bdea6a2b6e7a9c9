//! A wall clock that can be set, for one server: the machine's stays as it is.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands between the server and the wall clock. Asks the kernel itself: looking for the real functions would need
/// memory, whose allocator needs the clock.
const SHIM: &str = r"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;

__attribute__((constructor)) static void find(void) {
    int file = open(AHEAD, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (mapped != MAP_FAILED) ahead = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && is_wall && ahead) now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
";

/// The wall clock of the programs that are started with its words.
#[derive(Debug)]
pub(crate) struct Clock {
    /// By how many seconds it is ahead.
    ahead: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// One that goes like the machine's. What it needs is put into `directory`.
    pub(crate) fn inside(directory: &Path) -> Self {
        let [source, library, ahead] = ["clock.c", "clock.so", "clock"].map(|name| directory.join(name));
        fs::write(&source, SHIM).expect("the directory can be written");
        fs::write(&ahead, 0_i64.to_ne_bytes()).expect("the directory can be written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", &format!("-DAHEAD={:?}", ahead.display().to_string()), "-o"]);
        let made = compiler.arg(&library).arg(&source).status().expect("cc is there: rustc needs it too");
        assert!(made.success(), "cc failed");
        Self { ahead, library }
    }

    /// Sets it, also of programs that run: so many seconds ahead of the machine's, or behind.
    pub(crate) fn set(&self, ahead: i64) {
        // Not emptied first: it is mapped.
        let file = File::options().write(true).open(&self.ahead).expect("it was made");
        file.write_all_at(&ahead.to_ne_bytes(), 0).expect("it is ours");
    }

    /// A word for `env`.
    pub(crate) fn word(&self) -> OsString {
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(&self.library);
        preload
    }
}
