//! Runners that are killed: how soon the next client gets the lock, on every kind of store.

use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::stores::Stores;
use super::util::{FOR_EVER, Place, code, eventually, finish, guardian_of};

/// How long the next client may wait after the kill, on a machine that is busy with other tests. It takes a tenth of a second
/// otherwise, and the lease of the killed runner is three times as long as this.
const LIMIT: Duration = Duration::from_secs(10);

/// Starts a client that waits for the key, and writes the state of the process `program` to a file when it has it.
fn next_client(place: &Place, words: &str, program: i32) -> Child {
    let look =
        format!("grep '^State:.[RSDT]' /proc/{program}/status >seen || echo dead >seen; mv seen granted");
    let mut next = place.run_script(words, &look);
    next.stdout(Stdio::null()).spawn().unwrap()
}

/// Kills the runner that `words` start, and checks that the client that runs `next_words` gets the lock after that.
fn assert_lock_is_free_after_the_kill(place: &Place, words: &str, next_words: &str) {
    let holder = place.hold(words);
    let mut next = next_client(place, next_words, holder.program);
    wait_for_the_next_client(place);
    let start = Instant::now();
    holder.signal(Signal::KILL);
    let state = eventually("the next grant", || fs::read_to_string(place.path("granted")).ok());
    let took = start.elapsed();
    eprintln!("{words}: {} ms after the kill", took.as_millis());
    assert_eq!(state, "dead\n", "the program ran beside the next holder");
    assert!(took < LIMIT, "{took:?}");
    assert_eq!(code(&finish(&mut next).expect("must end")), 0);
}

/// Waits until the next client has asked for the lock. Where it does not queue, it cannot be seen.
fn wait_for_the_next_client(place: &Place) {
    if place.url().starts_with("redlock")
        || place.url().starts_with("quorum")
        || place.url().contains("mode=")
    {
        sleep(Duration::from_secs(1));
    } else {
        place.wait_for_waiters("k", 1);
    }
}

fn assert_killed_runners_free_their_locks_on(stores: &Stores) {
    for url in &stores.urls {
        assert_lock_is_free_after_the_kill(&Place::on(url), "run k", "run k");
    }
}

#[test]
fn killed_runner_frees_its_lock_on_sqlite() {
    assert_killed_runners_free_their_locks_on(&Stores::sqlite());
}

#[test]
fn killed_runner_frees_its_lock_on_file() {
    assert_killed_runners_free_their_locks_on(&Stores::file());
}

#[test]
fn killed_runner_frees_its_lock_on_redis() {
    assert_killed_runners_free_their_locks_on(&Stores::redis());
}

#[test]
fn killed_runner_frees_its_lock_on_postgres() {
    assert_killed_runners_free_their_locks_on(&Stores::postgres());
}

#[test]
fn killed_runner_frees_its_lock_on_mariadb() {
    assert_killed_runners_free_their_locks_on(&Stores::mariadb());
}

#[test]
fn killed_runner_frees_its_lock_on_zookeeper() {
    assert_killed_runners_free_their_locks_on(&Stores::zookeeper());
}

#[test]
fn killed_runner_frees_its_lock_on_etcd() {
    assert_killed_runners_free_their_locks_on(&Stores::etcd());
}

#[test]
fn killed_runner_frees_its_lock_on_consul() {
    assert_killed_runners_free_their_locks_on(&Stores::consul());
}

#[test]
fn killed_runner_frees_its_lock_on_memcached() {
    assert_killed_runners_free_their_locks_on(&Stores::memcached());
}

#[test]
fn killed_runner_frees_its_lock_on_a_quorum() {
    assert_killed_runners_free_their_locks_on(&Stores::quorums());
}

#[test]
fn killed_leader_frees_its_place() {
    assert_lock_is_free_after_the_kill(&Place::new(), "elect --value a k", "elect --value b k");
}

#[test]
fn killed_runner_frees_its_permits() {
    assert_lock_is_free_after_the_kill(&Place::new(), "run --permits 2/3 k", "run --permits 2/3 k");
}

#[test]
fn killed_runner_frees_its_share() {
    assert_lock_is_free_after_the_kill(&Place::new(), "run --shared k", "run k");
}

