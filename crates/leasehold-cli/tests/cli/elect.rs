//! `elect`: a program runs while we lead.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::util::{Place, code, eventually, finish, is_alive, text};

#[test]
fn everybody_can_see_what_the_leader_publishes() {
    let place = Place::new();
    let _leader = place.hold("elect --value 10.0.0.7:8080 k");
    assert_eq!(place.show("k")["holders"][0]["value"], "10.0.0.7:8080");
    let output = place.leasehold("show k").output().unwrap();
    assert!(text(&output.stdout).contains("value \"10.0.0.7:8080\""), "{output:?}");
}

#[test]
fn the_programs_own_status_is_ours() {
    let place = Place::new();
    let output = place.run_script("elect k", "exit 7").output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (7, ""));
    assert_eq!(place.show("k")["holders"], json!([]), "resigned");
}

#[test]
fn a_leaders_program_gets_key_and_token() {
    let place = Place::new();
    let output = place.run_script("elect k", "echo $LEASEHOLD_KEY $LEASEHOLD_TOKEN").output().unwrap();
    let (key, token) = text(&output.stdout).trim().split_once(' ').unwrap();
    assert_eq!((key, token.parse::<u64>().is_ok()), ("k", true));
}

#[test]
fn the_next_candidate_leads_when_the_leader_resigns() {
    let place = Place::new();
    let leader = place.hold("elect k");
    place.expect("elect --try k -- true", 75);
    place.expect("elect --wait 100ms k -- true", 75);
    let mut next = place.leasehold("elect k -- true").spawn().unwrap();
    place.wait_for_waiters("k", 1);
    leader.signal(Signal::TERM);
    assert_eq!(code(&leader.finish()), 143);
    assert_eq!(code(&finish(&mut next).expect("must lead")), 0);
}

#[test]
fn a_leader_keeps_a_run_on_the_same_key_out() {
    let place = Place::new();
    let _leader = place.hold("elect k");
    place.expect("run --try k -- true", 75);
}

#[test]
fn a_signal_ends_the_campaign() {
    let place = Place::new();
    let _leader = place.hold("elect k");
    let mut candidate = place.leasehold("elect --again k -- touch ran").spawn().unwrap();
    place.wait_for_waiters("k", 1);
    kill_process(Pid::from_child(&candidate), Signal::TERM).unwrap();
    assert_eq!(code(&finish(&mut candidate).expect("must end")), 143);
    assert_eq!(place.show("k")["waiters"], json!([]));
    assert!(!place.path("ran").exists());
}

#[test]
fn a_leader_that_is_deposed_ends_with_79_and_its_program_is_dead() {
    let place = Place::new();
    let leader = place.hold("elect k");
    let program = leader.program;
    place.expect("release k --force", 0);
    assert_eq!(code(&leader.finish()), 79);
    assert!(!is_alive(program));
}

#[test]
fn a_leader_that_is_deposed_can_lead_again_with_a_larger_token() {
    let place = Place::new();
    let script = "echo $LEASEHOLD_TOKEN >>tokens; while :; do sleep 60; done";
    let leader = place.hold_with("elect --again k", script);
    let token = || place.show("k")["holders"][0]["token"].as_u64();
    let (program, first) = (leader.program, token().unwrap());
    place.expect("release k --force", 0);
    let second = eventually("another term", || token().filter(|token| *token != first));
    assert!(!is_alive(program), "dead before the next term");
    let tokens = eventually("the second program", || {
        let tokens = fs::read_to_string(place.path("tokens")).ok()?;
        (tokens.lines().count() == 2).then_some(tokens)
    });
    assert_eq!(tokens, format!("{first}\n{second}\n"));
    assert!(second > first);
    leader.signal(Signal::TERM);
    let output = leader.finish();
    assert_eq!(code(&output), 143, "the program's own end is ours");
    assert_eq!(text(&output.stderr), "leasehold: lost \"k\": the store ended it; the program was ended\n");
}

/// What was told on stderr.
fn events(stderr: &[u8]) -> Vec<Value> {
    text(stderr).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_tells_a_supervisor_what_happens() {
    let place = Place::new();
    let leader = place.hold("elect --json --again k");
    let first = place.show("k")["holders"][0]["token"].clone();
    place.expect("release k --force", 0);
    let second = eventually("another term", || {
        let now = place.show("k")["holders"][0]["token"].clone();
        (now != json!(null) && now != first).then_some(now)
    });
    // The second program is there when the terminal or a signal can reach it: its pid is written anew.
    let old = leader.program;
    eventually("the second program", || (place.number_in("holder") != old).then_some(()));
    leader.signal(Signal::TERM);
    let output = leader.finish();
    let expected = [
        json!({"event": "acquired", "key": "k", "token": first}),
        json!({"event": "lost", "key": "k", "cause": "the store ended it"}),
        json!({"event": "acquired", "key": "k", "token": second}),
        json!({"event": "released", "key": "k"}),
    ];
    assert_eq!(events(&output.stderr), expected);
}

#[test]
fn json_tells_why_nothing_was_run() {
    let place = Place::new();
    let _leader = place.hold("elect k");
    let output = place.leasehold("run --json --try k -- true").output().unwrap();
    let expected = json!({"event": "failed", "exit": 75, "message": "\"k\" is busy"});
    assert_eq!((code(&output), events(&output.stderr)), (75, vec![expected]));
}
