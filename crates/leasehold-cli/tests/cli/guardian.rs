//! The guardian and the runner, when one of them is stopped, killed or late.

use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_servers::redis::Redis;
use rustix::process::{Pid, Signal, kill_process};

use super::traced::{Calls, Traced, calls_of_a_run};
use super::util::{FOR_EVER, Place, code, eventually, guardian_of, is_alive, wait_until_dead};

#[test]
fn a_program_is_guarded_from_its_first_instruction() {
    let place = Place::new();
    // The runner is slow to learn that the program was started, and the program stops the runner before it does.
    let stops_its_runner = "kill -STOP $PPID; echo $$ >p.new; mv p.new program; while :; do sleep 0.05; done";
    let delay = "-e trace=read,recvmsg,recvfrom -e inject=read,recvmsg,recvfrom:delay_exit=200000";
    let words = ["run", "--lease", "2s", "k", "--", "sh", "-c", stops_its_runner];
    let runner = Traced::start(&place, delay, &words);
    let program = place.number_in("program");
    runner.wait_until_stopped();
    assert!(!place.next_finds_running("k", program), "the program runs beside the next holder");
}

#[test]
fn a_program_is_not_started_under_a_lost_lock() {
    let place = Place::new();
    let program = place.path("program");
    std::fs::copy("/bin/true", &program).unwrap();
    let program = program.to_str().unwrap();
    // Between the grant and the start, the runner looks for its terminal.
    let stop =
        format!("-f -P /dev/tty -P {program} -e trace=openat,execve -e inject=openat:signal=SIGSTOP:when=1");
    let runner = Traced::start(&place, &stop, &["run", "--lease", "1s", "k", "--", program]);
    runner.wait_until_stopped();
    place.expect("run k -- true", 0);
    runner.signal(Signal::CONT);
    assert_eq!(runner.finish(), Some(79));
    let trace = std::fs::read_to_string(place.path("trace")).unwrap();
    assert!(trace.contains("/dev/tty"), "the test stops the runner somewhere else: {trace}");
    assert!(!trace.contains("execve"), "the program was started: {trace}");
}

#[test]
fn a_late_guardian_listens_before_it_judges() {
    let place = Place::new();
    let holder = place.hold("run --lease 1s k");
    let guardian = Pid::from_raw(eventually("the guardian", || guardian_of(holder.runner.id()))).unwrap();
    kill_process(guardian, Signal::STOP).unwrap();
    // Longer than the last deadline that it has read, while the runner goes on renewing.
    sleep(Duration::from_millis(2_500));
    kill_process(guardian, Signal::CONT).unwrap();
    sleep(Duration::from_millis(500));
    assert!(is_alive(holder.program), "the guardian killed a program whose lock is held");
    holder.signal(Signal::TERM);
    assert_eq!(code(&holder.finish()), 128 + 15);
}

#[test]
fn a_killed_guardian_is_replaced() {
    let place = Place::new();
    let holder = place.hold_with("run --lease 3s k", &format!("trap '' TERM; {FOR_EVER}"));
    let first = eventually("the guardian", || guardian_of(holder.runner.id()));
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let runner = holder.runner.id();
    eventually("another guardian", || guardian_of(runner).filter(|guardian| *guardian != first));
    // The new one knows what to guard.
    sleep(Duration::from_millis(500));
    let program = holder.program;
    holder.signal(Signal::KILL);
    wait_until_dead(program);
}

/// How long a runner with a lease of 2 s may block the file after its stop: its lease and a second.
const LONGEST_BLOCK: Duration = Duration::from_secs(3);

/// Waits for the runner's stop inside a write, and checks that the file is free again within the limit.
fn assert_stop_is_short(place: &Place, runner: &Traced, limit: Duration) {
    runner.wait_until_stopped();
    let start = Instant::now();
    assert!(is_write_locked(place), "the test stops the runner outside of a write");
    eventually("the end of the stopped runner", || (!is_write_locked(place)).then_some(()));
    let took = start.elapsed();
    assert!(took < limit, "blocked for {took:?}");
    place.expect("run --try other -- true", 0);
}

/// Whether a process has a write lock on the file, which keeps all others from writing.
fn is_write_locked(place: &Place) -> bool {
    let files = ["locks.db", "locks.db-shm"].map(|name| place.path(name));
    let inodes = files.iter().filter_map(|file| Some(format!(":{} ", file.metadata().ok()?.ino())));
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let is_locked = |inode: String| locks.lines().any(|lock| lock.contains("WRITE") && lock.contains(&inode));
    inodes.into_iter().any(is_locked)
}

