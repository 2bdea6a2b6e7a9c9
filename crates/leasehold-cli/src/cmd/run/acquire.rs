//! Getting the lock that the options ask for.
//!
//! An exclusive `run` is a mutex, so that it excludes the library's mutexes of the same name. It must exclude
//! shared runs too, and those are the read side of a read-write lock: another kind of resource, which the
//! store refuses to mix with the first. So an exclusive run that finds the key in use as a read-write lock
//! takes its write side, and a shared one that finds a mutex waits until the key is free.

use std::time::Duration;

use leasehold::{
    BootClock, Client, Clock, ErrorKind, Guard, Moment, ReadGuard, Released, Request, Result, WHOLE,
    WriteGuard,
};

use crate::settings::{Mode, Run, Wait};

/// The limit of a mutex.
const MUTEX: u64 = 1;

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
    let mutex = client.semaphore(key, MUTEX).with(settings.options()).permits(1);
    let rwlock = client.rwlock(key).with(settings.options());
    match settings.mode {
        Mode::Permits { wanted, of } => {
            let permits = client.semaphore(key, of).with(settings.options()).permits(wanted);
            Ok(ask(&permits, patience).await?.map(Held::Plain))
        }
        Mode::Exclusive => loop {
            match understand(ask(&mutex, patience).await, [MUTEX, WHOLE], client, key).await? {
                Asked::Done(guard) => return Ok(guard.map(Held::Plain)),
                Asked::Again => continue,
                Asked::OtherKind => {}
            }
            let write = ask(&rwlock.write(), patience).await;
            if let Asked::Done(guard) = understand(write, [WHOLE, MUTEX], client, key).await? {
                return Ok(guard.map(Held::Write));
            }
        },
        Mode::Shared => loop {
            let read = ask(&rwlock.read(), patience).await;
            match understand(read, [WHOLE, MUTEX], client, key).await? {
                Asked::Done(guard) => return Ok(guard.map(Held::Read)),
                Asked::Again => {}
                Asked::OtherKind if wait_until_free(client, key, patience).await? => {}
                Asked::OtherKind => return Ok(None),
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

/// What came of a request.
enum Asked<G> {
    Done(Option<G>),
    /// The key is in use as the other kind of lock.
    OtherKind,
    /// It was, when we asked.
    Again,
}

/// Tells the one conflict that we can live with from those that are the user's to resolve.
async fn understand<G>(
    asked: Result<Option<G>>,
    [limit, other_limit]: [u64; 2],
    client: &Client,
    key: &str,
) -> Result<Asked<G>> {
    let conflict = match asked {
        Err(error) if error.kind() == ErrorKind::Conflict => error,
        asked => return asked.map(Asked::Done),
    };
    match client.inspect(key).await? {
        Some(found) if found.limit == other_limit => Ok(Asked::OtherKind),
        Some(found) if found.limit != limit => Err(conflict),
        _ => Ok(Asked::Again),
    }
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
