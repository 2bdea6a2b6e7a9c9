//! A mutex in other clothes: everything that lets one in at a time must keep the mutex's laws.

use std::ops::Deref;
use std::time::Duration;

use leasehold_core::{
    Client, Feature, Guard, Key, Leader, Multi, MultiGuard, Options, Released, Request, Result, WriteGuard,
};

use crate::fixture::RawState;
use crate::scene::Scene;
use crate::verdict::{Stop, Verdict};

/// What plays the mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Mutex,
    WriteLock,
    SemaphoreOfOne,
    /// A semaphore of five with four permits taken.
    LastOfFive,
    Election,
    /// A multi-lock with one part.
    MultiOfOne,
}

impl View {
    pub(crate) const ALL: [Self; 6] = [
        Self::Mutex,
        Self::WriteLock,
        Self::SemaphoreOfOne,
        Self::LastOfFive,
        Self::Election,
        Self::MultiOfOne,
    ];

    /// The group that its trials are listed under.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::WriteLock => "mutex/write_lock",
            Self::SemaphoreOfOne => "mutex/semaphore_of_one",
            Self::LastOfFive => "mutex/last_of_five",
            Self::Election => "mutex/election",
            Self::MultiOfOne => "mutex/multi_of_one",
        }
    }

    fn needs(self) -> Feature {
        match self {
            Self::Mutex | Self::MultiOfOne => Feature::Mutex,
            Self::WriteLock => Feature::RwLock,
            Self::SemaphoreOfOne | Self::LastOfFive => Feature::Semaphore,
            Self::Election => Feature::Election,
        }
    }
}

/// A key that one may hold at a time, whatever plays the mutex.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) key: Key,
    view: View,
    before: RawState,
    _drained: Option<Guard>,
}

impl Stage {
    pub(crate) async fn set(scene: Scene, view: View) -> Verdict<Self> {
        scene.needs_feature(view.needs())?;
        let key = scene.key();
        let drained = match view {
            View::LastOfFive => {
                let client = scene.fixture.connect().await?;
                Some(client.semaphore(key.as_str(), 5).permits(4).acquire().await?)
            }
            _ => None,
        };
        let before = scene.raw(&key).await?;
        Ok(Self { scene, key, view, before, _drained: drained })
    }

    /// A new client, as another process would have.
    pub(crate) async fn client(&self) -> Verdict<Client> {
        Ok(self.scene.fixture.connect().await?)
    }

    /// The lock as this client sees it.
    pub(crate) fn lock(&self, client: &Client) -> Lock {
        Lock { client: client.clone(), key: self.key.clone(), view: self.view, options: Options::new() }
    }

    /// The lock as a new client sees it.
    pub(crate) async fn new_lock(&self) -> Verdict<Lock> {
        Ok(self.lock(&self.client().await?))
    }

    /// How many hold it and how many wait, by the store's own account.
    pub(crate) async fn crowd(&self) -> Verdict<(usize, usize)> {
        let now = self.scene.raw(&self.key).await?;
        Ok((now.holders - self.before.holders, now.waiters))
    }

    /// Waits until this many hold it, by the store's own account, and wait for it.
    pub(crate) async fn until_crowd(&self, crowd: (usize, usize)) -> Verdict {
        let waiting = self.scene.waiting(&self.key);
        let is_so = |now: &RawState| {
            let seen = (now.holders - self.before.holders, waiting(now));
            if seen.1 > crowd.1 {
                // One who has left may have been turned away since: who still waits will be told again.
                self.scene.forget_refusals(&self.key);
            }
            seen == crowd
        };
        self.scene.until_raw(&self.key, is_so).await
    }

    /// Waits until the store has nothing about the lock that was not there before.
    pub(crate) async fn until_as_before(&self) -> Verdict {
        self.scene.until_raw(&self.key, |now| *now == self.before).await
    }

    /// The token that the store says holds the lock.
    pub(crate) async fn token(&self) -> Verdict<u64> {
        let holders = self.scene.holders(&self.key).await?;
        holders.last().map(|holder| holder.token).ok_or_else(|| Stop::fail("nobody holds the key"))
    }
}

/// A way to the lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    client: Client,
    key: Key,
    view: View,
    options: Options,
}

impl Lock {
    pub(crate) fn with(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The same lock as another client sees it.
    pub(crate) fn on(self, client: &Client) -> Self {
        Self { client: client.clone(), ..self }
    }

    pub(crate) async fn acquire(&self) -> Result<Held> {
        let (client, key, options) = (&self.client, self.key.as_str(), self.options.clone());
        Ok(match self.view {
            View::Mutex => Held::Plain(client.mutex(key).with(options).acquire().await?),
            View::WriteLock => Held::Write(client.rwlock(key).with(options).write().acquire().await?),
            View::SemaphoreOfOne => Held::Plain(client.semaphore(key, 1).with(options).acquire().await?),
            View::LastOfFive => Held::Plain(client.semaphore(key, 5).with(options).acquire().await?),
            View::Election => Held::Lead(self.election().acquire().await?),
            View::MultiOfOne => Held::Multi(self.multi().acquire().await?),
        })
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<Held>> {
        let (client, key, options) = (&self.client, self.key.as_str(), self.options.clone());
        Ok(match self.view {
            View::Mutex => client.mutex(key).with(options).try_acquire().await?.map(Held::Plain),
            View::WriteLock => client.rwlock(key).with(options).write().try_acquire().await?.map(Held::Write),
            View::SemaphoreOfOne => {
                client.semaphore(key, 1).with(options).try_acquire().await?.map(Held::Plain)
            }
            View::LastOfFive => client.semaphore(key, 5).with(options).try_acquire().await?.map(Held::Plain),
            View::Election => self.election().try_acquire().await?.map(Held::Lead),
            View::MultiOfOne => self.multi().try_acquire().await?.map(Held::Multi),
        })
    }

    pub(crate) async fn acquire_within(&self, limit: Duration) -> Result<Option<Held>> {
        let (client, key, options) = (&self.client, self.key.as_str(), self.options.clone());
        Ok(match self.view {
            View::Mutex => client.mutex(key).with(options).acquire_within(limit).await?.map(Held::Plain),
            View::WriteLock => {
                client.rwlock(key).with(options).write().acquire_within(limit).await?.map(Held::Write)
            }
            View::SemaphoreOfOne => {
                client.semaphore(key, 1).with(options).acquire_within(limit).await?.map(Held::Plain)
            }
            View::LastOfFive => {
                client.semaphore(key, 5).with(options).acquire_within(limit).await?.map(Held::Plain)
            }
            View::Election => self.election().acquire_within(limit).await?.map(Held::Lead),
            View::MultiOfOne => self.multi().acquire_within(limit).await?.map(Held::Multi),
        })
    }

    fn election(&self) -> Request<Leader> {
        self.client.election(self.key.as_str()).with(self.options.clone()).candidate("the value")
    }

    fn multi(&self) -> Multi {
        Multi::new().and(self.client.mutex(self.key.as_str()).with(self.options.clone()))
    }
}

/// What the lock gives.
#[derive(Debug)]
pub(crate) enum Held {
    Plain(Guard),
    Write(WriteGuard),
    Lead(Leader),
    Multi(MultiGuard),
}

impl Held {
    pub(crate) async fn release(self) -> Result<Released> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Lead(leader) => leader.resign().await,
            Self::Multi(guards) => guards.release().await,
        }
    }
}

impl Deref for Held {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        match self {
            Self::Plain(guard) => guard,
            Self::Write(guard) => guard,
            Self::Lead(leader) => leader,
            Self::Multi(guards) => &guards.guards()[0],
        }
    }
}
