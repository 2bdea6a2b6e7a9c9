//! The exit codes of the contract, one by one.

use std::fs;

use super::util::{Place, code, text};

#[test]
fn the_programs_own_status_is_ours() {
    let place = Place::new();
    place.expect("run k -- true", 0);
    for status in [1, 64, 79, 255] {
        let output = place.run_script("run k", &format!("exit {status}")).output().unwrap();
        assert_eq!(code(&output), status);
    }
}

#[test]
fn a_signal_that_ended_the_program_is_128_and_its_number() {
    let place = Place::new();
    let output = place.run_script("run k", "kill -9 $$").output().unwrap();
    assert_eq!(code(&output), 128 + 9);
    let output = place.run_script("run k", "kill -TERM $$").output().unwrap();
    assert_eq!(code(&output), 128 + 15);
}

#[test]
fn a_missing_program_is_127_and_the_key_is_free() {
    let place = Place::new();
    place.expect("run k -- /no/such/program", 127);
    place.expect("run k -- no-such-program", 127);
    let output = place.leasehold("run k --").arg("").output().unwrap();
    assert_eq!(code(&output), 127, "{output:?}");
    place.expect("run --try k -- true", 0);
}

#[test]
fn a_program_that_is_not_executable_is_126_and_the_key_is_free() {
    let place = Place::new();
    fs::write(place.path("data"), "no program").unwrap();
    place.expect("run k -- ./data", 126);
    place.expect("run k -- /", 126);
    place.expect("run --try k -- true", 0);
}

