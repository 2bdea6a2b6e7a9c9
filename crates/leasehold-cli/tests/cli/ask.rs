//! `release --ask`, and what `run --yield` makes of it.

use std::fs;
use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::json;

use super::util::{Holder, Place, code, eventually, text};

#[test]
fn who_is_asked_is_named() {
    let place = Place::new();
    let _holder = place.hold("run --label me k");
    let output = place.leasehold("release --ask k").output().unwrap();
    let said = text(&output.stdout);
    assert!(code(&output) == 0 && said.starts_with("k: asked me (token "), "{output:?}");
}

#[test]
fn a_run_that_is_asked_says_so_and_goes_on() {
    let place = Place::new();
    let mut holder = place.hold_with("run k", "while [ ! -e go ]; do sleep 0.01; done; echo done");
    place.expect("release --ask k", 0);
    let mut said = String::new();
    BufReader::new(holder.runner.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "leasehold: somebody asks for \"k\"\n");
    fs::write(place.path("go"), "").unwrap();
    let output = holder.finish();
    assert_eq!((code(&output), text(&output.stdout)), (0, "done\n"));
}

#[test]
fn a_run_that_gives_way_ends_the_program_and_frees_the_key() {
    let place = Place::new();
    let script = "trap 'echo bye; exit 3' TERM; echo >ready; while :; do sleep 0.01; done";
    let holder = place.hold_with("run --yield k", script);
    place.wait_for_file("ready");
    place.expect("release --ask k", 0);
    let output = holder.finish();
    assert_eq!((code(&output), text(&output.stdout)), (3, "bye\n"), "its own status is ours");
    assert!(text(&output.stderr).starts_with("leasehold: somebody asks for \"k\"\n"), "{output:?}");
    place.expect("run --try k -- true", 0);
}

#[test]
fn the_key_is_not_given_away_while_a_grandchild_is_still_at_work() {
    let place = Place::new();
    let script = "sh -c 'trap \"sleep 0.3; echo >finished; exit\" TERM
        echo >ready; while :; do sleep 0.01; done' >/dev/null 2>&1 & wait";
    let holder = place.hold_with("run --yield k", script);
    place.wait_for_file("ready");
    place.expect("release --ask k", 0);
    assert_eq!(code(&holder.finish()), 143, "the program itself ends at once");
    assert!(place.path("finished").exists());
}

#[test]
fn a_program_that_does_not_end_when_asked_is_killed_after_the_grace() {
    let place = Place::new();
    let script = "trap '' TERM; echo >ready; while :; do sleep 0.05; done";
    let holder = place.hold_with("run --yield --grace 100ms k", script);
    place.wait_for_file("ready");
    place.expect("release --ask k", 0);
    assert_eq!(code(&holder.finish()), 128 + 9);
}

#[test]
fn a_leader_that_gave_way_campaigns_again_behind_the_others() {
    let place = Place::new();
    let first = place.hold("elect --yield --again --label first k");
    let second = place.leasehold("elect --label second k -- sleep 60").spawn().unwrap();
    let second = Holder { runner: second, program: 0 };
    place.wait_for_waiters("k", 1);
    place.expect("release --ask k", 0);
    eventually("the second leader", || {
        let now = place.show("k");
        (now["holders"][0]["label"] == "second" && now["waiters"][0]["label"] == "first").then_some(())
    });
    second.signal(Signal::TERM);
    second.finish();
    eventually("the first again", || (place.show("k")["holders"][0]["label"] == "first").then_some(()));
    drop(first);
}

#[test]
fn a_latch_cannot_be_asked() {
    let place = Place::new();
    place.expect("latch set k 1", 0);
    place.expect("release --ask k", 64);
    assert_eq!(place.show("k")["holders"][0]["count"], json!(1));
}

#[test]
fn nobody_to_ask_is_fine() {
    let place = Place::new();
    place.expect("release --ask k", 0);
}
