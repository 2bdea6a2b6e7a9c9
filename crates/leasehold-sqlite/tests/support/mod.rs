//! What the tests of this crate share.
#![allow(dead_code, reason = "every test file uses some of it")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "only tests see it")]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Answer, Claim, Clock, Inbox, Key, Moment, Promotion, Result, Store, Units, Wake};
use leasehold_sqlite::{Settings, Sqlite};
use tokio::sync::mpsc;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

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

/// A wall clock that shows what it was set to, in microseconds.
#[derive(Debug)]
pub struct Wall(AtomicU64);

impl Wall {
    pub fn at(micros: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(micros)))
    }

    pub fn set(&self, micros: u64) {
        self.0.store(micros, Ordering::SeqCst);
    }
}

impl Clock for Wall {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst) * 1_000)
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

/// Counts the warnings about a setting that are logged in this process.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// How many contain this text.
    pub fn about(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|warning| warning.contains(text)).count()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.fields().field("setting").is_some()
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = String::new();
        event.record(&mut |_: &Field, value: &dyn fmt::Debug| message += &format!("{value:?} "));
        self.0.lock().unwrap().push(message);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
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
