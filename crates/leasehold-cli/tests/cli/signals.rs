//! Signals sent to the runner.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::util::{Place, code, finish, text};

#[test]
fn term_int_and_hup_are_forwarded() {
    for (name, signal) in [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP)] {
        let place = Place::new();
        let script =
            format!("trap 'echo got {name}; exit 7' {name}; echo >ready; while :; do sleep 0.01; done");
        let holder = place.hold_with("run k", &script);
        place.wait_for_file("ready");
        holder.signal(signal);
        let output = holder.finish();
        assert_eq!((code(&output), text(&output.stdout)), (7, &*format!("got {name}\n")));
        place.expect("run --try k -- true", 0);
    }
}

#[test]
fn a_forwarded_signal_reaches_grandchildren() {
    let place = Place::new();
    let script = "sh -c 'echo $$ >g.new; mv g.new grandchild; sleep 60; :' & wait";
    let holder = place.hold_with("run k", script);
    let grandchild = place.number_in("grandchild");
    holder.signal(Signal::TERM);
    assert_eq!(code(&holder.finish()), 128 + 15);
    super::util::wait_until_dead(grandchild);
}

#[test]
fn a_signal_ends_the_wait_and_withdraws_the_claim() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let place = Place::new();
        let _holder = place.hold("run k");
        let mut waiter = place.leasehold("run k -- touch ran").stdout(Stdio::null()).spawn().unwrap();
        place.wait_for_waiters("k", 1);
        kill_process(Pid::from_child(&waiter), signal).unwrap();
        assert_eq!(code(&finish(&mut waiter).expect("must end")), status);
        assert_eq!(place.show("k")["waiters"].as_array().unwrap().len(), 0);
        assert!(!place.path("ran").exists());
    }
}

#[test]
fn nohup_stays_in_force() {
    let place = Place::new();
    let bin = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("trap '' HUP; exec {bin} run k -- sh -c 'kill -HUP $$ $PPID; echo alive'");
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &script]).env("LEASEHOLD_STORE", place.url()).output().unwrap();
    assert_eq!((code(&output), text(&output.stdout)), (0, "alive\n"));
}
