//! `leasehold run` and `elect`: a program under a lock. A leader's lock publishes a value, and that is all.

mod acquire;

use std::io;
use std::process::Command;

use leasehold::{Client, Guard, Released};
use rustix::process::Signal;
use tokio::time::timeout;

use self::acquire::{acquire, acquire_again};
use crate::exit::{Exit, Failure, system};
use crate::job::guardian::Guardian;
use crate::job::process::Job;
use crate::job::signals::{self, Incoming};
use crate::job::supervise::{End, Supervisor};
use crate::job::terminal::Terminal;
use crate::output::{Remark, say};
use crate::settings::{Mode, OnLoss, Run};
use crate::store::{self, Chosen, FAREWELL, STORE_VARIABLE};

/// Runs the program and says how it ended.
pub(crate) async fn run(settings: &Run, store: &Chosen) -> Result<Exit, Failure> {
    let mut incoming = Incoming::listen().map_err(|error| system("cannot listen to signals", error))?;
    let client = tokio::select! {
        biased;
        signal = incoming.next() => return Ok(Exit::Signal(signal.as_raw())),
        client = store.connect() => client?,
    };
    let end = terms(settings, store, &client, &mut incoming).await;
    let _ = timeout(FAREWELL, client.close()).await;
    let (exit, unseen) = end?;
    if let Some(signal) = unseen {
        signals::suffer(signal);
    }
    Ok(exit)
}

/// Holds once, or again and again until the program ends by itself.
async fn terms(
    settings: &Run,
    store: &Chosen,
    client: &Client,
    incoming: &mut Incoming,
) -> Result<(Exit, Option<Signal>), Failure> {
    let key = settings.key.as_str();
    let mut is_first = true;
    loop {
        let held = tokio::select! {
            biased;
            // Leaves the queue: the client's close sees to it.
            signal = incoming.next() => return Ok((Exit::Signal(signal.as_raw()), None)),
            held = acquire(client, settings), if is_first => held?,
            held = acquire_again(client, settings), if !is_first => held?,
        };
        let Some(held) = held else { return Err(busy(settings)) };
        Remark::Acquired { key, token: held.token() }.tell_if(store.verbose);
        let loss = match work(settings, &held, incoming).await {
            Ok(End::Program { exit, unseen }) => {
                give_back(held, store).await?;
                return Ok((exit, unseen));
            }
            Ok(End::GaveWay(exit)) => {
                give_back(held, store).await?;
                if settings.on_loss == OnLoss::Exit {
                    return Ok((exit, None));
                }
                is_first = false;
                continue;
            }
            Ok(End::Lost(loss)) => Remark::Lost { key, cause: loss.to_string() },
            Err(failure) => {
                // Nothing was started, so a job is due again: eviction leaves no tail, a release would.
                if let Mode::Job { .. } = settings.mode {
                    let _ = client.evict(key, held.token()).await;
                }
                let _ = held.release().await;
                return Err(failure);
            }
        };
        match settings.on_loss {
            OnLoss::Exit => return Err(Failure::new(Exit::Lost, loss.to_string())),
            OnLoss::Again => loss.tell(),
        }
        is_first = false;
    }
}

fn busy(settings: &Run) -> Failure {
    let key = &settings.key;
    let message = match settings.mode {
        Mode::Job { .. } => format!("\"{key}\" is not due: it runs elsewhere, or was started not long ago"),
        _ => format!("\"{key}\" is busy"),
    };
    Failure::new(Exit::Busy, message)
}

/// Gives the lock back after the program has ended by itself.
async fn give_back(held: Guard, store: &Chosen) -> Result<(), Failure> {
    let key = held.key().clone();
    match held.release().await {
        Ok(Released::Held) => Remark::Released { key: key.as_str() }.tell_if(store.verbose),
        Ok(_) => {
            let message = format!("lost \"{key}\": the store had ended it before the program was done");
            return Err(Failure::new(Exit::Lost, message));
        }
        // The program is done, and that is what counts.
        Err(error) => say(format_args!("\"{key}\" stays locked until its lease ends: {error}")),
    }
    Ok(())
}

/// Starts the program and watches over it.
async fn work(settings: &Run, held: &Guard, incoming: &mut Incoming) -> Result<End, Failure> {
    let guardian = Guardian::start().map_err(|error| system("cannot start the guardian process", error))?;
    let terminal = Terminal::find();
    if terminal.is_some() {
        incoming.also(Signal::TSTP).map_err(|error| system("cannot listen to signals", error))?;
    }
    let for_the_job = terminal.as_ref().filter(|terminal| terminal.is_for_the_job());
    let given = for_the_job.is_some();
    let job = match Job::start(command(settings, held), &guardian, for_the_job) {
        Ok(job) => job,
        Err(error) => {
            if let Some(terminal) = for_the_job {
                terminal.take_back();
            }
            guardian.dismiss();
            return Err(not_started(settings, &error));
        }
    };
    let Run { lease, grace, on_ask, .. } = *settings;
    let guard = held;
    let supervisor = Supervisor { job, guard, guardian, incoming, terminal, given, lease, grace, on_ask };
    supervisor.watch().await.map_err(|error| system("cannot wait for the program", error))
}

fn command(settings: &Run, held: &Guard) -> Command {
    let mut command = Command::new(&settings.program);
    command
        .args(&settings.arguments)
        .env("LEASEHOLD_KEY", settings.key.as_str())
        .env("LEASEHOLD_TOKEN", held.token().to_string());
    if let Some(url) = store::for_the_program() {
        command.env(STORE_VARIABLE, url);
    }
    command
}

fn not_started(settings: &Run, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    };
    let program = settings.program.to_string_lossy();
    Failure::new(exit, format!("cannot run \"{}\": {error}", program.escape_debug()))
}
