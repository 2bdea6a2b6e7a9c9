//! What makes a notification believable.
//!
//! Any role of a database can send a notification on any channel, and a role that can read the claims knows what a
//! promotion looks like. So the functions add a hash over the message and a secret that only lock clients can read.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

/// The secret that the functions and the clients of one schema share; nothing before it was read.
#[derive(Default)]
pub(crate) struct Secret(Mutex<Option<Vec<u8>>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Secret {
    pub(crate) fn set(&self, secret: Option<Vec<u8>>) {
        *self.lock() = secret;
    }

    /// Whether this proof was made with the secret, for this message on this channel.
    pub(crate) fn proves(&self, channel: &str, body: &str, proof: &str) -> bool {
        self.proof(channel, body).is_some_and(|expected| is_same(expected.as_bytes(), proof.as_bytes()))
    }

    /// The same as in `tell_1`.
    pub(crate) fn proof(&self, channel: &str, body: &str) -> Option<String> {
        let secret = self.lock().clone()?;
        let mut hash = Sha256::new();
        for part in [&secret, channel.as_bytes(), b" ", body.as_bytes(), &secret] {
            hash.update(part);
        }
        Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        // Nothing below the lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares all bytes, so that the time it takes says nothing about where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
