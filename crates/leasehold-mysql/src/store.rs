//! The store that a URL names, in the mode that it names.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Answer, Change, Claim, Fut, Inbox, Info, Key, Page, Released, Result, Snapshot, Store, Wakes,
};
use leasehold_sql::Mode;

use crate::lease::{INFO, Leased};
use crate::link::Link;
use crate::session::{self, ADVISORY, ROWLOCK};
use crate::url::Target;

/// Locks in a MySQL or MariaDB database. Clones share the connections; the last one closes them.
///
/// ```
/// use leasehold_mysql::Mysql;
/// let store = Mysql::from_url("mysql://app:secret@localhost/app?timeout=500ms")?; // nothing is sent yet
/// assert!(Mysql::from_url("mysql://localhost/app?prefix=x;").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mysql {
    link: Arc<Link>,
    store: Arc<dyn Store>,
}

impl Mysql {
    /// The store that a URL names: `mysql://user:password@host:3306/database`. Nothing is sent before the first use.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn from_url(url: &str) -> Result<Self> {
        let target = Target::parse(url)?;
        let mode = target.mode;
        let link = Link::new(target);
        let store: Arc<dyn Store> = match mode {
            Mode::Lease => Arc::new(Leased::new(link.clone())),
            Mode::Advisory => Arc::new(session::advisory(link.clone())),
            Mode::RowLock => Arc::new(session::rowlock(link.clone())),
        };
        Ok(Self { link, store })
    }

    /// The statements that make everything this store needs, for those who run migrations themselves. They can be run
    /// again.
    ///
    /// ```
    /// use leasehold_mysql::Mysql;
    /// let store = Mysql::from_url("mysql://app@localhost/app?prefix=my_")?;
    /// assert!(store.init_sql().contains("CREATE TABLE IF NOT EXISTS my_claims"));
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn init_sql(&self) -> String {
        self.link.init_sql()
    }

    /// Removes everything that is over in the tables of leases, which traffic would remove in time. Says how many locks were
    /// cleaned.
    ///
    /// # Errors
    /// When the database cannot be reached or refuses.
    pub async fn vacuum(&self) -> Result<u64> {
        Leased::new(self.link.clone()).vacuum().await
    }
}

/// What a mode promises on a server whose settings are as they should be.
pub(crate) fn declared(mode: Mode) -> &'static Info {
    match mode {
        Mode::Lease => &INFO,
        Mode::Advisory => &ADVISORY,
        Mode::RowLock => &ROWLOCK,
    }
}

impl Store for Mysql {
    fn info(&self) -> &Info {
        self.link.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        self.store.open(inbox, wakes)
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        self.store.claim(claim)
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        self.store.renew(claims)
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        self.store.amend(claim, change)
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        self.store.release(claim, refuse_for)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        self.store.inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        self.store.list(prefix, cursor)
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        self.store.evict(key, token)
    }
}
