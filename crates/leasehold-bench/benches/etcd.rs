//! `cargo bench -p leasehold-bench --bench etcd [-- [--quick] [--json] [ROW...]]`
//!
//! Leasehold on an etcd server of its own, beside a bare transaction and a bare delete on the same kind of connection, and
//! beside the server's own Lock service. The server does not wait for its disk. See the crate's README.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_bench::contest::{Effort, contest};
use leasehold_bench::handover::{Times, Wake, hand_overs, rest};
use leasehold_bench::report::{self, Report};
use leasehold_bench::round::{Inside, Load};
use leasehold_bench::subject::{Ours, Outcome, Subject};
use leasehold_core::{Client, Error};
use leasehold_etcd::Etcd;
use leasehold_etcd::raw::Raw;
use leasehold_servers::etcd::Etcd as Server;

const USAGE: &str = "usage: cargo bench -p leasehold-bench --bench etcd [-- [--quick] [--json] [ROW...]]
rows: all, or some of pairs-1 pairs-16 hot wake";

const ROWS: [&str; 4] = ["pairs-1", "pairs-16", "hot", "wake"];

/// The least that a lock can cost: a key on a lease if it is not there, and its removal.
#[derive(Clone)]
struct PutAndDelete(Raw);

impl Subject for PutAndDelete {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        if !self.0.put(name).await? {
            return Err("somebody else has it".into());
        }
        inside.await;
        self.0.delete(name).await?;
        Ok(())
    }
}

/// The server's own lock. It is re-entrant for a lease, so everybody who uses it at the same time has one.
#[derive(Clone)]
struct LockService(Arc<Mutex<Vec<Raw>>>);

impl LockService {
    async fn connect(url: &str, tasks: usize) -> Outcome<Self> {
        let first = Raw::connect(url).await?;
        let mut all = Vec::new();
        for _ in 0..tasks {
            all.push(first.apart().await?);
        }
        Ok(Self(Arc::new(Mutex::new(all))))
    }
}

impl Subject for LockService {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let own = own.ok_or("more tasks than leases")?;
        let key = own.lock(name).await?;
        inside.await;
        own.unlock(key).await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(own);
        Ok(())
    }
}

async fn client(url: &str) -> Result<Client, Error> {
    Client::new(Etcd::from_url(url)?).await
}

async fn wake(url: &str, effort: Effort) -> Outcome<Wake> {
    let (one, other) = (Ours(client(url).await?), Ours(client(url).await?));
    let mut wake = Wake::beside(&[("bare delete to watch event, and a put", Some(1.5))]);
    for _ in 0..effort.rounds {
        hand_overs([&one, &other], effort.round, &mut wake.grants).await?;
        events(url, effort.round, &mut wake.beside[0].times).await?;
    }
    Ok(wake)
}

/// One deletes a key, the other hears of it and writes: what a lock cannot do without.
async fn events(url: &str, length: Duration, times: &mut Times) -> Outcome<()> {
    let (one, two) = (Raw::connect(url).await?, Raw::connect(url).await?);
    let began = Instant::now();
    while began.elapsed() < length {
        one.put("bench/bare").await?;
        let mut events = two.watch("bench/bare").await?;
        let other = two.clone();
        let waiting = tokio::spawn(async move {
            events.next().await?;
            other.put("bench/next").await?;
            Ok::<_, Error>(Instant::now())
        });
        rest().await;
        let released = Instant::now();
        one.delete("bench/bare").await?;
        times.add(waiting.await?? - released);
        two.delete("bench/next").await?;
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
                let raw = ("put if absent + delete", PutAndDelete(Raw::connect(&url).await?));
                let theirs = ("etcd's Lock service", LockService::connect(&url, tasks).await?);
                let again = ("leasehold", Ours(client(&url).await?));
                vec![
                    contest("etcd", Load::Apart(tasks), effort, ours, raw).await?.goal(0.7),
                    contest("etcd", Load::Apart(tasks), effort, again, theirs).await?,
                ]
            }
            "hot" => {
                let theirs = ("etcd's Lock service", LockService::connect(&url, 64).await?);
                vec![contest("etcd", Load::Together(64), effort, ours, theirs).await?.goal(0.7)]
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
