//! `cargo bench -p leasehold-bench --bench redis [-- [--quick] [--json] [ROW...]]`
//!
//! Leasehold on a Redis server of its own, beside the least that the same job could cost with the same client, and
//! beside other crates. See the crate's README.

mod holding;
mod layers;
mod limits;
mod peers;
mod processes;
mod queue;
mod wake;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_bench::contest::{self, Effort, contest};
use leasehold_bench::report::{self, Report};
use leasehold_bench::round::Load;
use leasehold_bench::subject::{Ours, Outcome};
use leasehold_core::{Client, Options};
use leasehold_redis::Redis;
use serde::Serialize;

use holding::Locks;
use limits::{BlpopLoop, SetAndDelete, TwoScripts};
use peers::{AsyncRedisLock, Rslock};
use queue::ScriptQueue;

const USAGE: &str = "usage: cargo bench -p leasehold-bench --bench redis [-- [--quick] [--json] [ROW...]]
rows: all, or some of pairs-1 pairs-16 pairs-256 hot hot-1ms wake processes holding holding-3s holding-10s layers-1 layers-16 layers-256 hot-fair hot-scripts";

/// What is measured unless rows are named: what an issue asks for. The layers only explain.
const ROWS: [&str; 10] = [
    "pairs-1",
    "pairs-16",
    "pairs-256",
    "hot",
    "hot-1ms",
    "wake",
    "processes",
    "holding",
    "holding-3s",
    "holding-10s",
];
/// Where the time of an uncontended pair goes, and the hot lock beside its limit alone.
const LAYERS: [&str; 5] = ["layers-1", "layers-16", "layers-256", "hot-fair", "hot-scripts"];

/// A client of ours on this server.
pub(crate) async fn ours(url: &str, options: Options) -> Outcome<Ours> {
    Ok(Ours(Client::builder().defaults(options).connect(Redis::from_url(url)?).await?))
}

/// Everything that was measured, shown as it comes in.
struct Run {
    url: String,
    server: u32,
    json: bool,
    report: Report,
    others: serde_json::Map<String, serde_json::Value>,
}