#[test]
fn killed_runner_frees_the_lock_of_its_second_term() {
    let place = Place::new();
    let leader = place.hold("elect --again k");
    let first = leader.program;
    fs::remove_file(place.path("holder")).unwrap();
    place.expect("release k --force", 0);
    let second = place.number_in("holder");
    assert_ne!(second, first);
    let mut next = next_client(&place, "run k", second);
    place.wait_for_waiters("k", 1);
    let start = Instant::now();
    leader.signal(Signal::KILL);
    place.wait_for_file("granted");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    assert_eq!(code(&finish(&mut next).expect("must end")), 0);
}

/// Kills the runner of a job, and waits until another is started. Returns how long that took since the start of the first
/// one, and since the kill.
fn times_until_the_next_job(at_least: &str) -> (Duration, Duration) {
    let (place, started) = (Place::new(), Instant::now());
    let job = place.hold(&format!("run --at-least {at_least} k"));
    let killed = Instant::now();
    job.signal(Signal::KILL);
    eventually("the next job", || {
        let output = place.leasehold(&format!("run --at-least {at_least} k -- true")).output().unwrap();
        (code(&output) == 0).then_some(())
    });
    (started.elapsed(), killed.elapsed())
}

#[test]
fn killed_runner_frees_its_job() {
    let (_, since_kill) = times_until_the_next_job("10ms");
    assert!(since_kill < LIMIT, "{since_kill:?}");
}

#[test]
fn killed_runner_keeps_the_tail_of_its_job() {
    let (since_start, since_kill) = times_until_the_next_job("4s");
    assert!(since_start >= Duration::from_secs(4), "{since_start:?}");
    assert!(since_kill < Duration::from_secs(4) + LIMIT, "{since_kill:?}");
}

#[test]
fn lock_of_a_killed_runner_is_released_after_its_group_has_ended() {
    let place = Place::new();
    // The member of the group that lives longest cannot be seen in the runner's children.
    let script = format!("sh -c 'echo $$ >g.new; mv g.new grandchild; {FOR_EVER}' & wait");
    let holder = place.hold_with("run k", &script);
    let grandchild = place.number_in("grandchild");
    let mut next = next_client(&place, "run k", grandchild);
    place.wait_for_waiters("k", 1);
    holder.signal(Signal::KILL);
    let state = eventually("the next grant", || fs::read_to_string(place.path("granted")).ok());
    assert_eq!(state, "dead\n");
    assert_eq!(code(&finish(&mut next).expect("must end")), 0);
}

#[test]
fn dead_runner_and_dead_guardian_leave_the_lock_to_its_lease() {
    let place = Place::new();
    let holder = place.hold("run --lease 3s k");
    let guardian = eventually("the guardian", || guardian_of(holder.runner.id()));
    holder.signal(Signal::STOP);
    kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
    holder.signal(Signal::KILL);
    place.expect("run --try k -- true", 75);
    place.expect("run --wait 30s k -- true", 0);
    // Nothing else ends it.
    let _ = kill_process_group(Pid::from_raw(holder.program).unwrap(), Signal::KILL);
}

#[test]
fn relative_path_of_the_store_is_that_of_the_runner() {
    let place = Place::on("sqlite:locks.db");
    assert_lock_is_free_after_the_kill(&place, "run k", "run k");
}

#[test]
fn default_store_is_that_of_the_runner() {
    let place = Place::on("sqlite:");
    assert_lock_is_free_after_the_kill(&place, "run k", "run k");
}

#[test]
fn guardian_that_replaces_another_knows_the_claim() {
    let place = Place::new();
    let holder = place.hold("run k");
    let first = eventually("the guardian", || guardian_of(holder.runner.id()));
    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let runner = holder.runner.id();
    eventually("another guardian", || guardian_of(runner).filter(|guardian| *guardian != first));
    sleep(Duration::from_millis(500));
    let start = Instant::now();
    holder.signal(Signal::KILL);
    place.expect("run --wait 30s k -- true", 0);
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

#[test]
fn secrets_of_the_store_are_in_no_argument_and_no_environment_of_the_guardian() {
    // The server trusts everybody on this machine, and looks at no password.
    let stores = Stores::postgres();
    let place = Place::on(&stores.urls[0].replace("postgres@", "postgres:hunter2@"));
    let holder = place.hold("run k");
    let guardian = eventually("the guardian", || guardian_of(holder.runner.id()));
    for file in ["cmdline", "environ"] {
        let shown = fs::read(format!("/proc/{guardian}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&shown).contains("hunter2"), "{file}");
    }
}
