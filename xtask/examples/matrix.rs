//! Draws the README's table of stores from what the stores say about themselves.
//!
//! Called by `cargo xtask matrix`. A new store is one line in `stores`; nothing else here knows one store from
//! another.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::process::ExitCode;
use std::time::Duration;

use leasehold_core::{Feature, Info, Memory, Store, TokenStrength};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const START: &str = "<!-- drawn by `cargo xtask matrix` -->\n";
const END: &str = "<!-- end of the matrix -->";

/// Every store that works, in the order of the table.
fn stores() -> Vec<Info> {
    vec![
        Memory::new().info().clone(),
        leasehold_sqlite::INFO.clone(),
        leasehold_redis::INFO.clone(),
        leasehold_postgres::INFO.clone(),
        leasehold_mysql::INFO.clone(),
        leasehold_zookeeper::INFO.clone(),
        leasehold_etcd::INFO.clone(),
        leasehold_consul::INFO.clone(),
        leasehold_memcached::INFO.clone(),
        leasehold_file::INFO.clone(),
    ]
}

fn main() -> ExitCode {
    let check = std::env::args().any(|argument| argument == "--check");
    match update(check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("matrix: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn update(check: bool) -> Result<(), String> {
    let readme =
        std::fs::read_to_string(README).map_err(|error| format!("cannot read README.md: {error}"))?;
    let missing = || format!("README.md needs the lines `{}` and `{END}`", START.trim_end());
    let (before, rest) = readme.split_once(START).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    let drawn = format!("{before}{START}\n{}\n{END}{after}", table(&stores()));
    if drawn == readme {
        return Ok(());
    }
    if check {
        return Err("the README's table is not what the stores say: run `cargo xtask matrix`".to_owned());
    }
    std::fs::write(README, drawn).map_err(|error| format!("cannot write README.md: {error}"))
}

/// One column per store; first what users ask for, then what is promised.
fn table(stores: &[Info]) -> String {
    let row = |name: &str, cell: &dyn Fn(&Info) -> String| {
        let cells: Vec<_> = stores.iter().map(cell).collect();
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    let mut table = row("", &|info| format!("`{}`", info.name));
    table += &row("---", &|_| "---".to_owned());
    for feature in Feature::ALL {
        table += &row(feature.name(), &|info| yes(info.supports(*feature)));
    }
    table += &row("a job's `at_least` survives its process", &|info| yes(info.keeps_at_least()));
    table += &row("grants follow the queue", &|info| yes(info.ordered));
    table += &row("a waiter is told of its turn", &|info| {
        if info.pushes { "at once".to_owned() } else { "it polls".to_owned() }
    });
    table += &row("[tokens](docs/safety.md#tokens) rise", &|info| {
        match info.tokens {
            TokenStrength::Durable => "while no commit is lost",
            TokenStrength::ClockBound => "while its data lasts, then by the clock",
            TokenStrength::Process => "while the process lives",
        }
        .to_owned()
    });
    table += &row("shortest lease", &|info| length(info.min_lease));
    table
}

fn yes(it_does: bool) -> String {
    if it_does { "yes" } else { "no" }.to_owned()
}

fn length(d: Duration) -> String {
    if d.subsec_millis() == 0 { format!("{} s", d.as_secs()) } else { format!("{} ms", d.as_millis()) }
}
