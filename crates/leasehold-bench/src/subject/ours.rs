//! Leasehold itself, used as its documentation says.

use leasehold_core::Client;

use super::{Outcome, Subject};
use crate::round::Inside;

/// A client of any store.
#[derive(Clone, Debug)]
pub struct Ours(pub Client);

impl Subject for Ours {
    async fn pair(&self, name: &str, inside: impl Inside) -> Outcome<()> {
        let guard = self.0.mutex(name).acquire().await?;
        inside.await;
        guard.release().await?;
        Ok(())
    }
}
