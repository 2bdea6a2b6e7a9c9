//! `cargo bench -p leasehold-bench --bench mysql [-- [--quick] [--json] [ROW...]]`
//!
//! Leasehold on a MariaDB server of its own that syncs every commit, beside the least that the same job could cost with the
//! same client and as many connections. See the crate's README.

mod limits;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_bench::command::{self, Asked, Form};
use leasehold_bench::contest::{Effort, Result, contest};
use leasehold_bench::handover::{Wake, hand_overs};
use leasehold_bench::report::{self, Report};
use leasehold_bench::round::Load;
use leasehold_bench::subject::{Ours, Outcome};
use leasehold_core::Client;
use leasehold_mysql::Mysql;
use leasehold_servers::mariadb::MariaDb;

use limits::{Named, Raw, waited};

const ROWS: [&str; 5] = ["pairs-1", "pairs-16", "pairs-64", "hot", "wake"];

/// Everything in less than two minutes.
const FULL: Effort = Effort { rounds: 5, round: Duration::from_millis(500) };

/// How many connections a store of ours makes.
const CONNECTIONS: usize = 8;

/// Ours in a mode, and its name.
async fn ours(url: &str, mode: &'static str) -> Outcome<(&'static str, Ours)> {
    Ok((mode, Ours(Client::new(Mysql::from_url(&format!("{url}?mode={mode}"))?).await?)))
}

async fn pairs(url: &str, tasks: usize, effort: Effort) -> Outcome<Vec<Result>> {
    let load = Load::Apart(tasks);
    let mut results = Vec::new();
    for mode in ["lease", "rowlock"] {
        let raw = ("upsert, delete by key", Raw::connect(url, CONNECTIONS).await?);
        let result = contest("mysql", load, effort, ours(url, mode).await?, raw).await?;
        results.push(if mode == "lease" { result.goal(0.5) } else { result });
    }
    let named = ("GET_LOCK, RELEASE_LOCK", Named::connect(url, CONNECTIONS).await?);
    results.push(contest("mysql", load, effort, ours(url, "advisory").await?, named).await?);
    Ok(results)
}

async fn hot(url: &str, effort: Effort) -> Outcome<Vec<Result>> {
    let (load, mut results) = (Load::Together(64), Vec::new());
    for mode in ["lease", "advisory"] {
        let waits = ("GET_LOCK that waits", Named::connect(url, load.tasks()).await?);
        results.push(contest("mysql", load, effort, ours(url, mode).await?, waits).await?);
    }
    Ok(results)
}

async fn wake(url: &str, effort: Effort) -> Outcome<Wake> {
    // Who waits with a client of the same store is told at once: these are two processes as far as they know.
    let (one, other) = (ours(url, "lease").await?.1, ours(url, "lease").await?.1);
    let mut wake = Wake::beside(&[("GET_LOCK that waits", None)]);
    for _ in 0..effort.rounds {
        // One takes up to 30 ms, and the 99th percentile needs some hundreds.
        hand_overs([&one, &other], 4 * effort.round, &mut wake.grants).await?;
        waited(url, effort.round, &mut wake.beside[0].times).await?;
    }
    Ok(wake)
}

async fn run(asked: Asked) -> Outcome<()> {
    let server = MariaDb::with(&["--max-connections=500"]);
    let (url, effort) = (server.url(), asked.effort);
    let mut report = Report::new(effort);
    let mut others = serde_json::Map::new();
    let show = |text: &str| match asked.form {
        Form::People => writeln!(std::io::stdout(), "{}", text.trim_end()),
        Form::Machines => Ok(()),
    };
    show(&report.heading())?;
    for row in asked.rows {
        let results = match row {
            "pairs-1" => pairs(&url, 1, effort).await?,
            "pairs-16" => pairs(&url, 16, effort).await?,
            "pairs-64" => pairs(&url, 64, effort).await?,
            "hot" => hot(&url, effort).await?,
            _ => {
                let wake = wake(&url, effort).await?;
                show(&wake.to_string())?;
                others.insert(row.to_owned(), serde_json::to_value(&wake)?);
                Vec::new()
            }
        };
        for result in results {
            show(&report::lines(&result))?;
            report.results.push(result);
        }
    }
    if asked.form == Form::Machines {
        others.insert("pairs".to_owned(), serde_json::to_value(&report)?);
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&others)?)?;
    }
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    command::main("mysql", &ROWS, FULL, run)
}
