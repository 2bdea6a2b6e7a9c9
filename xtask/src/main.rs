//! The repository's own tasks: `cargo xtask test`, `tidy` and `matrix`.
//!
//! Standard library only, so that it builds in a second and can say what is missing before anything that needs
//! it is built.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod cargo;
mod failures;
mod fetch;
mod programs;
mod servers;
mod suite;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test [--quick] [--allow-missing NAME]...
              install what the tests need, run all of them, end with `N passed, M failed`
              --quick: unit tests and conformance only
              --allow-missing NAME: go on without it, and list its tests as skipped
  tidy        check the rules that the compiler does not know
  matrix [--check]
              draw the README's table of stores again, or only say whether it is up to date";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test", options @ ..] => suite::Options::parse(options).and_then(|options| suite::run(&options)),
        ["tidy"] => tidy::run().map(|()| ExitCode::SUCCESS),
        ["matrix"] => cargo::matrix(&[]).map(|()| ExitCode::SUCCESS),
        ["matrix", "--check"] => cargo::matrix(&["--check"]).map(|()| ExitCode::SUCCESS),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        [] => Err(USAGE.to_owned()),
        _ => Err(format!("cannot do `{}`\n{USAGE}", words.join(" "))),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("xtask: {problem}");
        ExitCode::FAILURE
    })
}
