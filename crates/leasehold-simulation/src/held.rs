//! A guard of any kind.

use std::ops::Deref;

use leasehold_core::{
    Guard, Leader, MultiGuard, ReadGuard, Released, Result, UpgradableGuard, WHOLE, WriteGuard,
};

#[derive(Debug)]
pub(crate) enum Held {
    Plain(Guard),
    Reader(ReadGuard),
    Upgradable(UpgradableGuard),
    Writer(WriteGuard),
    Leader(Leader),
    Many(MultiGuard),
}

/// What an upgradable reader has.
pub(crate) const UPGRADABLE: u64 = WHOLE / 2 + 1;

impl Held {
    /// Its guards: one, or those of a multi-lock.
    pub(crate) fn guards(&self) -> Vec<&Guard> {
        match self {
            Self::Plain(guard) => vec![guard],
            Self::Reader(guard) => vec![guard.deref()],
            Self::Upgradable(guard) => vec![guard.deref()],
            Self::Writer(guard) => vec![guard.deref()],
            Self::Leader(guard) => vec![guard.deref()],
            Self::Many(guards) => guards.guards().iter().collect(),
        }
    }

    /// The units that its kind promises; `None` where only the guard can say.
    pub(crate) fn promises(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Reader(_) => Some(1),
            Self::Upgradable(_) => Some(UPGRADABLE),
            Self::Writer(_) | Self::Leader(_) | Self::Many(_) => Some(WHOLE),
        }
    }

    pub(crate) async fn release(self) -> Result<Released> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Reader(guard) => guard.release().await,
            Self::Upgradable(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Leader(guard) => guard.resign().await,
            Self::Many(guards) => guards.release().await,
        }
    }
}

macro_rules! from_guards {
    ($($kind:ident($guard:ty)),+) => {$(
        impl From<$guard> for Held {
            fn from(guard: $guard) -> Self {
                Self::$kind(guard)
            }
        }
    )+};
}

from_guards!(
    Plain(Guard),
    Reader(ReadGuard),
    Upgradable(UpgradableGuard),
    Writer(WriteGuard),
    Leader(Leader),
    Many(MultiGuard)
);
