//! Servers whose clock is behind that of the machine.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Stands between the server and the wall clock. Asks the kernel itself: looking for the real functions would need
/// memory, whose allocator needs the clock.
const SHIM: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec -= BEHIND;
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

/// The words that start a program with a clock that is so many seconds behind. What it needs is put into `directory`.
pub(super) fn behind(seconds: u32, directory: &Path) -> Vec<OsString> {
    let (source, library) = (directory.join("clock.c"), directory.join("clock.so"));
    std::fs::write(&source, SHIM).expect("the directory can be written");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", &format!("-DBEHIND={seconds}"), "-o"]).arg(&library).arg(&source);
    let made = compiler.status().expect("cc is there: rustc needs it too");
    assert!(made.success(), "cc failed");
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(&library);
    vec!["env".into(), preload]
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::super::Redis;

    #[test]
    fn the_clock_of_a_server_can_be_behind() {
        let primary = Redis::start();
        let replica = Redis::replica_behind(&primary, 1000);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let told: u64 = replica.cli(&["time"]).lines().next().unwrap().parse().unwrap();
        assert!((990..=1000).contains(&(now - told)), "{now} {told}");
    }
}
