//! `cargo bench -p leasehold-bench --bench consul [-- [--quick] [--json] [ROW...]]`
//!
//! Leasehold on a Consul server of its own, beside a bare pair of conditional writes on the same kind of connections. The
//! server's data are on a disk in memory. See the crate's README.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_bench::contest::{Effort, contest};
use leasehold_bench::handover::{Times, Wake, hand_overs, rest};
use leasehold_bench::report::{self, Report};
use leasehold_bench::round::{Inside, Load};
use leasehold_bench::subject::{Ours, Outcome, Subject};
use leasehold_consul::Consul;
use leasehold_consul::raw::{Raw, Safe};
use leasehold_core::{Client, Error};
use leasehold_servers::consul::Consul as Server;

const USAGE: &str = "usage: cargo bench -p leasehold-bench --bench consul [-- [--quick] [--json] [ROW...]]
rows: all, or some of pairs-1 pairs-16 hot wake";

/// How long the record of a lock is that one holds.
const RECORD: usize = 280;

const ROWS: [&str; 4] = ["pairs-1", "pairs-16", "hot", "wake"];

/// The least that a lock can cost: a key that is created if it is not there, and its removal.
#[derive(Clone)]
struct CasPair(Raw);

impl Subject for CasPair {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let index = self.0.put(name).await?;
        inside.await;
        self.0.delete(name, index).await?;
        Ok(())
    }
}

/// The same with what makes it safe, and a value as long as ours.
#[derive(Clone)]
struct SafePair(Safe);

impl Subject for SafePair {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let index = self.0.put(name, &[b'v'; RECORD]).await?;
        inside.await;
        self.0.delete(name, index).await?;
        Ok(())
    }
}

/// The same by one process that has a queue of its own.
#[derive(Clone)]
struct Queued(CasPair, Arc<tokio::sync::Mutex<()>>);

impl Subject for Queued {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let _turn = self.1.lock().await;
        self.0.pair(name, inside).await
    }
}

async fn client(url: &str) -> Result<Client, Error> {
    Client::new(Consul::from_url(url)?).await
}

async fn wake(url: &str, effort: Effort) -> Outcome<Wake> {
    let (one, other) = (Ours(client(url).await?), Ours(client(url).await?));
    let mut wake = Wake::beside(&[("bare delete to the answer of a blocking query, and a put", Some(1.5))]);
    for _ in 0..effort.rounds {
        hand_overs([&one, &other], effort.round, &mut wake.grants).await?;
        events(url, effort.round, &mut wake.beside[0].times).await?;
    }
    Ok(wake)
}

/// One deletes a key, the other hears of it and writes: what a lock cannot do without.
async fn events(url: &str, length: Duration, times: &mut Times) -> Outcome<()> {
    let (one, two) = (Raw::new(url)?, Raw::new(url)?);
    let began = Instant::now();
    while began.elapsed() < length {
        let index = one.put("bench/bare").await?;
        let other = two.clone();
        let waiting = tokio::spawn(async move {
            other.changed("bench/bare", index).await?;
            let next = other.put("bench/next").await?;
            Ok::<_, Error>((next, Instant::now()))
        });
        rest().await;
        let released = Instant::now();
        one.delete("bench/bare", index).await?;
        let (next, at) = waiting.await??;
        times.add(at - released);
        two.delete("bench/next", next).await?;
    }
    Ok(())
}

async fn run(effort: Effort, json: bool, rows: &[&str]) -> Outcome<()> {
    let server = Server::start();
    let url = server.url();
    let mut report = Report::new(effort);
    let mut others = serde_json::Map::new();
    let show = |text: &dyn fmt::Display| if json { Ok(()) } else { writeln!(std::io::stdout(), "{text}") };
    show(&report.heading().trim_end())?;
    for row in rows {
        let ours = ("leasehold", Ours(client(&url).await?));
        let results = match *row {
            "pairs-1" | "pairs-16" => {
                let tasks = if *row == "pairs-1" { 1 } else { 16 };
                let load = Load::Apart(tasks);
                let raw = ("create + delete", CasPair(Raw::new(&url)?));
                let safe = ("the same with a session", SafePair(Safe::open(Raw::new(&url)?).await?));
                let against_raw = contest("consul", load, effort, ours.clone(), raw).await?.goal(0.7);
                vec![against_raw, contest("consul", load, effort, ours, safe).await?]
            }
            "hot" => {
                let raw = (
                    "create + delete, a queue in the process",
                    Queued(CasPair(Raw::new(&url)?), Arc::default()),
                );
                vec![contest("consul", Load::Together(64), effort, ours, raw).await?]
            }
            _ => {
                let figures = wake(&url, effort).await?;
                show(&figures)?;
                others.insert((*row).to_owned(), serde_json::to_value(&figures)?);
                Vec::new()
            }
        };
        for result in results {
            show(&report::lines(&result).trim_end())?;
            report.results.push(result);
        }
    }
    if json {
        others.insert("pairs".to_owned(), serde_json::to_value(&report)?);
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&others)?)?;
    }
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (mut effort, mut json, mut rows) = (Effort::FULL, false, Vec::new());
    for argument in &arguments {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--json" => json = true,
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
    runtime.block_on(run(effort, json, &rows))?;
    Ok(ExitCode::SUCCESS)
}
