//! `run --at-least`: not started again too soon, and not for ever.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::traced::Traced;
use super::util::{Place, code, eventually, guardian_of, is_alive, text};

#[test]
fn a_job_is_not_started_again_for_at_least_that_long() {
    let place = Place::new();
    place.expect("run --at-least 1h k -- true", 0);
    let output = place.leasehold("run --at-least 1h k -- touch ran").output().unwrap();
    let message = "leasehold: \"k\" is not due: it runs elsewhere, or was started not long ago\n";
    assert_eq!((code(&output), text(&output.stderr)), (75, message));
    assert!(!place.path("ran").exists());
}

#[test]
fn a_job_that_failed_is_not_started_again_either() {
    let place = Place::new();
    let output = place.run_script("run --at-least 1h k", "exit 3").output().unwrap();
    assert_eq!(code(&output), 3);
    place.expect("run --at-least 1h k -- true", 75);
}

#[test]
fn a_job_that_cannot_be_started_is_still_due() {
    let place = Place::new();
    place.expect("run --at-least 1h k -- /no/such/program", 127);
    place.expect("run --at-least 1h k -- true", 0);
}

#[test]
fn a_job_is_due_again_when_that_time_is_over() {
    let place = Place::new();
    place.expect("run --at-least 300ms k -- true", 0);
    eventually("the next run", || {
        let output = place.leasehold("run --at-least 300ms k -- true").output().unwrap();
        (code(&output) == 0).then_some(())
    });
}

#[test]
fn a_job_that_takes_longer_leaves_nothing_behind() {
    let place = Place::new();
    let output = place.run_script("run --at-least 10ms k", "sleep 0.1").output().unwrap();
    assert_eq!(code(&output), 0);
    assert_eq!(place.show("k")["holders"].as_array().unwrap().len(), 0);
}

#[test]
fn a_running_job_keeps_other_runs_out() {
    let place = Place::new();
    let _holder = place.hold("run --at-least 10ms --label nightly k");
    place.expect("run --at-least 10ms k -- true", 75);
    place.expect("run --try k -- true", 75);
    assert_eq!(place.show("k")["holders"][0]["label"], "nightly");
}

#[test]
fn a_finished_job_is_shown_as_finished_and_can_be_made_due() {
    let place = Place::new();
    place.expect("run --at-least 1h --label nightly k -- true", 0);
    let output = place.leasehold("show k").output().unwrap();
    let shown = text(&output.stdout);
    assert!(shown.starts_with("k: lock\n  finished by nightly, token "), "{shown}");
    assert!(shown.contains("due in 59m") && !shown.contains("held by"), "{shown}");
    let shown = place.show("k");
    assert_eq!(shown["holders"], serde_json::json!([]));
    assert_eq!(
        (&shown["finished"][0]["label"], &shown["finished"][0]["units"]),
        (&"nightly".into(), &1.into())
    );
    let listed = place.leasehold("list").output().unwrap();
    assert_eq!(text(&listed.stdout).lines().count(), 2, "{listed:?}");
    place.expect("release k --ask", 64);
    place.expect("release k", 64);
    place.expect("release k --force", 0);
    place.expect("run --at-least 1h k -- true", 0);
}

#[test]
fn a_killed_runner_keeps_the_job_for_one_lease_or_its_pause() {
    let place = Place::new();
    let killed = |words: &str| {
        let start = Instant::now();
        let holder = place.hold(words);
        holder.signal(Signal::KILL);
        eventually("the next run", || {
            let output = place.leasehold("run --at-least 10ms k -- true").output().unwrap();
            (code(&output) == 0).then_some(())
        });
        start.elapsed()
    };
    killed("run --at-least 10ms --lease 1s k");
    let pause = Duration::from_secs(3);
    let took = killed("run --at-least 3s --lease 1s k");
    assert!(took >= pause, "started again after {took:?}");
}

#[test]
fn a_job_is_ended_after_max_hold() {
    let place = Place::new();
    let holder = place.hold("run --at-least 3s --max-hold 3s k");
    let program = holder.program;
    assert!(!place.next_finds_running("k", program), "dead before the next one starts");
    assert_eq!(code(&holder.finish()), 79);
}

#[test]
fn a_job_that_was_started_is_not_due_again_after_a_failure_of_the_runner() {
    let place = Place::new();
    // The runner forks for its guardian and for the program. It cannot fork for another guardian.
    let no_fork = "-e trace=clone,fork,vfork -e inject=clone,fork,vfork:error=EAGAIN:when=3+";
    let words =
        ["run", "--at-least", "1h", "k", "--", "sh", "-c", "echo $$ >p.new; mv p.new program; sleep 60"];
    let runner = Traced::start(&place, no_fork, &words);
    let program = place.number_in("program");
    let guardian = guardian_of(u32::try_from(runner.runner).unwrap()).expect("a guardian");
    kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
    assert_eq!(runner.finish(), Some(126));
    assert!(!is_alive(program), "the program must not run unguarded");
    place.expect("run --at-least 1h k -- true", 75);
}