impl Run {
    fn show(&self, text: &dyn Display) -> Outcome<()> {
        if !self.json {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }

    fn add(&mut self, result: contest::Result) -> Outcome<()> {
        self.show(&report::lines(&result).trim_end())?;
        self.report.results.push(result);
        Ok(())
    }

    fn other(&mut self, row: &str, figures: &(impl Serialize + Display)) -> Outcome<()> {
        self.show(&figures)?;
        self.others.insert(row.to_owned(), serde_json::to_value(figures)?);
        Ok(())
    }

    async fn row(&mut self, row: &str) -> Outcome<()> {
        let (url, effort) = (self.url.clone(), self.report.effort);
        match row {
            "pairs-1" => self.uncontended(1, 0.7).await,
            "pairs-16" => self.uncontended(16, 0.5).await,
            "pairs-256" => self.uncontended(256, 0.5).await,
            "hot" => self.contended(Load::Together(64)).await,
            "hot-1ms" => self.contended(Load::Working(64)).await,
            "hot-fair" => self.fair(Load::Together(64)).await,
            "hot-scripts" => self.least(Load::Together(64)).await,
            "layers-1" => self.other(row, &layers::measure(&url, self.server, 1, effort).await?),
            "layers-16" => self.other(row, &layers::measure(&url, self.server, 16, effort).await?),
            "layers-256" => self.other(row, &layers::measure(&url, self.server, 256, effort).await?),
            "wake" => self.other(row, &wake::measure(&url, effort).await?),
            "processes" => self.other(row, &processes::measure(&url, effort)?),
            "holding-3s" => self.holding(row, 10_000, 3).await,
            "holding-10s" => self.holding(row, 100_000, 10).await,
            _ => self.holding(row, 10_000, 30).await,
        }
    }

    async fn holding(&mut self, row: &str, count: usize, seconds: u64) -> Outcome<()> {
        let locks = Locks { count, lease: Duration::from_secs(seconds) };
        let held = holding::measure(&self.url, self.server, locks, self.report.effort).await?;
        self.other(row, &held)
    }

    async fn ours(&self) -> Outcome<(&'static str, Ours)> {
        Ok(("leasehold", ours(&self.url, Options::new()).await?))
    }

    async fn barging(&self) -> Outcome<(&'static str, Ours)> {
        Ok(("leasehold, barging", ours(&self.url, Options::new().barging()).await?))
    }

    fn rslock(&self) -> Outcome<(&'static str, Rslock)> {
        Ok(("rslock 0.10", Rslock::connect(&self.url)?))
    }

    async fn async_redis_lock(&self) -> Outcome<(&'static str, AsyncRedisLock)> {
        Ok(("async-redis-lock 0.4", AsyncRedisLock::connect(&self.url).await?))
    }

    async fn uncontended(&mut self, tasks: usize, goal: f64) -> Outcome<()> {
        let (load, effort) = (Load::Apart(tasks), self.report.effort);
        let raw = ("SET NX PX + compare-and-delete", SetAndDelete::connect(&self.url).await?);
        self.add(contest("redis", load, effort, self.ours().await?, raw).await?.goal(goal))?;
        let scripts = ("two minimal scripts", TwoScripts::connect(&self.url).await?);
        self.add(contest("redis", load, effort, self.ours().await?, scripts).await?)?;
        self.add(contest("redis", load, effort, self.ours().await?, self.rslock()?).await?)?;
        let other = self.async_redis_lock().await?;
        self.add(contest("redis", load, effort, self.ours().await?, other).await?)
    }

    async fn fair(&mut self, load: Load) -> Outcome<()> {
        let effort = self.report.effort;
        let limit = ("BLPOP, RPUSH", BlpopLoop::connect(&self.url, load.tasks()).await?);
        self.add(contest("redis", load, effort, self.ours().await?, limit).await?.goal(0.8))
    }

    /// What the least that a fair lock could do costs, beside the bare hand-over and beside ours.
    async fn least(&mut self, load: Load) -> Outcome<()> {
        let effort = self.report.effort;
        for (name, connections) in
            [("two minimal scripts", 1), ("two minimal scripts, a connection each", load.tasks())]
        {
            let limit = ("BLPOP, RPUSH", BlpopLoop::connect(&self.url, load.tasks()).await?);
            let least = (name, ScriptQueue::connect(&self.url, connections).await?);
            self.add(contest("redis", load, effort, least, limit).await?)?;
        }
        let least = ("two minimal scripts", ScriptQueue::connect(&self.url, 1).await?);
        self.add(contest("redis", load, effort, self.ours().await?, least).await?)
    }

    async fn contended(&mut self, load: Load) -> Outcome<()> {
        let effort = self.report.effort;
        self.fair(load).await?;
        self.add(contest("redis", load, effort, self.ours().await?, self.rslock()?).await?)?;
        let other = self.async_redis_lock().await?;
        self.add(contest("redis", load, effort, self.ours().await?, other).await?)?;
        self.add(contest("redis", load, effort, self.barging().await?, self.rslock()?).await?.goal(1.0))?;
        let other = self.async_redis_lock().await?;
        self.add(contest("redis", load, effort, self.barging().await?, other).await?.goal(1.0))
    }
}

async fn run(effort: Effort, json: bool, rows: &[&str]) -> Outcome<()> {
    let mut server = leasehold_servers::redis::Redis::start();
    let (url, server) = (server.url(), server.process().pid());
    let mut run = Run { url, server, json, report: Report::new(effort), others: serde_json::Map::new() };
    run.show(&run.report.heading().trim_end())?;
    for row in rows {
        run.row(row).await?;
    }
    if json {
        run.others.insert("pairs".to_owned(), serde_json::to_value(&run.report)?);
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&run.others)?)?;
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
    let (mut effort, mut json, mut rows) = (Effort::FULL, false, Vec::new());
    for argument in &arguments {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--json" => json = true,
            row if ROWS.contains(&row) || LAYERS.contains(&row) => rows.push(row),
            _ => {
                writeln!(std::io::stderr(), "{USAGE}")?;
                return Ok(ExitCode::from(64));
            }
        }
    }
    if rows.is_empty() {
        rows.extend(ROWS);
    }
    runtime.block_on(run(effort, json, &rows))?;
    Ok(ExitCode::SUCCESS)
}
