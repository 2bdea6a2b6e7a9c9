//! A password in the store's URL is nobody's business.

use super::util::{Place, code, text};

const MARKER: &str = "hunter2";

#[test]
fn a_password_is_in_no_output() {
    let place = Place::new();
    for url in ["redis://u:hunter2@h/0", "memory://u:hunter2@h", "sqlite://u:hunter2@h/x?y", "u:hunter2@h"] {
        for words in
            ["-v run k -- true", "-v list", "-v show k", "-v release k --force", "run --help", "-v run k"]
        {
            for in_arguments in [true, false] {
                let mut command = place.leasehold(words);
                command.env("RUST_LOG", "trace").env("LEASEHOLD_STORE", url);
                if in_arguments {
                    command = place.leasehold("--store");
                    command.arg(url).args(words.split_whitespace()).env("RUST_LOG", "trace");
                }
                let output = command.output().unwrap();
                let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
                assert!(!all.contains(MARKER), "{url} {words}: {all}");
            }
        }
    }
}

#[test]
fn a_password_is_not_handed_to_the_program() {
    let place = Place::new();
    let mut command = place.leasehold("run --store");
    command.args([&place.url(), "k", "--", "env"]).env("LEASEHOLD_STORE", "redis://u:hunter2@h");
    let output = command.output().unwrap();
    assert!(text(&output.stdout).contains("LEASEHOLD_KEY=k"), "{output:?}");
    assert!(!text(&output.stdout).contains(MARKER));
}

#[test]
fn a_run_inside_a_run_does_not_fall_back_to_another_store() {
    let place = Place::new();
    let mut command = place.leasehold("run --store");
    command.args([
        &place.url(),
        "k",
        "--",
        env!("CARGO_BIN_EXE_leasehold"),
        "run",
        "k",
        "--",
        "touch",
        "ran",
    ]);
    let output = command.env("LEASEHOLD_STORE", "redis://u:hunter2@h").output().unwrap();
    assert_eq!(code(&output), 64, "{output:?}");
    assert!(text(&output.stderr).contains("redis://u:***@h"), "{output:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn a_store_without_a_password_is_handed_on() {
    let place = Place::new();
    let output = place.leasehold("run k -- env").output().unwrap();
    assert!(text(&output.stdout).contains(&format!("LEASEHOLD_STORE={}", place.url())));
}
