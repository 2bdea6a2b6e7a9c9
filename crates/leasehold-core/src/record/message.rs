//! News for a client, as stores write them down that have sessions.

use serde::{Deserialize, Serialize};

use super::format::Record;
use super::{Loaded, News};
use crate::claim::Inbox;
use crate::key::Key;
use crate::store::Promotion;

/// What a client is told about one lock.
///
/// ```
/// use leasehold_core::Key;
/// use leasehold_core::record::{Message, News, Session};
/// let news = News { session: Session("s".into()), promoted: Vec::new(), look: true };
/// let text = Message::of(&Key::new("orders/42")?, &news).write();
/// assert_eq!(text, br#"{"lock":"orders/42"}"#);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Serialize, Deserialize)]
pub struct Message {
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
    /// The news about a key.
    pub fn of(key: &Key, news: &News) -> Self {
        let granted = |p: &Promotion| Granted { seat: p.seat, token: p.token, units: p.units };
        Self { lock: key.as_str().to_owned(), granted: news.promoted.iter().map(granted).collect() }
    }

    /// What it is called: after the seat that was promoted, or 0 for a hint to look.
    pub fn number(&self) -> u64 {
        self.granted.first().map_or(0, |granted| granted.seat)
    }

    /// Its text: one line of JSON.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }

    /// A message from its text; `None` when it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The lock.
    pub fn key(&self) -> Option<Key> {
        Key::new(self.lock.as_str()).ok()
    }

    /// The claims of this client that hold now, if the record of the lock says the same.
    ///
    /// A role may have the right to write messages and not records, so a message alone proves nothing.
    pub fn confirmed_by(&self, record: &Loaded, inbox: Inbox) -> Vec<Promotion> {
        let (Some(key), Some(bytes)) = (self.key(), &record.bytes) else { return Vec::new() };
        let Ok(record) = Record::read(&key, bytes, record.origin) else { return Vec::new() };
        let holds = |promotion: &Promotion| {
            record.state.claims.iter().any(|claim| {
                claim.inbox == inbox.0
                    && (claim.seat, claim.token, claim.held)
                        == (promotion.seat, promotion.token, promotion.units)
            })
        };
        self.promotions(inbox).into_iter().filter(holds).collect()
    }

    /// The claims of this client that hold now. Believe it only from a place where nobody else can write.
    pub fn promotions(&self, inbox: Inbox) -> Vec<Promotion> {
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
