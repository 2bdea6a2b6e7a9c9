//! `cargo bench -p leasehold-bench --bench postgres [-- [--quick] [--json]]`
//!
//! Leasehold on a PostgreSQL server of its own that syncs every commit, beside the least that the same job could cost with
//! the same client and as many connections. See the crate's README.

mod limits;
mod wake;

use std::io::Write;
use std::process::ExitCode;

use leasehold_bench::contest::{Effort, contest};
use leasehold_bench::report::Report;
use leasehold_bench::round::Load;
use leasehold_bench::subject::{Ours, Outcome};
use leasehold_core::{Client, Options};
use leasehold_postgres::Postgres;
use leasehold_servers::postgres::Postgres as Server;

use limits::{Pair, Raw};

const USAGE: &str = "usage: cargo bench -p leasehold-bench --bench postgres [-- [--quick] [--json]]";

/// A client of ours on this server.
pub(crate) async fn ours(url: &str, options: Options) -> Outcome<Ours> {
    Ok(Ours(Client::builder().defaults(options).connect(Postgres::from_url(url)?).await?))
}

async fn pairs(report: &mut Report, url: &str) -> Outcome<()> {
    let effort = report.effort;
    for load in [Load::Apart(1), Load::Apart(16), Load::Apart(64)] {
        let us = async || Outcome::Ok(("leasehold", ours(url, Options::new()).await?));
        let raw = ("upsert, delete by key", Raw::connect(url, Pair::Statements).await?);
        report.results.push(contest("postgres", load, effort, us().await?, raw).await?);
        let functions = ("the same in two functions", Raw::connect(url, Pair::Functions).await?);
        report.results.push(contest("postgres", load, effort, us().await?, functions).await?);
    }
    for load in [Load::Together(64)] {
        let fair = ("leasehold", ours(url, Options::new()).await?);
        let barging = ("leasehold, barging", ours(url, Options::new().barging()).await?);
        report.results.push(contest("postgres", load, effort, fair, barging).await?);
    }
    Ok(())
}

async fn run(effort: Effort, json: bool) -> Outcome<()> {
    let server = Server::with(&[]);
    let url = server.url();
    let mut report = Report::new(effort);
    pairs(&mut report, &url).await?;
    let wake = wake::measure(&url, effort).await?;
    let mut out = std::io::stdout();
    if json {
        let extra = serde_json::json!({ "pairs": report, "release_to_grant": wake });
        writeln!(out, "{}", serde_json::to_string_pretty(&extra)?)?;
    } else {
        writeln!(out, "{}\n{wake}", report.table())?;
    }
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    let (mut effort, mut json) = (Effort::FULL, false);
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--json" => json = true,
            _ => {
                writeln!(std::io::stderr(), "{USAGE}")?;
                return Ok(ExitCode::from(64));
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(effort, json))?;
    Ok(ExitCode::SUCCESS)
}
