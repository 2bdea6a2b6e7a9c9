//! `run --at-least`: not started again too soon, and not for ever.

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
