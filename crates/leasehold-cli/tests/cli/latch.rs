//! `latch`: set, count down, wait, show, delete.

use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::util::{Place, code, finish, text};

/// What it prints when it ends well.
fn printed(place: &Place, words: &str) -> String {
    let output = place.leasehold(words).output().unwrap();
    assert_eq!(code(&output), 0, "{words}: {output:?}");
    text(&output.stdout).to_owned()
}

/// Somebody who waits for the latch, in the queue.
fn waiter(place: &Place) -> Child {
    let mut wait = place.leasehold("latch wait k");
    let waiter = wait.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.wait_for_waiters("k", 1);
    waiter
}

#[test]
fn a_latch_counts_down_to_open() {
    let place = Place::new();
    assert_eq!(printed(&place, "latch show k"), "k: open\n");
    assert_eq!(printed(&place, "latch set k 4"), "k: 4 left\n");
    assert_eq!(printed(&place, "latch down k"), "k: 3 left\n");
    assert_eq!(printed(&place, "latch down k 2"), "k: 1 left\n");
    assert_eq!(printed(&place, "latch show k"), "k: 1 left\n");
    assert_eq!(printed(&place, "latch down k 2"), "k: open\n");
    assert_eq!(printed(&place, "latch down k"), "k: open\n");
}

#[test]
fn json_has_key_and_count() {
    let place = Place::new();
    let json = |words: &str| -> serde_json::Value { serde_json::from_str(&printed(&place, words)).unwrap() };
    assert_eq!(json("latch set k 2 --json"), json!({"key": "k", "count": 2}));
    assert_eq!(json("latch down k --json"), json!({"key": "k", "count": 1}));
    assert_eq!(json("latch show k --json"), json!({"key": "k", "count": 1}));
    assert_eq!(json("latch delete k --json"), json!({"key": "k", "deleted": true}));
    assert_eq!(json("latch delete k --json"), json!({"key": "k", "deleted": false}));
    assert_eq!(json("latch wait k --json"), json!({"key": "k", "count": 0}));
}

#[test]
fn a_set_latch_is_not_set_again() {
    let place = Place::new();
    place.expect("latch set k 2", 0);
    place.expect("latch set k 5", 75);
    assert_eq!(printed(&place, "latch show k"), "k: 2 left\n");
}

#[test]
fn a_latch_can_be_set_again_once_it_is_open() {
    let place = Place::new();
    place.expect("latch set k 1", 0);
    place.expect("latch down k", 0);
    place.expect("latch set k 3", 0);
    assert_eq!(printed(&place, "latch show k"), "k: 3 left\n");
}

#[test]
fn a_waiter_goes_on_when_the_count_is_zero() {
    let place = Place::new();
    place.expect("latch set k 1", 0);
    let mut waiter = waiter(&place);
    place.expect("latch down k", 0);
    let output = finish(&mut waiter).expect("must go on");
    assert_eq!((code(&output), text(&output.stdout)), (0, "k: open\n"));
    assert_eq!(place.show("k")["holders"], json!([]));
}

#[test]
fn waiter_for_a_latch_that_must_exist_waits_until_it_is_set() {
    let place = Place::new();
    assert_eq!(printed(&place, "latch wait k"), "k: open\n");
    let output = place.leasehold("latch wait k --must-exist --wait 100ms").output().unwrap();
    assert_eq!(code(&output), 75, "{output:?}");
    assert!(text(&output.stderr).contains("\"k\" was not set, or is still closed"), "{output:?}");
    let mut wait = place.leasehold("latch wait k --must-exist");
    let mut waiter = wait.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.expect("latch set k 1", 0);
    place.wait_for_waiters("k", 1);
    place.expect("latch down k", 0);
    let output = finish(&mut waiter).expect("must go on");
    assert_eq!((code(&output), text(&output.stdout)), (0, "k: open\n"));
}

#[test]
fn the_wait_limit_is_75() {
    let place = Place::new();
    place.expect("latch set k 1", 0);
    let output = place.leasehold("latch wait k --wait 100ms").output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (75, "leasehold: \"k\" is still closed\n"));
    assert_eq!(place.show("k")["waiters"], json!([]));
}

#[test]
fn who_waits_for_a_deleted_latch_ends_with_79() {
    for words in ["latch delete k", "release k --force"] {
        let place = Place::new();
        place.expect("latch set k 1", 0);
        let mut waiter = waiter(&place);
        assert_eq!(printed(&place, words), "k: deleted\n");
        assert_eq!(code(&finish(&mut waiter).expect("must end")), 79);
    }
}

#[test]
fn a_signal_ends_the_wait_and_leaves_the_queue() {
    let place = Place::new();
    place.expect("latch set k 1", 0);
    let mut waiter = waiter(&place);
    kill_process(Pid::from_child(&waiter), Signal::TERM).unwrap();
    assert_eq!(code(&finish(&mut waiter).expect("must end")), 143);
    assert_eq!(place.show("k")["waiters"], json!([]));
}

#[test]
fn a_latch_opens_by_itself_at_the_end_of_its_life() {
    let place = Place::new();
    place.expect("latch set k 1 --lives-for 300ms", 0);
    let mut wait = place.leasehold("latch wait k").stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(code(&finish(&mut wait).expect("must open")), 0);
}

#[test]
fn show_and_list_know_a_latch() {
    let place = Place::new();
    place.expect("latch set k 2", 0);
    let shown = place.show("k");
    assert_eq!((&shown["kind"], &shown["holders"][0]["count"]), (&json!("latch"), &json!(2)));
    assert_eq!(shown["holders"][0]["value"], json!(null), "what a latch keeps there is its own");
    let listed = printed(&place, "list");
    assert!(listed.starts_with("k: latch\n  2 left, token "), "{listed}");
}

#[test]
fn release_without_force_says_what_it_would_do_to_a_latch() {
    let place = Place::new();
    place.expect("latch set k 2", 0);
    let output = place.leasehold("release k").output().unwrap();
    assert_eq!(code(&output), 64);
    assert!(text(&output.stderr).contains("would delete the latch \"k\" with 2 left"), "{output:?}");
    assert_eq!(printed(&place, "latch show k"), "k: 2 left\n");
}

#[test]
fn a_key_in_use_as_a_lock_is_65() {
    let place = Place::new();
    let _holder = place.hold("run k");
    place.expect("latch set k 1", 65);
    place.expect("latch wait k", 65);
}
