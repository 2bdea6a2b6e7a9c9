//! Following a key: written once, on `inspect`.

use std::time::Duration;

use crate::client::Client;
use crate::error::Result;
use crate::key::Key;
use crate::store::Snapshot;

/// How often a watched key is looked at.
const EVERY: Duration = Duration::from_millis(250);

/// Follows a key: see [`Client::watch`](crate::Client::watch).
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
#[derive(Debug)]
pub struct Watch {
    client: Client,
    key: Key,
    seen: Option<Vec<(u64, u64, u64)>>,
}

impl Watch {
    pub(crate) fn new(client: Client, key: Key) -> Self {
        Self { client, key, seen: None }
    }

    /// The state at first, then the state after each change; changes that undo each other between two
    /// looks are not seen.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the store does not answer; the watch can go on.
    pub async fn next(&mut self) -> Result<Option<Snapshot>> {
        loop {
            let now = self.client.inspect(self.key.as_str()).await?;
            let who = now.as_ref().map_or_else(Vec::new, who);
            if self.seen.as_ref() != Some(&who) {
                self.seen = Some(who);
                return Ok(now);
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// What makes two states different: who is there, not how long.
fn who(snapshot: &Snapshot) -> Vec<(u64, u64, u64)> {
    let limit = (0, 0, snapshot.effective_limit);
    let holders = snapshot.holders.iter().map(|holder| (holder.seat, holder.token, holder.units));
    let waiters = snapshot.waiters.iter().map(|waiter| (waiter.seat, 0, waiter.units));
    std::iter::once(limit).chain(holders).chain(waiters).collect()
}
