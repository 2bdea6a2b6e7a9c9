//! `cargo bench -p leasehold-bench [-- --quick] [--json] [--only memory|sqlite]`
//!
//! Acquire and release, ours beside the least that it could cost. See the crate's README.

use std::io::Write;
use std::process::ExitCode;

use leasehold_bench::contest::{Effort, contest};
use leasehold_bench::report::Report;
use leasehold_bench::round::Load;
use leasehold_bench::subject::{BareSqlite, Ours, Outcome, QueuedSqlite, TokioMutexes};
use leasehold_core::{Client, Memory};
use leasehold_sqlite::Sqlite;

const APART: [Load; 3] = [Load::Apart(1), Load::Apart(16), Load::Apart(256)];
const TOGETHER: Load = Load::Together(64);

const USAGE: &str = "usage: cargo bench -p leasehold-bench [-- [--quick] [--json] [--only memory|sqlite]]";

struct Wish {
    effort: Effort,
    json: bool,
    memory: bool,
    sqlite: bool,
}

fn wish() -> Option<Wish> {
    let mut wish = Wish { effort: Effort::FULL, json: false, memory: true, sqlite: true };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--quick" => wish.effort = Effort::QUICK,
            "--json" => wish.json = true,
            "--only" => match arguments.next().as_deref() {
                Some("memory") => wish.sqlite = false,
                Some("sqlite") => wish.memory = false,
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(wish)
}

async fn memory(report: &mut Report) -> Outcome<()> {
    for load in APART.into_iter().chain([TOGETHER]) {
        let ours = ("leasehold", Ours(Client::new(Memory::new()).await?));
        let peer = ("tokio::sync::Mutex by name", TokioMutexes::default());
        report.results.push(contest("memory", load, report.effort, ours, peer).await?);
    }
    Ok(())
}

async fn sqlite(report: &mut Report) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    for load in APART {
        let ours = ours_on_sqlite(&folder, load).await?;
        let path = folder.path().join(format!("bare-{}.db", load.tasks()));
        let peer = ("2 x BEGIN IMMEDIATE, UPDATE, COMMIT", BareSqlite::create(&path)?);
        report.results.push(contest("sqlite", load, report.effort, ours, peer).await?);
    }
    let ours = ours_on_sqlite(&folder, TOGETHER).await?;
    let path = folder.path().join("bare-together.db");
    let peer = ("the same behind tokio::sync::Mutex", QueuedSqlite::create(&path)?);
    report.results.push(contest("sqlite", TOGETHER, report.effort, ours, peer).await?);
    Ok(())
}

async fn ours_on_sqlite(folder: &tempfile::TempDir, load: Load) -> Outcome<(&'static str, Ours)> {
    let path = folder.path().join(format!("ours-{}.db", load.tasks()));
    let store = Sqlite::from_url(&format!("sqlite://{}", path.display()))?;
    Ok(("leasehold", Ours(Client::new(store).await?)))
}

async fn run(wish: &Wish) -> Outcome<String> {
    let mut report = Report::new(wish.effort);
    if wish.memory {
        memory(&mut report).await?;
    }
    if wish.sqlite {
        sqlite(&mut report).await?;
    }
    Ok(if wish.json { report.json()? } else { report.table() })
}

fn main() -> Outcome<ExitCode> {
    let Some(wish) = wish() else {
        writeln!(std::io::stderr(), "{USAGE}")?;
        return Ok(ExitCode::from(64));
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let text = runtime.block_on(run(&wish))?;
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
