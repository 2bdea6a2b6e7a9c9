//! What the tests of this crate share.
#![allow(dead_code, reason = "every test file uses some of it")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "only tests see it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Clock, Inbox, Key, Moment, Promotion, Result, Store, Units, Wake};
use leasehold_sqlite::{Settings, Sqlite};
use tokio::sync::mpsc;

/// Longer than anything here takes: who waits this long has found a bug.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A clock that stands still until it is moved, in milliseconds.
#[derive(Debug)]
pub struct Hand(AtomicU64);

impl Hand {
    pub fn at(millis: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(millis)))
    }

    pub fn pass(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

/// A directory and a name in it, gone at the end.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.0.path().join("locks.db")
    }

    /// A store on it whose first use has worked.
    pub async fn store(&self, settings: Settings) -> Sqlite {
        let store = Sqlite::open(self.path(), settings).unwrap();
        assert_eq!(begin(&store).await.map_err(|e| e.to_string()), Ok(()));
        store
    }
}

/// Opens a store for nobody in particular.
pub async fn begin(store: &Sqlite) -> Result<()> {
    store.open(Inbox(fastrand::u64(..)), Ear::new().0).await
}

/// A sink that remembers what it was told.
#[derive(Debug)]
pub struct Ear(mpsc::UnboundedSender<Heard>);

#[derive(Debug, PartialEq)]
pub enum Heard {
    Promoted(Promotion),
    Look(Key),
}

impl Ear {
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Heard>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self(sender)), receiver)
    }
}

impl Wake for Ear {
    fn promoted(&self, promotion: &Promotion) {
        let _ = self.0.send(Heard::Promoted(promotion.clone()));
    }

    fn look(&self, key: &Key) {
        let _ = self.0.send(Heard::Look(key.clone()));
    }

    fn look_all(&self) {}

    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub fn claim(name: &str) -> Claim {
    Claim::new(key(name), 1, Units::Exactly(1)).unwrap()
}

/// The token of a claim that must hold.
pub fn token(answer: Answer) -> u64 {
    match answer {
        Answer::Granted(grant) => grant.token,
        other => panic!("not granted: {other:?}"),
    }
}
