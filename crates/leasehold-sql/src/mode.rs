//! What a lock is in a database, by URL.

use leasehold_core::Result;
use leasehold_core::url::{About, Query};

/// What a lock is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A row that says until when.
    Lease,
    /// A named lock of a session.
    Advisory,
    /// A locked row.
    RowLock,
}

impl Mode {
    /// What a URL says with `mode=`; without it, leases.
    ///
    /// ```
    /// use leasehold_core::url::{About, Url};
    /// use leasehold_sql::Mode;
    /// let about = About { store: "postgres", forms: "write it like postgres://host/database" };
    /// let mut url = Url::parse(about, "postgres://host/database?mode=rowlock")?;
    /// assert_eq!(Mode::parse(about, &mut url.query)?, Mode::RowLock);
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` when there is no such mode.
    pub fn parse(about: About, query: &mut Query) -> Result<Self> {
        match query.take("mode").as_deref() {
            None | Some("lease") => Ok(Self::Lease),
            Some("advisory") => Ok(Self::Advisory),
            Some("rowlock") => Ok(Self::RowLock),
            Some(other) => {
                let other = other.escape_debug();
                Err(about.invalid(format!("there is no mode \"{other}\": write lease, advisory or rowlock")))
            }
        }
    }
}
