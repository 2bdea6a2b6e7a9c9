//! Following a key: written once, on `inspect`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};

use crate::client::Client;
use crate::error::Result;
use crate::key::Key;
use crate::store::Snapshot;

/// How often a watched key is looked at.
const EVERY: Duration = Duration::from_millis(250);

/// A stream of the states of a key: see [`Client::watch`](crate::Client::watch).
///
/// It looks at the key four times a second: changes that undo each other between two looks are not seen. An error
/// does not end it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory};
/// let client = Client::new(Memory::new()).await?;
/// let mut watch = client.watch("orders/42")?;
/// assert!(watch.next().await?.is_none()); // free
/// let guard = client.mutex("orders/42").acquire().await?;
/// assert_eq!(watch.next().await?.unwrap().holders[0].token, guard.token());
/// # Ok(()) }
/// ```
pub struct Watch(Pin<Box<dyn Stream<Item = Result<Option<Snapshot>>> + Send>>);

/// What makes two states different: who is there and what they publish, not how long.
type Who = Vec<(u64, u64, u64, Option<Arc<[u8]>>, Option<u64>)>;

impl Watch {
    pub(crate) fn new(client: Client, key: Key) -> Self {
        let states =
            stream::unfold((client, key, None), |(client, key, seen): (Client, Key, Option<Who>)| async {
                let (found, seen) = next_change(&client, &key, seen).await;
                Some((found, (client, key, seen)))
            });
        Self(Box::pin(states))
    }

    /// The state at first, then the state after each change; `None` when nobody holds or waits.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the store does not answer; the watch can go on.
    pub async fn next(&mut self) -> Result<Option<Snapshot>> {
        // The stream never ends.
        self.0.next().await.unwrap_or(Ok(None))
    }
}

impl Stream for Watch {
    type Item = Result<Option<Snapshot>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

async fn next_change(
    client: &Client,
    key: &Key,
    seen: Option<Who>,
) -> (Result<Option<Snapshot>>, Option<Who>) {
    loop {
        let now = match client.inspect(key.as_str()).await {
            Ok(now) => now,
            Err(error) => {
                tokio::time::sleep(EVERY).await;
                return (Err(error), seen);
            }
        };
        let who = now.as_ref().map_or_else(Vec::new, who);
        if seen.as_ref() != Some(&who) {
            return (Ok(now), Some(who));
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn who(snapshot: &Snapshot) -> Who {
    let limit = (0, 0, snapshot.effective_limit, None, None);
    let holders = snapshot.holders.iter().map(|h| (h.seat, h.token, h.units, Some(h.value.clone()), h.count));
    let finished = snapshot.finished.iter().map(|f| (f.seat, f.token, f.units, None, None));
    let waiters = snapshot.waiters.iter().map(|waiter| (waiter.seat, 0, waiter.units, None, None));
    std::iter::once(limit).chain(holders).chain(finished).chain(waiters).collect()
}
