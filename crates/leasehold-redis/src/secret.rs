//! The secret that proves promotions.
//!
//! A script that grants a lock to a waiter publishes that to the waiter's client. Whoever may publish could say the
//! same, so the script adds a proof: a hash of the message and of a secret that the lock clients of a server share.
//! The secret has a key of its own, which a read-only role need not be able to read. Clients pass it to the scripts,
//! because a script in a cluster cannot read a key of another slot. A message without a valid proof is only a hint:
//! its client asks the server.
//!
//! Whichever client finds no secret stores the one that it knows. So clients that are connected still agree after
//! the server has forgotten everything.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{ClaimId, Result};
use redis::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::fault::Refusal;
use crate::link::Map;
use crate::{names, script};

/// How often the secret is read: a client that does not hear from others has an old one for no longer.
const LOOKS_EVERY: Duration = Duration::from_secs(5);
/// Messages without a proof make a client read the secret, at most this often.
const BETWEEN: Duration = Duration::from_millis(500);
/// A shorter text under the secret's name is none.
const SHORTEST: usize = 32;

/// What the lock clients of a server have in common.
pub(crate) struct Secret {
    text: Mutex<Arc<str>>,
    doubted: Notify,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// A new one, of 32 random bytes, that is stored where there is none.
    ///
    /// # Errors
    /// `Unavailable` when the operating system has no randomness to give.
    pub(crate) fn random() -> Result<Self> {
        let halves = [ClaimId::random()?, ClaimId::random()?];
        let bytes = halves.iter().flat_map(|half| half.as_bytes());
        let text: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { text: Mutex::new(text.into()), doubted: Notify::new() })
    }

    /// What to pass to a script.
    pub(crate) fn text(&self) -> Arc<str> {
        self.lock().clone()
    }

    /// Whether a script that was given this secret published the message: `proof message`.
    pub(crate) fn proves(&self, message: &[u8]) -> bool {
        let Ok(message) = std::str::from_utf8(message) else { return false };
        let Some((proof, said)) = message.split_once(' ') else { return false };
        let secret = self.text();
        let expected = script::sha1(&format!("{secret}{said}{secret}"));
        // In constant time: how long it takes does not tell how much of a guess was right.
        let differences = proof.bytes().zip(expected.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        proof.len() == expected.len() && differences == 0
    }

    /// A message had no valid proof: read the secret again soon.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Reads the secret, and stores ours where there is none. A server that is out of reach is asked again later.
    ///
    /// # Errors
    /// `Denied` or `Conflict` when the server refuses for good.
    pub(crate) async fn learn(&self, map: &Map, until: Instant) -> Result<()> {
        let Some(wire) = map.wire(names::slot(names::SECRET), until).await else { return Ok(()) };
        let mut both = redis::pipe();
        both.cmd("SET").arg(names::SECRET).arg(&*self.text()).arg("NX");
        both.cmd("GET").arg(names::SECRET);
        match wire.send_all(&both, until).await.ok().and_then(|mut values| values.pop()) {
            Some(Value::BulkString(stored)) => match String::from_utf8(stored) {
                Ok(stored) if stored.len() >= SHORTEST => *self.lock() = stored.into(),
                _ => tracing::warn!("{} is too short: delete it", String::from_utf8_lossy(names::SECRET)),
            },
            Some(Value::ServerError(error)) => {
                if let Refusal::Final(error) = Refusal::of(&error, wire.address()) {
                    return Err(error);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps up with what is stored, for ever.
    pub(crate) async fn keep_up(self: Arc<Self>, map: watch::Receiver<Arc<Map>>, timeout: Duration) {
        loop {
            tokio::select! {
                () = self.doubted.notified() => {}
                () = sleep(LOOKS_EVERY) => {}
            }
            let now = map.borrow().clone();
            if let Err(error) = self.learn(&now, Instant::now() + timeout).await {
                tracing::debug!(%error, "cannot read the secret");
            }
            drop(now);
            sleep(BETWEEN).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<str>> {
        // Nothing below the lock panics half-way through a change.
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_with_the_hash_of_itself_and_the_secret_is_proven() {
        let (secret, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        let said = "0123456789abcdef 7 9 1 leasehold{:a b}";
        let message = |secret: &str| format!("{} {said}", script::sha1(&format!("{secret}{said}{secret}")));
        let proven = message(&secret.text());
        assert!(secret.proves(proven.as_bytes()));
        assert!(!other.proves(proven.as_bytes()));
        for forged in [
            said.to_owned(),
            message(""),
            format!("- {said}"),
            proven.replace(" 9 ", " 8 "),
            proven[1..].into(),
        ] {
            assert!(!secret.proves(forged.as_bytes()), "{forged}");
        }
        assert!(!secret.proves(&[proven.as_bytes(), b"\xff"].concat()));
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::random().unwrap();
        assert_eq!((secret.text().len(), format!("{secret:?}").contains(&*secret.text())), (64, false));
    }
}
