//! A wake sink that remembers what it was told, for cases about notifications.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Key, Promotion, Wake};
use tokio::sync::Notify;

/// Remembers everything that a store pushes to one inbox.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    heard: Mutex<Heard>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Heard {
    promotions: Vec<Promotion>,
    looks: Vec<Key>,
}

impl Listener {
    /// All promotions heard so far.
    pub(crate) fn promotions(&self) -> Vec<Promotion> {
        self.with(|heard| heard.promotions.clone())
    }

    /// Whether it hears of a promotion on `key`, or is told to look at it, within the limit.
    pub(crate) async fn told_within(&self, key: &Key, limit: Duration) -> bool {
        let told = |heard: &mut Heard| {
            let promoted = heard.promotions.iter().any(|promotion| promotion.key == *key);
            (promoted || heard.looks.contains(key)).then_some(())
        };
        self.within(limit, told).await.is_some()
    }

    /// Whether it is told to look at `key` within the limit.
    pub(crate) async fn look_within(&self, key: &Key, limit: Duration) -> bool {
        self.within(limit, |heard| heard.looks.contains(key).then_some(())).await.is_some()
    }

    async fn within<T: Send>(
        &self,
        limit: Duration,
        pick: impl Fn(&mut Heard) -> Option<T> + Send + Sync,
    ) -> Option<T> {
        let wait = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                // Registered before looking, or news between the look and the wait would be missed.
                news.as_mut().enable();
                if let Some(found) = self.with(&pick) {
                    return found;
                }
                news.await;
            }
        };
        tokio::time::timeout(limit, wait).await.ok()
    }

    fn with<T>(&self, look: impl FnOnce(&mut Heard) -> T) -> T {
        look(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hear(&self, note: impl FnOnce(&mut Heard)) {
        self.with(note);
        self.news.notify_waiters();
    }
}

impl Wake for Listener {
    fn promoted(&self, promotion: &Promotion) {
        self.hear(|heard| heard.promotions.push(promotion.clone()));
    }

    fn look(&self, key: &Key) {
        self.hear(|heard| heard.looks.push(key.clone()));
    }

    fn look_all(&self) {}

    fn is_gone(&self) -> bool {
        false
    }
}
