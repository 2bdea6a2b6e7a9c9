//! `cargo bench -p leasehold-bench --bench redis [-- [--quick] [--json]]`
//!
//! Leasehold on a Redis server of its own, beside the least that the same job could cost with the same client, and
//! beside other crates. See the crate's README.

mod holding;
mod limits;
mod peers;
mod processes;
mod wake;

use std::io::Write;
use std::process::ExitCode;

use leasehold_bench::contest::{Effort, contest};
use leasehold_bench::report::Report;
use leasehold_bench::round::Load;
use leasehold_bench::subject::{Ours, Outcome};
use leasehold_core::{Client, Options};
use leasehold_redis::Redis;

use limits::{BlpopLoop, SetAndDelete, TwoScripts};
use peers::{AsyncRedisLock, Rslock};

const USAGE: &str = "usage: cargo bench -p leasehold-bench --bench redis [-- [--quick] [--json]]";

/// A client of ours on this server.
pub(crate) async fn ours(url: &str, options: Options) -> Outcome<Ours> {
    Ok(Ours(Client::builder().defaults(options).connect(Redis::from_url(url)?).await?))
}

async fn uncontended(report: &mut Report, url: &str) -> Outcome<()> {
    for load in [Load::Apart(1), Load::Apart(16), Load::Apart(256)] {
        let effort = report.effort;
        let us = async || Outcome::Ok(("leasehold", ours(url, Options::new()).await?));
        let raw = ("SET NX PX + compare-and-delete", SetAndDelete::connect(url).await?);
        report.results.push(contest("redis", load, effort, us().await?, raw).await?);
        let scripts = ("two minimal scripts", TwoScripts::connect(url).await?);
        report.results.push(contest("redis", load, effort, us().await?, scripts).await?);
        let rslock = ("rslock 0.10", Rslock::connect(url)?);
        report.results.push(contest("redis", load, effort, us().await?, rslock).await?);
        let other = ("async-redis-lock 0.4", AsyncRedisLock::connect(url).await?);
        report.results.push(contest("redis", load, effort, us().await?, other).await?);
    }
    Ok(())
}

async fn contended(report: &mut Report, url: &str) -> Outcome<()> {
    for load in [Load::Together(64), Load::Working(64)] {
        let effort = report.effort;
        let fair = async || Outcome::Ok(("leasehold", ours(url, Options::new()).await?));
        let barging =
            async || Outcome::Ok(("leasehold, barging", ours(url, Options::new().barging()).await?));
        let limit = ("BLPOP, RPUSH", BlpopLoop::connect(url, load.tasks()).await?);
        report.results.push(contest("redis", load, effort, fair().await?, limit).await?);
        let rslock = ("rslock 0.10", Rslock::connect(url)?);
        report.results.push(contest("redis", load, effort, fair().await?, rslock).await?);
        let other = ("async-redis-lock 0.4", AsyncRedisLock::connect(url).await?);
        report.results.push(contest("redis", load, effort, fair().await?, other).await?);
        let rslock = ("rslock 0.10", Rslock::connect(url)?);
        report.results.push(contest("redis", load, effort, barging().await?, rslock).await?);
        let other = ("async-redis-lock 0.4", AsyncRedisLock::connect(url).await?);
        report.results.push(contest("redis", load, effort, barging().await?, other).await?);
    }
    Ok(())
}

async fn run(effort: Effort, json: bool) -> Outcome<()> {
    let mut server = leasehold_servers::redis::Redis::start();
    let url = server.url();
    let mut report = Report::new(effort);
    uncontended(&mut report, &url).await?;
    contended(&mut report, &url).await?;
    let wake = wake::measure(&url, effort).await?;
    let processes = processes::measure(&url, effort)?;
    let holding = holding::measure(&url, server.process().pid(), effort).await?;
    let mut out = std::io::stdout();
    if json {
        let extra = serde_json::json!({
            "pairs": report, "release_to_grant": wake, "processes": processes, "holding": holding,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&extra)?)?;
    } else {
        writeln!(out, "{}\n{wake}\n{processes}\n{holding}", report.table())?;
    }
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let [flag, child @ ..] = arguments.as_slice()
        && flag == processes::CHILD
    {
        runtime.block_on(processes::child(child))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut effort, mut json) = (Effort::FULL, false);
    for argument in &arguments {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--json" => json = true,
            _ => {
                writeln!(std::io::stderr(), "{USAGE}")?;
                return Ok(ExitCode::from(64));
            }
        }
    }
    runtime.block_on(run(effort, json))?;
    Ok(ExitCode::SUCCESS)
}
