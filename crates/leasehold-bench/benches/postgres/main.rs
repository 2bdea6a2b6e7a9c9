//! `cargo bench -p leasehold-bench --bench postgres [-- [--quick] [--json] [ROW...]]`
//!
//! Leasehold on a PostgreSQL server of its own that syncs every commit, beside the least that the same job could cost with
//! the same client and as many connections, and beside another crate. See the crate's README.

mod limits;
#[cfg(peers)]
mod peers;
mod wake;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_bench::command::{self, Asked, Form};
use leasehold_bench::contest::{self, Effort, contest};
use leasehold_bench::handover::Wake;
use leasehold_bench::report::{self, Report};
use leasehold_bench::round::Load;
use leasehold_bench::subject::{Ours, Outcome};
use leasehold_core::{Client, Options};
use leasehold_postgres::Postgres;
use leasehold_servers::postgres::Postgres as Server;

use limits::{Pair, Raw};

const ROWS: [&str; 5] = ["pairs-1", "pairs-16", "pairs-64", "hot", "wake"];

/// Everything in less than three minutes.
const FULL: Effort = Effort { rounds: 5, round: Duration::from_millis(500) };

/// A client of ours on this server.
pub(crate) async fn ours(url: &str, options: Options) -> Outcome<Ours> {
    Ok(Ours(Client::builder().defaults(options).connect(Postgres::from_url(url)?).await?))
}

/// Everything that was measured, shown as it comes in.
struct Run {
    url: String,
    form: Form,
    report: Report,
    wakes: Vec<Wake>,
}

impl Run {
    fn show(&self, text: &dyn Display) -> Outcome<()> {
        if self.form == Form::People {
            writeln!(std::io::stdout(), "{text}")?;
        }
        Ok(())
    }

    fn add(&mut self, result: contest::Result) -> Outcome<()> {
        self.show(&report::lines(&result).trim_end())?;
        self.report.results.push(result);
        Ok(())
    }

    async fn row(&mut self, row: &str) -> Outcome<()> {
        match row {
            "pairs-1" => self.uncontended(1).await,
            "pairs-16" => self.uncontended(16).await,
            "pairs-64" => self.uncontended(64).await,
            "hot" => self.contended(Load::Together(64)).await,
            _ => {
                let wake = wake::measure(&self.url, self.report.effort).await?;
                self.show(&wake)?;
                self.wakes.push(wake);
                Ok(())
            }
        }
    }

    async fn lease(&self) -> Outcome<(&'static str, Ours)> {
        Ok(("leasehold", ours(&self.url, Options::new()).await?))
    }

    async fn session(&self, mode: &str, name: &'static str) -> Outcome<(&'static str, Ours)> {
        Ok((name, ours(&format!("{}?mode={mode}", self.url), Options::new()).await?))
    }

    async fn advisory(&self) -> Outcome<(&'static str, Ours)> {
        self.session("advisory", "leasehold, advisory").await
    }

    async fn rowlock(&self) -> Outcome<(&'static str, Ours)> {
        self.session("rowlock", "leasehold, rowlock").await
    }

    async fn raw(&self, pair: Pair, name: &'static str) -> Outcome<(&'static str, Raw)> {
        Ok((name, Raw::connect(&self.url, pair).await?))
    }

    async fn uncontended(&mut self, tasks: usize) -> Outcome<()> {
        let (load, effort) = (Load::Apart(tasks), self.report.effort);
        let raw = self.raw(Pair::Statements, "upsert, delete by key").await?;
        self.add(contest("postgres", load, effort, self.lease().await?, raw).await?.goal(0.7))?;
        let functions = self.raw(Pair::Functions, "the same in two functions").await?;
        self.add(contest("postgres", load, effort, self.lease().await?, functions).await?)?;
        let raw = self.raw(Pair::Statements, "upsert, delete by key").await?;
        self.add(contest("postgres", load, effort, self.rowlock().await?, raw).await?)?;
        let bare = self.raw(Pair::Advisory, "bare advisory pair").await?;
        self.add(contest("postgres", load, effort, self.advisory().await?, bare).await?)?;
        self.beside_sqlx(load).await
    }

    async fn contended(&mut self, load: Load) -> Outcome<()> {
        let effort = self.report.effort;
        let barging = ("leasehold, barging", ours(&self.url, Options::new().barging()).await?);
        self.add(contest("postgres", load, effort, self.lease().await?, barging).await?)?;
        let rowlock = self.rowlock().await?;
        self.add(contest("postgres", load, effort, self.advisory().await?, rowlock).await?)?;
        self.beside_sqlx(load).await
    }

    #[cfg(peers)]
    async fn beside_sqlx(&mut self, load: Load) -> Outcome<()> {
        let effort = self.report.effort;
        let sqlx = ("sqlx 0.8 PgAdvisoryLock", peers::Sqlx::connect(&self.url, load.tasks()).await?);
        self.add(contest("postgres", load, effort, self.advisory().await?, sqlx).await?.goal(0.7))
    }

    #[cfg(not(peers))]
    fn beside_sqlx(&mut self, _: Load) -> std::future::Ready<Outcome<()>> {
        std::future::ready(Ok(()))
    }
}

async fn run(asked: Asked) -> Outcome<()> {
    let server = Server::with(&[]);
    let report = Report::new(asked.effort);
    let mut run = Run { url: server.url(), form: asked.form, report, wakes: Vec::new() };
    run.show(&run.report.heading().trim_end())?;
    for row in asked.rows {
        run.row(row).await?;
    }
    if run.form == Form::Machines {
        let all = serde_json::json!({ "pairs": run.report, "release_to_grant": run.wakes });
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}

fn main() -> Outcome<ExitCode> {
    command::main("postgres", &ROWS, FULL, run)
}
