//! `cargo bench -p leasehold-bench --bench simple [-- [--quick] [--json] [ROW...]]`
//!
//! Leasehold in a directory beside a bare `flock`, and on a memcached of its own beside a bare `add` and `delete` on the
//! same kind of connection. Neither of the bare ones knows a deadline, a token, a queue or an owner. The directory is on
//! a disk in memory where there is one. See the crate's README.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use leasehold_bench::contest::{Effort, Result as Figures, contest};
use leasehold_bench::report::{self, Report};
use leasehold_bench::round::{Inside, Load};
use leasehold_bench::subject::{Ours, Outcome, Subject};
use leasehold_memcached::raw::Raw;
use leasehold_servers::memcached::Memcached as Server;
use tempfile::TempDir;

const USAGE: &str = "usage: cargo bench -p leasehold-bench --bench simple [-- [--quick] [--json] [ROW...]]
rows: all, or some of file-1 file-16 file-hot memcached-1 memcached-16 memcached-hot";

const ROWS: [(&str, Load); 6] = [
    ("file-1", Load::Apart(1)),
    ("file-16", Load::Apart(16)),
    ("file-hot", Load::Together(64)),
    ("memcached-1", Load::Apart(1)),
    ("memcached-16", Load::Apart(16)),
    ("memcached-hot", Load::Together(64)),
];

/// The least that a lock file can cost: opened, locked, closed.
#[derive(Clone)]
struct Flock(Arc<Path>);

impl Subject for Flock {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let path = self.0.join(name.replace('/', "_"));
        let file = File::options().create(true).write(true).truncate(false).open(path)?;
        // A thread only where it has to wait: the uncontended call is too short for one.
        let file = match file.try_lock() {
            Ok(()) => file,
            Err(_) => tokio::task::spawn_blocking(move || file.lock().map(|()| file)).await??,
        };
        inside.await;
        file.unlock()?;
        Ok(())
    }
}

/// The least that a lock in memcached can cost.
#[derive(Clone)]
struct AddDelete(Raw);

impl Subject for AddDelete {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let name = name.replace('/', "_");
        self.0.add(&name).await?;
        inside.await;
        self.0.delete(&name).await?;
        Ok(())
    }
}

/// The same by one process that has a queue of its own.
#[derive(Clone)]
struct Queued(AddDelete, Arc<tokio::sync::Mutex<()>>);

impl Subject for Queued {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let _turn = self.1.lock().await;
        self.0.pair(name, inside).await
    }
}

async fn on_files(load: Load, effort: Effort) -> Outcome<Figures> {
    let memory = Path::new("/dev/shm");
    let place: PathBuf = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
    let (ours, bare) = (TempDir::new_in(&place)?, TempDir::new_in(&place)?);
    let url = format!("file://{}", ours.path().display());
    let ours = ("leasehold", Ours(leasehold::connect(&url).await?));
    contest("file", load, effort, ours, ("open + flock", Flock(bare.path().into()))).await
}

async fn on_memcached(load: Load, effort: Effort) -> Outcome<Figures> {
    let server = Server::start();
    let ours = ("leasehold", Ours(leasehold::connect(&server.url()).await?));
    let bare = AddDelete(Raw::new(&server.url())?);
    match load {
        Load::Apart(_) => contest("memcached", load, effort, ours, ("add + delete", bare)).await,
        _ => {
            let bare = ("add + delete, a queue in the process", Queued(bare, Arc::default()));
            contest("memcached", load, effort, ours, bare).await
        }
    }
}

async fn run(effort: Effort, json: bool, rows: &[(&str, Load)]) -> Outcome<()> {
    let mut report = Report::new(effort);
    if !json {
        writeln!(std::io::stdout(), "{}", report.heading().trim_end())?;
    }
    for (row, load) in rows {
        let is_file = row.starts_with("file");
        let result =
            if is_file { on_files(*load, effort).await? } else { on_memcached(*load, effort).await? };
        if !json {
            writeln!(std::io::stdout(), "{}", report::lines(&result).trim_end())?;
        }
        report.results.push(result);
    }
    if json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (mut effort, mut json, mut rows) = (Effort::FULL, false, Vec::new());
    for argument in &arguments {
        match (argument.as_str(), ROWS.iter().find(|(row, _)| row == argument)) {
            ("--quick", _) => effort = Effort::QUICK,
            ("--json", _) => json = true,
            (_, Some(row)) => rows.push(*row),
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
