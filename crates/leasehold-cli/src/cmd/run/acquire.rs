//! Getting the lock that the options ask for.

use std::time::Instant;

use leasehold::{Client, Guard, Part, Result};

use crate::output::say;
use crate::settings::{Mode, Run, Wait};
use crate::store::{PAUSE, waiting};

/// As [`acquire`], but outages are waited out: what was lost in one is not had again before it is over.
pub(super) async fn acquire_again(client: &Client, settings: &Run) -> Result<Option<Guard>> {
    loop {
        match acquire(client, settings, settings.wait).await {
            Err(error) if error.is_retryable() => say(error),
            done => return done,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// As [`acquire`], but waits out a failover for what is left of the wait that began at `start`. The client has connected, but
/// perhaps not to the server that has this key.
pub(super) async fn acquire_first(client: &Client, settings: &Run, start: Instant) -> Result<Option<Guard>> {
    let mut has_answered = false;
    loop {
        let error = match acquire(client, settings, settings.wait.since(start)).await {
            Err(error) if (has_answered || error.is_transient()) && error.is_retryable() => error,
            done => return done,
        };
        let left = settings.wait.since(start);
        if left.is_over() {
            return Err(error);
        }
        if !std::mem::replace(&mut has_answered, true) {
            waiting(&error);
        }
        tokio::time::sleep(PAUSE.min(left.as_duration())).await;
    }
}

/// Waits for the lock as long as `wait` says; `None` when that was not enough.
///
/// An exclusive run is a mutex, so it excludes the library's mutexes and both sides of its read-write locks.
async fn acquire(client: &Client, settings: &Run, wait: Wait) -> Result<Option<Guard>> {
    let key = settings.key.as_str();
    let lock = match &settings.mode {
        Mode::Job { at_least } => {
            let job = client.job(key).lease(settings.lease).at_least(*at_least);
            let job = settings.max_hold.iter().fold(job, |job, limit| job.at_most(*limit));
            let job = settings.label.iter().fold(job, |job, label| job.label(label));
            return job.start().await;
        }
        Mode::Exclusive => client.mutex(key).into_request(),
        Mode::Shared => client.rwlock(key).read().into_request(),
        Mode::Permits { wanted, of } => client.semaphore(key, *of).permits(*wanted),
        Mode::Leader { value } => client.election(key).candidate(value).into_request(),
    };
    let lock = lock.with(settings.options());
    match wait {
        Wait::Forever => lock.acquire().await.map(Some),
        Wait::AtMost(limit) => lock.acquire_within(limit).await,
        Wait::Not => lock.try_acquire().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use leasehold::Memory;
    use leasehold::layers::{Fault, Faults, Request};

    use super::*;
    use crate::args::{Cli, Command};

    /// How long one call may take: much shorter than the outage.
    const CALL: Duration = Duration::from_millis(20);
    const OUTAGE: Duration = Duration::from_millis(400);

    #[tokio::test]
    async fn who_comes_again_waits_an_outage_out() {
        let words = ["leasehold", "elect", "--again", "k", "--", "true"];
        let Command::Elect(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let (settings, store) = (Run::elect(args), Faults::new(Memory::new()));
        let client = Client::builder().call_timeout(CALL).connect(store.clone()).await.unwrap();
        let start = Instant::now();
        store.plan(move |_| match start.elapsed() < OUTAGE {
            true => Fault { request: Request::Refused, ..Fault::default() },
            false => Fault::default(),
        });
        assert!(acquire_again(&client, &settings).await.unwrap().is_some());
    }
}
