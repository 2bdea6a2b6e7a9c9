//! The store that a URL names, in the mode that it names.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::{
    Answer, Change, Check, Claim, Fut, Inbox, Info, Key, Page, Released, Result, Snapshot, Store, Wakes,
};
use leasehold_sql::Mode;

use crate::lease::Leased;
use crate::link::Link;
use crate::session;
use crate::url::Target;

/// Locks in a PostgreSQL database. Clones share the connections; the last one closes them.
///
/// ```
/// use leasehold_postgres::Postgres;
/// let store = Postgres::from_url("postgres://app@localhost/app?timeout=500ms")?; // nothing is sent yet
/// assert!(Postgres::from_url("postgres://localhost/app?schema=public").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Postgres {
    link: Link,
    store: Arc<dyn Store>,
    /// What the store promises on the server that it found first.
    info: Arc<OnceLock<Info>>,
}

impl Postgres {
    /// The store that a URL names: `postgres://user:password@host:5432/database`. Nothing is sent before the first use.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense.
    pub fn from_url(url: &str) -> Result<Self> {
        let target = Target::parse(url)?;
        let mode = target.mode;
        let link = Link::new(target)?;
        let store: Arc<dyn Store> = match mode {
            Mode::Lease => Arc::new(Leased::new(link.clone())),
            Mode::Advisory => Arc::new(session::advisory(link.clone())),
            Mode::RowLock => Arc::new(session::rowlock(link.clone())),
        };
        Ok(Self { link, store, info: Arc::default() })
    }

    /// Notes what the store promises with the settings that it found, and warns once where that is less than usual. Every
    /// connection was refused already where a setting must be.
    fn judge(&self) -> Result<()> {
        let Some(settings) = self.link.way().settings() else { return Ok(()) };
        let info = settings.info(self.store.info());
        if self.info.get().is_none() {
            Check::judge(&info.checks, info.name)?;
        }
        let _ = self.info.set(info);
        Ok(())
    }

    /// The statements that make everything this store needs, for those who run migrations themselves. They can be run
    /// again.
    ///
    /// ```
    /// use leasehold_postgres::Postgres;
    /// let store = Postgres::from_url("postgres://app@localhost/app?schema=my_locks")?;
    /// assert!(store.init_sql().contains("CREATE SCHEMA IF NOT EXISTS \"my_locks\""));
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn init_sql(&self) -> &str {
        self.link.init_sql()
    }

    /// Removes everything that is over in the tables of leases, which traffic would remove in time. Says how many locks it
    /// looked at.
    ///
    /// # Errors
    /// When the database cannot be reached or refuses.
    pub async fn vacuum(&self) -> Result<u64> {
        Leased::new(self.link.clone()).vacuum().await
    }
}

impl Store for Postgres {
    fn info(&self) -> &Info {
        self.info.get().unwrap_or_else(|| self.store.info())
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.store.open(inbox, wakes).await?;
            self.judge()
        })
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
