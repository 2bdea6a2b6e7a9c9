//! Getting the lock that the options ask for.
//!
//! An exclusive `run` is a mutex, so that it excludes the library's mutexes of the same name. It must exclude
//! shared runs too, and those are the read side of a read-write lock: another kind of resource, which the
//! store refuses to mix with the first. So an exclusive run that finds the key in use as a read-write lock
//! takes its write side, and a shared one that finds a mutex waits until the key is free.

use std::time::Duration;

use leasehold::{
    BootClock, Client, Clock, Error, ErrorKind, Guard, Moment, ReadGuard, Released, Request, Result, WHOLE,
    WriteGuard,
};

use crate::settings::{Mode, Run, Wait};

/// A lock that is held.
pub(super) enum Held {
    Plain(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Held {
    pub(super) fn guard(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }

    pub(super) async fn release(self) -> Result<Released> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }
}

/// How much longer to wait.
#[derive(Clone, Copy)]
struct Patience(Option<Moment>);

impl Patience {
    fn new(wait: Wait) -> Self {
        Self(match wait {
            Wait::Forever => None,
            Wait::AtMost(limit) => Some(BootClock.now() + limit),
            Wait::Not => Some(BootClock.now()),
        })
    }

    /// `None`: for ever.
    fn left(self) -> Option<Duration> {
        self.0.map(|until| until.since(BootClock.now()))
    }
}

/// Waits for the lock as long as the settings say; `None` when that was not enough.
pub(super) async fn acquire(client: &Client, settings: &Run) -> Result<Option<Held>> {
    let patience = Patience::new(settings.wait);
    let key = settings.key.as_str();
    let semaphore = |of| client.semaphore(key, of).with(settings.options());
    let rwlock = client.rwlock(key).with(settings.options());
    match settings.mode {
        Mode::Permits { wanted, of } => {
            Ok(ask(&semaphore(of).permits(wanted), patience).await?.map(Held::Plain))
        }
        Mode::Exclusive => loop {
            match ask(&semaphore(1).permits(1), patience).await {
                Err(error) if in_use_with(WHOLE, &error, client, key).await? => {}
                done => return Ok(done?.map(Held::Plain)),
            }
            match ask(&rwlock.write(), patience).await {
                // It was drained meanwhile, and somebody took it as a mutex.
                Err(error) if in_use_with(1, &error, client, key).await? => {}
                done => return Ok(done?.map(Held::Write)),
            }
        },
        Mode::Shared => loop {
            match ask(&rwlock.read(), patience).await {
                Err(error) if in_use_with(1, &error, client, key).await? => {}
                done => return Ok(done?.map(Held::Read)),
            }
            if !wait_until_free(client, key, patience).await? {
                return Ok(None);
            }
        },
    }
}

async fn ask<G: From<Guard>>(request: &Request<G>, patience: Patience) -> Result<Option<G>> {
    match patience.left() {
        None => request.acquire().await.map(Some),
        Some(Duration::ZERO) => request.try_acquire().await,
        Some(left) => request.acquire_within(left).await,
    }
}

/// Whether the error says that the key is in use with another limit, and it is this one (or none any more).
async fn in_use_with(limit: u64, error: &Error, client: &Client, key: &str) -> Result<bool> {
    if error.kind() != ErrorKind::Conflict {
        return Ok(false);
    }
    Ok(client.inspect(key).await?.is_none_or(|found| found.limit == limit))
}

async fn wait_until_free(client: &Client, key: &str, patience: Patience) -> Result<bool> {
    let mut watch = client.watch(key)?;
    let free = async {
        while watch.next().await?.is_some() {}
        Ok(true)
    };
    match patience.left() {
        None => free.await,
        Some(left) => tokio::time::timeout(left, free).await.unwrap_or(Ok(false)),
    }
}
