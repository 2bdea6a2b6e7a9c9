//! The repository's own tasks: `cargo xtask test`, `tidy` and `matrix`.
//!
//! Standard library only, so that it builds in a second and can say what is missing before anything that needs
//! it is built.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod cargo;
mod failures;
mod fetch;
mod needs;
mod options;
mod process;
mod programs;
mod runner;
mod selection;
mod servers;
mod suite;
mod summary;
mod tally;
mod tidy;
mod tiers;
mod unsteady;
mod versions;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test [--quick | --full [--resume]] [--allow-missing NAME]... [STORE]...
              install what the tests need and run them; the last line is `N passed, M failed`
              STORE: only the tests of this store or package, for example redis or cli
              --quick: unit tests, memory, SQLite and one Redis (4 minutes)
              --full: also ensembles, all SQL modes, other servers, soaks, power cuts and long simulations
                      (75 minutes); writes docs/test-summary.txt
              --resume: continue an interrupted full run of the same commit, if the tree has no changes
              --allow-missing NAME: run without this server and list its tests as skipped
  tidy        check the rules that the compiler does not know
  matrix [--check]
              write the README's table of stores, or only check that it is up to date";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test", options @ ..] => options::Options::parse(options).and_then(|options| suite::run(&options)),
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
