use super::File;
use super::rules::*;

fn file(path: &str, text: impl Into<String>) -> File {
    File { path: path.to_owned(), text: text.into() }
}

#[test]
fn a_file_of_401_lines_is_too_long_and_one_of_400_is_not() {
    let files = [file("crates/a/src/long.rs", "x\n".repeat(401)), file("xtask/src/ok.rs", "x\n".repeat(400))];
    assert_eq!(
        files_are_short(&files),
        ["crates/a/src/long.rs: 401 lines, the most is 400: split it by idea"]
    );
}

#[test]
fn a_long_file_that_is_not_code_is_left_alone() {
    assert!(files_are_short(&[file("crates/a/runs/raw.json", "x\n".repeat(900))]).is_empty());
}

const STORE: &str = "crates/leasehold-redis/Cargo.toml";
const README: &str = "crates/leasehold-redis/README.md";
const FULL: &str = "## Use it\n## How it works here\n## Guarantees and limits\n## Options\n## Operating it\n";

#[test]
fn a_store_with_the_five_headings_is_in_order() {
    assert!(stores_explain_themselves(&[file(STORE, ""), file(README, FULL)]).is_empty());
}

#[test]
fn a_store_without_a_readme_is_named() {
    assert_eq!(stores_explain_themselves(&[file(STORE, "")]).len(), 1);
}

#[test]
fn a_missing_heading_is_named() {
    let files = [file(STORE, ""), file(README, FULL.replace("## Options\n", ""))];
    let complaints = stores_explain_themselves(&files);
    assert_eq!(complaints.len(), 1);
    assert!(complaints[0].contains("Options"), "{complaints:?}");
}

#[test]
fn headings_in_another_order_are_noticed() {
    let swapped = "## Options\n## Use it\n## How it works here\n## Guarantees and limits\n## Operating it\n";
    assert_eq!(stores_explain_themselves(&[file(STORE, ""), file(README, swapped)]).len(), 1);
}

#[test]
fn crates_that_are_not_stores_need_no_headings() {
    assert!(stores_explain_themselves(&[file("crates/leasehold-cli/Cargo.toml", "")]).is_empty());
}

#[test]
fn a_crate_with_lints_of_its_own_is_named() {
    let files = [
        file("crates/a/Cargo.toml", "[lints]\nworkspace = true\n"),
        file("crates/b/Cargo.toml", "[package]"),
    ];
    assert_eq!(
        crates_inherit_the_lints(&files),
        ["crates/b/Cargo.toml: add `[lints]` with `workspace = true`"]
    );
}

#[test]
fn an_allow_without_a_reason_is_named_with_its_line() {
    let text = "fn a() {}\n    #[allow(unsafe_code)]\nfn b() {}";
    assert_eq!(exceptions_have_a_reason(&[file("a.rs", text)]), ["a.rs:2: say why: add `reason = \"...\"`"]);
}

#[test]
fn a_reason_on_a_later_line_of_the_attribute_counts() {
    let text = "#[allow(\n    unsafe_code,\n    reason = \"sigaction has no safe form\"\n)]\nfn b() {}";
    assert!(exceptions_have_a_reason(&[file("a.rs", text)]).is_empty());
}

#[test]
fn a_path_of_this_machine_is_named() {
    let path = ["", "root", "project"].join("/");
    assert_eq!(nothing_names_this_machine(&[file("a.md", format!("see `{path}`"))]).len(), 1);
}

#[test]
fn a_path_that_only_contains_such_a_name_is_fine() {
    let path = ["src", "root", "project"].join("/");
    assert!(nothing_names_this_machine(&[file("a.md", format!("see `{path}`"))]).is_empty());
}

#[test]
fn a_dependency_from_elsewhere_is_named() {
    let lock =
        "source = \"registry+https://github.com/rust-lang/index\"\nsource = \"git+https://example.org/x\"\n";
    let files = [file("Cargo.lock", lock), file(".cargo/config.toml", "[source.crates-io]\n")];
    assert_eq!(dependencies_come_from_the_default_registry(&files).len(), 2);
}

#[test]
fn a_link_to_a_missing_file_is_named_and_others_are_not() {
    let text = "[a](safety.md#clocks) [b](../README.md) [c](../crates/a) [d](https://x.org/y.md) [e](#here) [f](crate::Store)";
    let files = [
        file("docs/index.md", text),
        file("docs/safety.md", ""),
        file("README.md", ""),
        file("crates/a/b.rs", ""),
    ];
    assert!(links_lead_somewhere(&files).is_empty());
    assert_eq!(links_lead_somewhere(&files[..1]).len(), 3);
}

/// A page with one table, and the three ways in which code names a test.
fn documented(test: &str) -> Vec<String> {
    let page = format!(
        "| what happens | what follows | test |\n|---|---|---|\n| `x::y` dies | see `Info::checks` | {test} |\n"
    );
    let code = "async fn y() {}\nTrial::test(\"a_trial\", run),\n    an_entry: of_a_macro,\n";
    documented_tests_exist(&[file("docs/safety.md", page), file("crates/a/tests/x.rs", code)])
}

#[test]
fn a_documented_test_that_exists_is_in_order() {
    for test in ["`y`", "`x::y`", "`crates/a/tests/x.rs::y`", "`a_trial`, `an_entry`", "no test"] {
        assert!(documented(test).is_empty(), "{test}: {:?}", documented(test));
    }
}

#[test]
fn a_documented_test_that_does_not_exist_is_named_with_its_line() {
    assert_eq!(documented("`y`, `x::z`"), ["docs/safety.md:3: no such test: x::z"]);
    assert_eq!(documented("`of_a_macro`").len(), 1);
    assert_eq!(documented("`other::y`").len(), 1, "that file has no such test");
}

#[test]
fn a_row_without_a_test_says_so() {
    assert_eq!(documented("-"), ["docs/safety.md:3: name the test of this row, or write `no test`"]);
}

#[test]
fn a_test_that_prose_names_exists_too() {
    let page = file("docs/threat-model/redis.md", "It cannot (`forged::gone`), see `Info::checks`.");
    assert_eq!(documented_tests_exist(&[page]), ["docs/threat-model/redis.md:1: no such test: forged::gone"]);
}

#[test]
fn unsteady_test_that_was_renamed_is_named() {
    let page = "| test | cause | fixed by |\n|---|---|---|\n| `cut::old` in a | x | abc |\n";
    let files = [file("docs/unsteady-tests.md", page), file("crates/a/tests/cut.rs", "fn new() {}")];
    assert_eq!(documented_tests_exist(&files), ["docs/unsteady-tests.md:3: no such test: cut::old"]);
}
