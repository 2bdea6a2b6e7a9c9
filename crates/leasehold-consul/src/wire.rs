//! News for a client, as they are stored under its session.

use leasehold_core::record::News;
use leasehold_core::{Inbox, Key, Promotion};
use serde::{Deserialize, Serialize};

/// What a client is told about one lock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    lock: String,
    /// Its claims that hold now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    granted: Vec<Granted>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Granted {
    seat: u64,
    token: u64,
    units: u64,
}

impl Message {
    pub(crate) fn of(key: &Key, news: &News) -> Self {
        let granted = |p: &Promotion| Granted { seat: p.seat, token: p.token, units: p.units };
        Self { lock: key.as_str().to_owned(), granted: news.promoted.iter().map(granted).collect() }
    }

    /// What it is called: after the seat that was promoted, or 0 for a hint to look.
    pub(crate) fn number(&self) -> u64 {
        self.granted.first().map_or(0, |granted| granted.seat)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(crate) fn key(&self) -> Option<Key> {
        Key::new(self.lock.as_str()).ok()
    }

    pub(crate) fn promotions(&self, inbox: Inbox) -> Vec<Promotion> {
        let Some(key) = self.key() else { return Vec::new() };
        let one = |granted: &Granted| Promotion {
            key: key.clone(),
            inbox,
            seat: granted.seat,
            token: granted.token,
            units: granted.units,
        };
        self.granted.iter().map(one).collect()
    }
}
