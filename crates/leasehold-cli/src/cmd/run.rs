//! `leasehold run` and `elect`: a program under a lock. A leader's lock publishes a value, and that is all.

mod acquire;
mod nested;

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::{BootClock, Client, Clock, Guard, PATIENCE, Released};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use self::acquire::{acquire_again, acquire_first};
use crate::exit::{Exit, Failure, system};
use crate::job::guardian::{Guardian, HeldClaim};
use crate::job::margin::Margin;
use crate::job::process::Job;
use crate::job::signals::{self, Incoming};
use crate::job::supervise::{End, Supervisor};
use crate::job::terminal::Terminal;
use crate::output::{Program, Remark, flush, flushed, say};
use crate::settings::{Mode, OnLoss, Run};
use crate::store::{self, Chosen, FAREWELL, STORE_VARIABLE, farewell};

/// A runner without a program counts as stopped if it does not report for its lease, but not before this time.
const SHORTEST_SILENCE: Duration = Duration::from_millis(500);

/// Runs the program and says how it ended. The guardian stays in its place, because it must outlive the store.
pub(crate) async fn run(
    settings: &Run,
    store: &Chosen,
    guardian: &mut Option<Guardian>,
) -> Result<Exit, Failure> {
    let mut incoming = Incoming::listen().map_err(|error| system("cannot listen to signals", error))?;
    let began = Instant::now();
    // Before the store is opened: a process that is stopped while it writes the file blocks every other client.
    let guardian = guardian.insert(Guardian::start(store.kind()).map_err(no_guardian)?);
    let client = tokio::select! {
        biased;
        signal = incoming.next() => return Ok(Exit::Signal(signal.as_raw())),
        client = reporting(guardian, settings.lease, store.connect_within(settings.wait)) => client?,
    };
    let end = terms(settings, began, store, &client, guardian, &mut incoming).await;
    let _ = reporting(guardian, settings.lease, timeout(farewell(&end), client.close())).await;
    let (exit, unseen) = end?;
    if let Some(signal) = unseen {
        flush(FAREWELL);
        signals::suffer(signal);
    }
    Ok(exit)
}

/// Holds once, or again and again until the program ends by itself.
async fn terms(
    settings: &Run,
    began: Instant,
    store: &Chosen,
    client: &Client,
    guardian: &mut Guardian,
    incoming: &mut Incoming,
) -> Result<(Exit, Option<Signal>), Failure> {
    let key = settings.key.as_str();
    reporting(guardian, settings.lease, nested::refuse(settings, store, client)).await?;
    let mut is_first = true;
    loop {
        let acquired = async {
            match is_first {
                true => acquire_first(client, settings, began).await,
                false => acquire_again(client, settings).await,
            }
        };
        let held = tokio::select! {
            biased;
            // Leaves the queue: the client's close sees to it.
            signal = incoming.next() => return Ok((Exit::Signal(signal.as_raw()), None)),
            held = reporting(guardian, settings.lease, acquired) => held?,
        };
        let Some(held) = held else { return Err(busy(settings)) };
        Remark::Acquired { key, token: held.token() }.tell_if(store.verbose);
        let end = match start(settings, store, &held, guardian, incoming).await {
            Ok(Some(supervisor)) => Some(supervisor.watch().await),
            Ok(None) => None,
            Err(failure) => {
                // Nothing was started, so a job is due again: eviction leaves no tail, a release would.
                reporting(guardian, settings.lease, async {
                    if let Mode::Job { .. } = settings.mode {
                        let _ = client.evict(key, held.token()).await;
                    }
                    let _ = held.release().await;
                })
                .await;
                return Err(failure);
            }
        };
        let (loss, program) = match end {
            Some(Ok(End::Program { exit, unseen })) => {
                guardian.dismiss();
                reporting(guardian, settings.lease, give_back(held, store)).await?;
                return Ok((exit, unseen));
            }
            Some(Ok(End::GaveWay(exit))) => {
                reporting(guardian, settings.lease, give_back(held, store)).await?;
                if settings.on_loss == OnLoss::Exit {
                    return Ok((exit, None));
                }
                is_first = false;
                continue;
            }
            Some(Ok(End::Lost(loss))) => (loss, Program::Ended),
            None => (held.lost().await, Program::NotStarted),
            Some(Err(error)) => {
                let _ = reporting(guardian, settings.lease, held.release()).await;
                return Err(system(
                    "the program was ended, because the runner cannot watch it any longer",
                    error,
                ));
            }
        };
        let loss = Remark::Lost { key, cause: loss.to_string(), program };
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

/// Starts the program; `None` if the lock was lost before that.
///
/// # Errors
/// If the program was not started.
async fn start<'a>(
    settings: &Run,
    store: &Chosen,
    held: &'a Guard,
    guardian: &'a mut Guardian,
    incoming: &'a mut Incoming,
) -> Result<Option<Supervisor<'a>>, Failure> {
    let terminal = Terminal::find();
    if terminal.is_some() {
        incoming.also(Signal::TSTP).map_err(|error| system("cannot listen to signals", error))?;
    }
    flushed().await;
    let margin = Margin::new(BootClock.now(), held.valid_for());
    let claim = HeldClaim::of(held, &store.url);
    guardian
        .tend()
        .and_then(|()| guardian.kill_at(margin.guardian_kills_at()))
        .and_then(|()| guardian.release_if_killed(&claim))
        .map_err(no_guardian)?;
    // The machine may have slept since the grant, or the runner was stopped.
    if !held.is_valid() {
        return Ok(None);
    }
    let for_the_job = terminal.as_ref().filter(|terminal| terminal.is_for_the_job());
    let given = for_the_job.is_some();
    let job = match Job::start(command(settings, store, held), guardian, for_the_job) {
        Ok(job) => job,
        Err(error) => {
            if let Some(terminal) = for_the_job {
                terminal.take_back();
            }
            guardian.forget();
            return Err(not_started(settings, &error));
        }
    };
    let Run { grace, on_ask, .. } = *settings;
    let guard = held;
    Ok(Some(Supervisor { job, guard, guardian, incoming, terminal, given, margin, grace, on_ask }))
}

/// Does `work`, and meanwhile tells the guardian that the runner is not stopped.
///
/// A guardian that cannot be replaced now is replaced at a later report. Until there is one, [`start`] starts no program.
async fn reporting<T>(guardian: &mut Guardian, lease: Duration, work: impl Future<Output = T>) -> T {
    let silence = lease.clamp(SHORTEST_SILENCE, PATIENCE);
    let mut work = std::pin::pin!(work);
    loop {
        let _ = guardian.tend().and_then(|()| guardian.kill_at(BootClock.now() + silence));
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(silence / 4) => {}
        }
    }
}

fn no_guardian(error: io::Error) -> Failure {
    system("cannot start the guardian process", error)
}

fn command(settings: &Run, store: &Chosen, held: &Guard) -> Command {
    let mut command = Command::new(&settings.program);
    command
        .args(&settings.arguments)
        .env(nested::KEY, settings.key.as_str())
        .env(nested::TOKEN, held.token().to_string())
        .env(nested::HELD_ON, &store.shown);
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
