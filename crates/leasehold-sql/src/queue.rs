//! Those of one process who wait for the same lock.
//!
//! The first of them waits at the server, or asks again and again where that cannot be, and the others wait for it: their
//! number costs the server nothing. Who gives a lock back in this process wakes the first at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Key;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until, timeout_at};

/// The pauses between two questions grow from the first of these to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// The queues of a store: of those locks that somebody waits for. Clones are the same queues.
#[derive(Clone, Debug, Default)]
pub struct Queues(Arc<Mutex<HashMap<Key, Arc<Queue>>>>);

#[derive(Debug, Default)]
struct Queue {
    turn: Arc<tokio::sync::Mutex<()>>,
    freed: Notify,
}

impl Queues {
    pub(crate) fn is_empty(&self, key: &Key) -> bool {
        !self.lock().contains_key(key)
    }

    /// A lock came free, as far as we know.
    pub(crate) fn freed(&self, key: &Key) {
        if let Some(queue) = self.lock().get(key) {
            // Kept for the first when it is asking at this moment.
            queue.freed.notify_one();
        }
    }

    /// Waits at the end of the queue. `None` when its turn did not come until then.
    pub async fn turn(&self, key: &Key, until: Instant) -> Option<First> {
        let queue = self.lock().entry(key.clone()).or_default().clone();
        let place = Place { queues: self.clone(), key: key.clone(), queue };
        let turn = timeout_at(until, place.queue.turn.clone().lock_owned()).await.ok()?;
        Some(First { _turn: turn, place, until, pause: PAUSES.0 })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Queue>>> {
        // Nothing below the lock panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits. The last one removes the queue.
#[derive(Debug)]
struct Place {
    queues: Queues,
    key: Key,
    queue: Arc<Queue>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        // Two: the map's and ours. Nobody joins meanwhile.
        if Arc::strong_count(&self.queue) == 2 {
            queues.remove(&self.key);
        }
    }
}

/// The first of a queue: the one who asks. The next one is first when it is dropped.
#[derive(Debug)]
pub struct First {
    _turn: OwnedMutexGuard<()>,
    place: Place,
    until: Instant,
    pause: Duration,
}

impl First {
    /// Waits until it should ask again. Whether it should at all.
    pub(crate) async fn pause(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.until {
            return false;
        }
        tokio::select! {
            () = self.place.queue.freed.notified() => {}
            () = sleep_until(self.until.min(now + self.pause)) => self.pause = PAUSES.1.min(self.pause * 2),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_hears_at_once_that_the_lock_came_free() {
        let queues = Queues::default();
        let mut first = queues.turn(&key(), Instant::now() + Duration::from_secs(1)).await.unwrap();
        while first.pause < PAUSES.1 {
            assert!(first.pause().await);
        }
        let began = Instant::now();
        queues.freed(&key());
        assert!(first.pause().await);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_asks_and_the_others_wait_for_it() {
        let (queues, key) = (Queues::default(), key());
        let until = Instant::now() + Duration::from_secs(1);
        let first = queues.turn(&key, until).await.unwrap();
        let second = queues.turn(&key, until);
        let leaves = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop(first);
        };
        let (mut second, ()) = tokio::join!(second, leaves);
        let second = second.as_mut().unwrap();
        assert_eq!(until - Instant::now(), Duration::from_millis(700));
        assert!(queues.turn(&key, until).await.is_none(), "its turn does not come");
        assert!(!second.pause().await, "it had its time");
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_queue() {
        let queues = Queues::default();
        let first = queues.turn(&key(), Instant::now()).await;
        assert!(!queues.is_empty(&key()));
        drop(first);
        assert!(queues.is_empty(&key()));
    }
}
