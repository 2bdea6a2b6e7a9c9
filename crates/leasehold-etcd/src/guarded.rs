//! Writes of the user's own that happen only while a lock is held: the fence inside the store.

use leasehold_core::rule::Row;
use leasehold_core::{Key, Result};

use crate::deciding::Matter;
use crate::store::Etcd;
use crate::wire::message::{Op, Txn};
use crate::words::{delete, is_of, put};

/// Something that a guarded write does to a key of the user's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Stores a value.
    Put(&'a [u8], &'a [u8]),
    /// Removes a key.
    Delete(&'a [u8]),
}

impl Etcd {
    /// Carries out all of these writes if the lock is held with this token, and none of them otherwise; says which.
    ///
    /// Who lost the lock without knowing it yet can write nothing this way: the condition and the writes are one transaction.
    ///
    /// ```no_run
    /// # async fn story() -> Result<(), leasehold_core::Error> {
    /// use leasehold_core::Client;
    /// use leasehold_etcd::{Etcd, Write};
    /// let etcd = Etcd::from_url("etcd://localhost")?;
    /// let client = Client::new(etcd.clone()).await?;
    /// let guard = client.mutex("orders/42").acquire().await?;
    /// let written = etcd.write_if_held("orders/42", guard.token(), &[Write::Put(b"orders/42/state", b"paid")]).await?;
    /// assert!(written);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a name that no lock can have, and whatever keeps a request from being answered.
    pub async fn write_if_held(&self, key: &str, token: u64, writes: &[Write<'_>]) -> Result<bool> {
        let matter = &Matter::about(self.0.names.lock(&Key::new(key)?), Vec::new());
        let ops: &Vec<Op> = &writes
            .iter()
            .map(|write| match write {
                Write::Put(key, value) => put(key.to_vec(), value.to_vec(), 0),
                Write::Delete(key) => delete(key.to_vec()),
            })
            .collect();
        self.0
            .on_a_member(|member| async move {
                loop {
                    let seen = self.0.look(&member, matter).await?;
                    let holds = |row: &Row| row.held > 0 && row.token == token;
                    let Some(claim) = seen.claims.iter().find(|claim| holds(&claim.row)) else {
                        return Ok(false);
                    };
                    let compare = vec![is_of(&claim.name, claim.modified)];
                    let txn = Txn { compare, success: ops.clone(), failure: Vec::new() };
                    // Its key may have changed for another reason: look again.
                    if member.txn(&txn).await?.succeeded {
                        return Ok(true);
                    }
                }
            })
            .await
            .map_err(|error| error.at("etcd"))
    }
}
