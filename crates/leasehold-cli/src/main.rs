//! The `leasehold` command: parse, do, map to an exit code.

mod args;
mod cmd;
mod duration;
mod exit;
mod job;
mod output;
mod settings;
mod store;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::job::guardian;
use crate::store::{Chosen, FAREWELL};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == guardian::NAME) {
        return guardian::watch(words);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::from_default_env())
            .with_writer(io::stderr)
            .init();
    }
    cli.command.remarks().choose();
    let exit = match perform(cli) {
        Ok(exit) => exit,
        Err(failure) => {
            output::complain(&failure);
            failure.exit
        }
    };
    // A reader that stands still does not keep us.
    output::flush(FAREWELL);
    exit.into()
}

fn perform(cli: Cli) -> Result<Exit, Failure> {
    // Declared first, so dropped last: closing a SQLite file writes to it, and the runner may be stopped there too.
    let mut guardian = None;
    // One thread is enough for one lock, and when it stops, all of us stops.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = || Chosen::new(cli.global.clone());
    runtime.block_on(async {
        match cli.command {
            Command::Run(args) => cmd::run::run(&settings::Run::new(args)?, &store()?, &mut guardian).await,
            Command::Elect(args) => {
                cmd::run::run(&settings::Run::elect(args), &store()?, &mut guardian).await
            }
            Command::Latch(verb) => cmd::latch::latch(verb, &store()?).await,
            Command::List(args) => cmd::list::list(args, &store()?).await,
            Command::Show(args) => cmd::show::show(args, &store()?).await,
            Command::Watch(args) => cmd::show::watch(args, &store()?).await,
            Command::Release(args) => cmd::release::release(args, &store()?).await,
            Command::Store(verb) => cmd::store::store(verb, &store()?).await,
            Command::Completions { shell } => cmd::generate::completions(shell),
            Command::Man { command } => cmd::generate::man(&command),
        }
    })
}
