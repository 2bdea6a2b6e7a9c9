//! As the first process of a container, and below one that never asks for its children.

use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::util::{Place, code, text};

impl Place {
    /// A script in a process namespace of its own; `leasehold` is `$L`. The shell is not the first process, but becomes it
    /// with `exec`.
    fn container(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        let namespaces = ["--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
        command.args(namespaces).args(["sh", "-c", script]);
        command.env("L", env!("CARGO_BIN_EXE_leasehold")).env("LEASEHOLD_STORE", self.url());
        command.current_dir(self.path("")).stdin(Stdio::null());
        command
    }
}

/// Leaves orphans in its own group that end at once, and others that end when it does.
const LEAVES_ORPHANS: &str = "for i in 1 2 3; do (sleep 0.1 & ) ; done; sleep 1;";

#[test]
fn the_first_process_reaps_orphans() {
    let place = Place::new();
    let count = format!("{LEAVES_ORPHANS} grep -l '^State:.Z' /proc/[0-9]*/status | wc -l");
    let output = place.container(&format!("exec setsid $L run k -- sh -c \"{count}\"")).output().unwrap();
    assert_eq!((code(&output), text(&output.stdout).trim()), (0, "0"), "{output:?}");
}

#[test]
fn a_group_without_a_number_is_not_passed_to_the_guardian() {
    let place = Place::new();
    let look = "for words in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$words | grep '^leasehold __guardian'; done; true";
    std::fs::write(place.path("look"), look).unwrap();
    // Without a session of its own, the runner is in a group from outside.
    let output = place.container("exec $L run k -- sh look").output().unwrap();
    assert_eq!(
        (code(&output), text(&output.stdout).trim()),
        (0, "leasehold __guardian sqlite"),
        "{output:?}"
    );
}

#[test]
fn zombies_of_another_parent_do_not_delay_the_end() {
    let place = Place::new();
    // `sleep` is the first process and reaps nobody. The shell's `times` are too coarse: /proc/uptime has hundredths.
    let script = format!(
        "(read start _ </proc/uptime
        setsid --wait $L run --lease 2s --max-hold 1500ms k -- sh -c '{LEAVES_ORPHANS} sleep 60'
        code=$?; read end _ </proc/uptime; echo $start $end $code >took) & exec sleep 60"
    );
    let mut container = place.container(&script).spawn().unwrap();
    let (took, status) = super::util::eventually("the end of the runner", || {
        let took = std::fs::read_to_string(place.path("took")).ok()?;
        let times: Vec<f64> = took.split_whitespace().filter_map(|time| time.parse().ok()).collect();
        (times.len() == 3).then(|| (Duration::from_secs_f64(times[1] - times[0]), times[2]))
    });
    let _ = container.kill();
    let _ = container.wait();
    // Two seconds more is what the runner waits for killed processes that do not go away.
    assert!(took < Duration::from_millis(3_400), "{took:?}");
    assert!(status == 79.0, "{status}");
}

/// Stops the runner on this store until its lease has ended, where the system does not list locks, and returns its status.
fn status_of_a_stopped_runner(store: &str) -> i32 {
    let place = Place::new();
    // A socket cannot be opened as a file.
    let _socket = UnixListener::bind(place.path("socket")).unwrap();
    let script = format!(
        "mount --bind socket /proc/locks || exit 1
        $L --store {store} run --lease 1s k -- sh -c 'echo >ready; exec sleep 60' &
        until [ -e ready ]; do sleep 0.05; done
        kill -STOP $!; sleep 3; kill -CONT $!; wait $!"
    );
    place.container(&script).status().unwrap().code().unwrap()
}

#[test]
fn suspended_runner_is_killed_only_if_it_may_block_a_sqlite_file() {
    assert_eq!(status_of_a_stopped_runner("file:locks"), 79);
    assert_eq!(status_of_a_stopped_runner("sqlite:locks.db"), 128 + 9);
}
