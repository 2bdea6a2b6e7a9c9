//! What happens to the program when the lock is lost, or the runner is.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::util::{Place, code, eventually, guardian_of, is_alive, text, wait_until_dead};

/// Cannot be ended by TERM, and has a grandchild that cannot be ended by it either.
const STUBBORN: &str = "trap '' TERM INT HUP
    sh -c 'echo $$ >g.new; mv g.new grandchild; while :; do sleep 0.05; done' &
    while :; do sleep 0.05; done";

#[test]
fn an_evicted_runner_ends_with_79_and_its_group_is_dead() {
    let place = Place::new();
    let holder = place.hold_with("run --grace 100ms k", STUBBORN);
    let (program, grandchild) = (holder.program, place.number_in("grandchild"));
    place.expect("release k --force", 0);
    let output = holder.finish();
    assert_eq!(code(&output), 79);
    assert!(!is_alive(program) && !is_alive(grandchild), "dead before the runner ends");
    let message = "leasehold: lost \"k\": the store ended it; the program was ended\n";
    assert_eq!(text(&output.stderr), message);
    place.expect("run --try k -- true", 0);
}

#[test]
fn the_program_is_asked_to_end_before_it_is_killed() {
    let place = Place::new();
    let script = "trap 'echo bye; exit 0' TERM; echo >ready; while :; do sleep 0.01; done";
    let holder = place.hold_with("run k", script);
    place.wait_for_file("ready");
    place.expect("release k --force", 0);
    let output = holder.finish();
    assert_eq!((code(&output), text(&output.stdout)), (79, "bye\n"));
}

#[test]
fn a_fixed_lease_that_ran_out_ends_the_program() {
    let place = Place::new();
    let holder = place.hold_with("run --lease 2s --fixed k", STUBBORN);
    let grandchild = place.number_in("grandchild");
    assert!(!place.next_finds_running("k", grandchild), "dead before the next one starts");
    assert_eq!(code(&holder.finish()), 79);
}

#[test]
fn a_lease_is_renewed_while_the_program_runs() {
    let place = Place::new();
    let output = place.run_script("run --lease 300ms k", "sleep 1.2").output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (0, ""));
}

#[test]
fn max_hold_ends_the_program() {
    let place = Place::new();
    let output = place.run_script("run --lease 2s --max-hold 300ms k", "sleep 60").output().unwrap();
    assert_eq!(code(&output), 79);
    assert!(text(&output.stderr).contains("max_hold"), "{output:?}");
    place.expect("run --try k -- true", 0);
}

#[test]
fn a_killed_runner_takes_the_whole_group_with_it() {
    let place = Place::new();
    let holder = place.hold_with("run k", STUBBORN);
    let (program, grandchild) = (holder.program, place.number_in("grandchild"));
    holder.signal(Signal::KILL);
    wait_until_dead(program);
    wait_until_dead(grandchild);
}

#[test]
fn a_runner_killed_at_any_moment_leaves_no_program() {
    // The runner is killed a little later each time, so that some die between fork and exec.
    let place = Place::new();
    for delay in 0..40 {
        let key = format!("k{delay}");
        let mut runner =
            place.run_script(&format!("run {key}"), "echo $$ >pid.$LEASEHOLD_KEY; exec sleep 60");
        let mut runner = runner.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(500 * delay));
        kill_process(Pid::from_child(&runner), Signal::KILL).unwrap();
        runner.wait().unwrap();
    }
    let alive = || {
        (0..40).any(|delay| {
            let pid = std::fs::read_to_string(place.path(&format!("pid.k{delay}"))).unwrap_or_default();
            pid.trim().parse().is_ok_and(is_alive)
        })
    };
    eventually("the death of every program", || (!alive()).then_some(()));
}

#[test]
fn the_guardian_cannot_be_talked_out_of_it() {
    let place = Place::new();
    let holder = place.hold_with("run k", "trap '' TERM; while :; do sleep 0.05; done");
    let guardian = eventually("the guardian", || guardian_of(holder.runner.id()));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::TSTP, Signal::USR1] {
        kill_process(Pid::from_raw(guardian).unwrap(), signal).unwrap();
    }
    let program = holder.program;
    holder.signal(Signal::KILL);
    wait_until_dead(program);
    wait_until_dead(guardian);
}

#[test]
fn a_stopped_runner_cannot_overstay_its_lease() {
    let place = Place::new();
    let holder = place.hold_with("run --lease 2s k", STUBBORN);
    let grandchild = place.number_in("grandchild");
    holder.signal(Signal::STOP);
    assert!(!place.next_finds_running("k", grandchild), "the guardian kills it in time");
    holder.signal(Signal::CONT);
    assert_eq!(code(&holder.finish()), 79);
}