#[test]
fn bad_usage_is_64_and_nothing_runs() {
    let place = Place::new();
    let long = format!("run {} -- touch ran", "x".repeat(1025));
    for words in [
        "",
        "run",
        "run k",
        "run k touch ran",
        "run --wait soon k -- touch ran",
        "run --wait -1s k -- touch ran",
        "run --lease 0s k -- touch ran",
        "run --lease 0 k -- touch ran",
        "run --lease 1000000y k -- touch ran",
        "run --max-hold 0s k -- touch ran",
        "run --permits 4/3 k -- touch ran",
        "run --permits 0/3 k -- touch ran",
        "run --permits x k -- touch ran",
        "run --try --wait 1s k -- touch ran",
        "run --shared --permits 1/2 k -- touch ran",
        "run --at-least 1s --wait 1s k -- touch ran",
        "run --at-least 1s --shared k -- touch ran",
        "run --at-least 0 k -- touch ran",
        "run --at-least 10000y k -- touch ran",
        "elect k",
        "elect --fixed k -- touch ran",
        "latch",
        "latch set k",
        "latch set k 0",
        "latch set k -1",
        "latch set k many",
        "latch set k 1 --lives-for 0",
        "latch down k 0",
        "latch wait k --wait soon",
        "man frob",
        "man latch frob",
        "run --lease 1us k -- touch ran",
        "run --lease 99ms k -- touch ran",
        "run --store memory:// k -- touch ran",
        "run --store quorum:memory://a,memory://b,memory://c k -- touch ran",
        "run --store nonsense k -- touch ran",
        "run --store gopher://x k -- touch ran",
        "run --no-such-option k -- touch ran",
        "no-such-command",
        "show",
        "release k --token x",
        &long,
    ] {
        let output = place.leasehold(words).output().unwrap();
        assert_eq!(code(&output), 64, "{words}: {output:?}");
        assert!(!output.stderr.is_empty(), "{words}: must say why");
    }
    let output = place.leasehold("run").args(["", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(code(&output), 64, "the empty key");
    assert!(!place.path("ran").exists());
}

#[test]
fn short_lease_is_refused_with_the_shortest() {
    let output = Place::new().leasehold("run --lease 1ms k -- true").output().unwrap();
    assert!(text(&output.stderr).contains("this store keeps 100ms to"), "{output:?}");
}

/// A variable that is set to nothing would otherwise choose a store that no other machine uses.
#[test]
fn empty_store_is_64() {
    let place = Place::new();
    let variable = place.leasehold("run k -- true").env("LEASEHOLD_STORE", "").output().unwrap();
    let option = place.leasehold("run --store").args(["", "k", "--", "true"]).output().unwrap();
    for output in [variable, option] {
        assert_eq!(code(&output), 64, "{output:?}");
        assert!(text(&output.stderr).contains("LEASEHOLD_STORE"), "{output:?}");
    }
    assert!(!place.path("state").exists());
}

#[test]
fn mistyped_directory_is_named_and_not_made() {
    let place = Place::new();
    let missing = place.path("nosuch").display().to_string();
    for url in [format!("sqlite://{missing}/locks.db"), format!("file://{missing}/locks/")] {
        let output = place.leasehold("run --store").args([&url, "k", "--", "true"]).output().unwrap();
        assert_eq!(code(&output), 69, "{output:?}");
        assert!(text(&output.stderr).contains(&format!("there is no directory {missing}")), "{output:?}");
    }
    assert!(!place.path("nosuch").exists());
}

#[test]
fn conflict_names_the_kind() {
    let place = Place::new();
    let _holder = place.hold("run --permits 1/3 k");
    let output = place.leasehold("run k -- true").output().unwrap();
    let message = "is a semaphore with 3 permits: use the same kind and limit everywhere";
    assert!(text(&output.stderr).contains(message), "{output:?}");
}

#[test]
fn the_longest_key_is_accepted() {
    let place = Place::new();
    place.expect(&format!("run {} -- true", "x".repeat(1024)), 0);
}

#[test]
fn the_longest_durations_are_accepted() {
    let place = Place::new();
    place.expect("run --wait 10000y --max-hold 10000y --grace 10000y k -- true", 0);
}

#[test]
fn another_limit_is_65() {
    let place = Place::new();
    let _holder = place.hold("run --permits 1/3 k");
    place.expect("run --permits 1/2 k -- true", 65);
    place.expect("run --try k -- true", 65);
    place.expect("run --try --shared k -- true", 65);
    place.expect("run --try --permits 2/3 k -- true", 0);
}

#[test]
fn an_unreachable_store_is_69() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let url = format!("sqlite://{}", place.path("file/locks.db").display());
    let output = place.leasehold("run --store").args([&url, "k", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), 69, "{output:?}");
}

#[test]
fn busy_is_75() {
    let place = Place::new();
    let _holder = place.hold("run k");
    let output = place.leasehold("run --try k -- touch ran").output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (75, "leasehold: \"k\" is busy\n"));
    place.expect("run --wait 500ms k -- touch ran", 75);
    assert!(!place.path("ran").exists());
}

#[test]
fn help_and_version_are_0_and_list_codes_and_environment() {
    let place = Place::new();
    for words in ["--help", "run --help", "elect --help"] {
        let output = place.leasehold(words).output().unwrap();
        assert_eq!(code(&output), 0);
        for word in ["64", "65", "69", "75", "79", "126", "127", "LEASEHOLD_STORE", "LEASEHOLD_TOKEN"] {
            assert!(text(&output.stdout).contains(word), "{words} lacks {word}");
        }
    }
    place.expect("--version", 0);
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = place.leasehold("completions bash").stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn completions_and_the_manual_are_generated() {
    let place = Place::new();
    let output = place.leasehold("completions bash").output().unwrap();
    assert!(text(&output.stdout).contains("_leasehold"));
    for (words, content) in [
        ("man", ".TH leasehold 1"),
        ("man", "EXIT STATUS"),
        ("man run", "max\\-hold"),
        ("man latch set", "lives\\-for"),
    ] {
        let output = place.leasehold(words).output().unwrap();
        assert!(text(&output.stdout).contains(content), "{words}: {content}");
    }
}