fn writes_of_a_run() -> Calls {
    calls_of_a_run("pwrite64")
}

/// Stops the runner, but neither traces nor slows down its guardian: strace lets go of a child that executes a program.
fn stop_in_write(number: usize) -> String {
    format!("-f -b execve -e trace=pwrite64 -e inject=pwrite64:signal=SIGSTOP:when={number}")
}

#[test]
fn a_runner_stopped_inside_a_sqlite_write_does_not_block_other_keys() {
    let stopped_in = |place: &Place, write| {
        let words = ["run", "--lease", "2s", "k", "--", "sleep", "60"];
        let runner = Traced::start(place, &stop_in_write(write), &words);
        assert_stop_is_short(place, &runner, LONGEST_BLOCK);
    };
    let renewal = writes_of_a_run().before_the_release + 1;
    std::thread::scope(|scope| {
        // These writes create the file and its tables.
        for write in [1, 9, 14] {
            scope.spawn(move || stopped_in(&Place::new(), write));
        }
        // The last write before the grant belongs to the claim, and the first one after it to the renewal.
        for write in [renewal - 1, renewal] {
            scope.spawn(move || stopped_in(&Place::with_synced_file(), write));
        }
    });
}

/// Stops a runner whose program ends immediately.
fn assert_stop_at_the_end_is_short(write: usize) {
    let place = Place::with_synced_file();
    let words = ["run", "--lease", "2s", "--fixed", "k", "--", "true"];
    let runner = Traced::start(&place, &stop_in_write(write), &words);
    assert_stop_is_short(&place, &runner, LONGEST_BLOCK);
}

#[test]
fn runner_stopped_inside_the_write_of_its_release_does_not_block_other_keys() {
    assert_stop_at_the_end_is_short(writes_of_a_run().before_the_release + 1);
}

#[test]
fn runner_stopped_while_it_closes_the_file_does_not_block_other_keys() {
    // The last process that closes the file moves the log into it.
    assert_stop_at_the_end_is_short(writes_of_a_run().total);
}

/// Delays one sync of the file. The runner keeps its write lock meanwhile.
fn delay_sync(number: usize, seconds: u32) -> String {
    format!("-f -e trace=fsync -e inject=fsync:delay_enter={seconds}000000:when={number}")
}

#[test]
fn slow_disk_during_the_release_does_not_kill_the_runner() {
    let sync = calls_of_a_run("fsync").before_the_release + 1;
    let place = Place::with_synced_file();
    let words = ["run", "--lease", "2s", "--fixed", "k", "--", "true"];
    assert_eq!(Traced::start(&place, &delay_sync(sync, 4), &words).finish(), Some(0));
}

#[test]
fn slow_disk_that_costs_the_lock_does_not_kill_the_runner() {
    let sync = calls_of_a_run("fsync").before_the_release + 1;
    let place = Place::with_synced_file();
    // The delayed sync is that of the first renewal. The runner loses the lock, and then waits for the sync to close the
    // file. It sends no reports while it waits.
    let words = ["run", "--lease", "2s", "k", "--", "sleep", "60"];
    assert_eq!(Traced::start(&place, &delay_sync(sync, 8), &words).finish(), Some(79));
}

#[test]
fn guardian_ends_while_the_store_answers_the_release() {
    let server = Redis::start();
    let place = Place::on(&server.url());
    let calls = "-f -e trace=kill,sendto,sendmsg,write,writev,wait4";
    assert_eq!(Traced::start(&place, calls, &["run", "k", "--", "true"]).finish(), Some(0));
    let trace = std::fs::read_to_string(place.path("trace")).unwrap();
    let place_of = |call: &str| trace.find(call).unwrap_or_else(|| panic!("no {call} in {trace}"));
    let kill = place_of(", SIGKILL)");
    let guardian = trace[..kill].rsplit('(').next().unwrap();
    let after = &trace[kill..];
    let wait = after.find(&format!("wait4({guardian},")).expect("the runner waits for its guardian");
    let is_request = |line: &str| line.contains("EVALSHA");
    assert!(after[..wait].lines().any(is_request), "no release before the wait: {after}");
}
