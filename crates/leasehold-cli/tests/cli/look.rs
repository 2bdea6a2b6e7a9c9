//! list, show, watch and release.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::util::{FOR_EVER, Place, code, text};

fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_free_key_is_shown_with_empty_arrays() {
    let place = Place::new();
    let shown = place.show("k");
    assert_eq!(shown, json!({"key": "k", "kind": null, "limit": null, "holders": [], "waiters": []}));
    let output = place.leasehold("show k").output().unwrap();
    assert_eq!((code(&output), text(&output.stdout)), (0, "k: free\n"));
}

#[test]
fn a_held_key_is_shown_in_the_promised_shape() {
    let place = Place::new();
    let _holder = place.hold("run --permits 2/3 --label me k");
    let mut waiter = place.leasehold("run --permits 3/3 --label you k -- true").spawn().unwrap();
    place.wait_for_waiters("k", 1);
    let shown = place.show("k");
    assert_eq!(fields(&shown), ["holders", "key", "kind", "limit", "waiters"]);
    let (holder, waiting) = (&shown["holders"][0], &shown["waiters"][0]);
    assert_eq!(
        fields(holder),
        ["count", "held_for_ms", "label", "lease_remaining_ms", "mode", "token", "units", "value"]
    );
    assert_eq!(fields(waiting), ["label", "lease_remaining_ms", "mode", "units", "waiting_for_ms"]);
    assert_eq!((&shown["key"], &shown["limit"]), (&Value::from("k"), &Value::from(3)));
    assert_eq!((&holder["label"], &holder["units"]), (&Value::from("me"), &Value::from(2)));
    assert_eq!((&waiting["label"], &waiting["units"]), (&Value::from("you"), &Value::from(3)));
    assert!(holder["token"].as_u64().unwrap() > 0);
    assert!(holder["lease_remaining_ms"].as_u64().unwrap() <= 30_000);
    waiter.kill().unwrap();
    waiter.wait().unwrap();
}

#[test]
fn no_output_shows_how_locks_count() {
    let place = Place::new();
    let _reader = place.hold("run --shared k");
    let _permit = place.hold("run --permits 1/3 permits");
    place.expect("latch set latch 2", 0);
    let mut writer = place.leasehold("run k -- true").spawn().unwrap();
    place.wait_for_waiters("k", 1);
    let shown = place.show("k");
    assert_eq!([&shown["holders"][0]["mode"], &shown["waiters"][0]["mode"]], ["shared", "exclusive"]);
    for (words, status) in [
        ("show k", 0),
        ("show --json k", 0),
        ("list", 0),
        ("list --json", 0),
        ("run --try permits -- true", 65),
        ("run --try latch -- true", 65),
        ("run --permits 1/3 k -- true", 65),
        ("run --permits 1/4 permits -- true", 65),
        ("latch set k 3", 65),
        ("latch wait permits", 65),
        ("run --permits 1/0 k -- true", 64),
        ("run --permits 1/9999999999999999 k -- true", 64),
    ] {
        let output = place.leasehold(words).output().unwrap();
        assert_eq!(code(&output), status, "{words}: {output:?}");
        for inner in ["4503599627370496", "4503599627370495", "2251799813685249", "Sum", "Units"] {
            let said = [text(&output.stdout), text(&output.stderr)];
            assert!(said.iter().all(|said| !said.contains(inner)), "{words}: {output:?}");
        }
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
}

#[test]
fn list_prints_an_array_of_what_starts_with_the_prefix() {
    let place = Place::new();
    let list = |words: &str| -> Value {
        let output = place.leasehold(words).output().unwrap();
        assert_eq!(code(&output), 0);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(list("list --json"), json!([]));
    let _one = place.hold("run orders/1");
    let _two = place.hold("run users/1");
    assert_eq!(list("list --json").as_array().unwrap().len(), 2);
    let some = list("list orders/ --json");
    assert_eq!(some.as_array().unwrap().len(), 1);
    assert_eq!(some[0]["key"], "orders/1");
    assert_eq!(fields(&some[0]), ["holders", "key", "kind", "limit", "waiters"]);
}

#[test]
fn control_characters_are_escaped_for_people() {
    let place = Place::new();
    let _holder = place.hold_with_words(&["run", "--label", "l\u{1b}]0;x\u{7}", "k\u{1b}[2J\n"], FOR_EVER);
    for words in [&["list"][..], &["show", "k\u{1b}[2J\n"]] {
        let output = place.leasehold("").args(words).output().unwrap();
        let shown = text(&output.stdout);
        assert!(shown.contains("k\\u{1b}[2J\\n: lock") && shown.contains("l\\u{1b}]0;x\\u{7}"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    }
}

#[test]
fn watch_prints_a_line_per_change() {
    let place = Place::new();
    let mut watch = place.leasehold("watch --json k").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut holders = || {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["holders"].as_array().unwrap().len()
    };
    assert_eq!(holders(), 0);
    let holder = place.hold("run k");
    assert_eq!(holders(), 1);
    holder.signal(Signal::TERM);
    holder.finish();
    assert_eq!(holders(), 0);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn release_without_force_says_what_it_would_do() {
    let place = Place::new();
    let _holder = place.hold("run --label me k");
    let output = place.leasehold("release k").output().unwrap();
    assert_eq!(code(&output), 64);
    assert!(text(&output.stderr).contains("would take \"k\" from me (token "), "{output:?}");
    assert_eq!(place.show("k")["holders"].as_array().unwrap().len(), 1);
}

#[test]
fn release_of_one_of_several_needs_its_token() {
    let place = Place::new();
    let one = place.hold("run --permits 1/2 --label one k");
    let two = place.hold("run --permits 1/2 --label two k");
    let output = place.leasehold("release k --force").output().unwrap();
    assert_eq!(code(&output), 64);
    let message = text(&output.stderr);
    assert!(message.contains("2 holders") && message.contains("one") && message.contains("two"), "{message}");
    let shown = place.show("k");
    let holders = shown["holders"].as_array().unwrap();
    let token = &holders.iter().find(|holder| holder["label"] == "two").unwrap()["token"];
    place.expect(&format!("release k --force --token {token}"), 0);
    assert_eq!(code(&two.finish()), 79);
    one.signal(Signal::TERM);
    assert_eq!(code(&one.finish()), 143);
}

#[test]
fn release_says_in_json_what_it_did() {
    let place = Place::new();
    let said = || -> Value {
        let output = place.leasehold("release k --force --json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let free = json!({"key": "k", "released": false, "token": null, "label": null});
    assert_eq!(said(), free);
    let holder = place.hold("run --label me k");
    let token = place.show("k")["holders"][0]["token"].clone();
    assert_eq!(said(), json!({"key": "k", "released": true, "token": token, "label": "me"}));
    holder.finish();
}

#[test]
fn release_of_a_free_key_is_fine() {
    let place = Place::new();
    place.expect("release k --force", 0);
    place.expect("release k --force --token 5", 0);
}
