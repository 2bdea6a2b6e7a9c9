//! `cargo bench -p leasehold-bench --bench zookeeper [-- [--quick] [ROW...]]`
//!
//! Leasehold on a ZooKeeper server of its own, beside the least that the same job could cost with the same client, and
//! beside Curator where Java and Curator are there.

mod curator;
mod raw;
mod wake;

use std::io::Write;
use std::process::ExitCode;

use leasehold_bench::contest::{Effort, contest};
use leasehold_bench::report::{self, Report};
use leasehold_bench::round::Load;
use leasehold_bench::subject::{Ours, Outcome};
use leasehold_core::Client;
use leasehold_zookeeper::ZooKeeper;

const USAGE: &str = "usage: cargo bench -p leasehold-bench --bench zookeeper [-- [--quick] [ROW...]]
rows: all, or some of pairs-1 pairs-16 hot wake";

const ROWS: [&str; 4] = ["pairs-1", "pairs-16", "hot", "wake"];

/// A client of ours on this server.
pub(crate) async fn ours(port: u16) -> Outcome<Ours> {
    let store = ZooKeeper::from_url(&format!("zookeeper://127.0.0.1:{port}?tick=200ms"))?;
    Ok(Ours(Client::new(store).await?))
}

async fn row(row: &str, port: u16, effort: Effort) -> Outcome<String> {
    let uncontended = async |tasks| {
        let (ours, raw) = (ours(port).await?, raw::Pair::connect(port).await?);
        let peer = ("create + delete", raw);
        let result = contest("zookeeper", Load::Apart(tasks), effort, ("leasehold", ours), peer).await?;
        Outcome::Ok(report::lines(&result.goal(0.7)))
    };
    match row {
        "pairs-1" => uncontended(1).await,
        "pairs-16" => uncontended(16).await,
        "hot" => Ok(curator::measure(port, effort).await?.to_string()),
        _ => Ok(wake::measure(port, effort).await?.to_string()),
    }
}

async fn run(effort: Effort, rows: &[&str]) -> Outcome<()> {
    let server = leasehold_servers::zookeeper::ZooKeeper::start();
    writeln!(std::io::stdout(), "{}", Report::new(effort).heading().trim_end())?;
    for name in rows {
        let shown = row(name, server.port(), effort).await?;
        writeln!(std::io::stdout(), "{}", shown.trim_end())?;
    }
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    let (mut effort, mut rows) = (Effort::FULL, Vec::new());
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    for argument in &arguments {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            row if ROWS.contains(&row) => rows.push(row),
            _ => {
                writeln!(std::io::stderr(), "{USAGE}")?;
                return Ok(ExitCode::from(64));
            }
        }
    }
    if rows.is_empty() {
        rows.extend(ROWS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(effort, &rows))?;
    Ok(ExitCode::SUCCESS)
}
