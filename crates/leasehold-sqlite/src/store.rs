//! The store: the rule, over rows in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rule;
use leasehold_core::{
    Answer, Capability, Change, Claim, Fut, Inbox, Info, Key, Leases, Page, Released, Result, Snapshot,
    Store, TokenStrength, Wakes,
};

use crate::clerk::Clerk;
use crate::location;
use crate::settings::Settings;
use crate::step::{Bound, Mode};

/// How many keys a page of `list` has.
const PAGE: usize = 500;

/// What every SQLite store is and promises.
pub static INFO: Info = Info {
    name: "sqlite",
    capabilities: Capability::ALL,
    tokens: TokenStrength::ClockBound,
    leases: Leases::PerClaim,
    ordered: true,
    pushes: cfg!(target_os = "linux"),
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(100 * 365 * 24 * 3600),
    rounding: Duration::from_millis(1),
    expiry_slack: Duration::ZERO,
    // One transaction on the caller's thread: it should not take longer than a few hundred microseconds.
    batch: 64,
    checks: Vec::new(),
};

/// Claims in a SQLite file, shared by the processes of one machine. Clones share the connection; the last
/// one closes it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold_core::Client;
/// use leasehold_sqlite::{Settings, Sqlite};
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("locks.db");
/// let one = Client::new(Sqlite::open(&path, Settings::new())?).await?;
/// let two = Client::new(Sqlite::open(&path, Settings::new())?).await?;
/// let guard = one.mutex("orders/42").acquire().await?;
/// assert!(two.mutex("orders/42").try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Sqlite {
    clerk: Arc<Clerk>,
}

impl Sqlite {
    /// A store in this file. The file and its directories are created when it is first used.
    ///
    /// # Errors
    /// `Unavailable` when the operating system has no thread to give. Whatever is wrong with the file is
    /// reported by the first use: [`Store::open`].
    pub fn open(path: impl AsRef<Path>, settings: Settings) -> Result<Self> {
        Ok(Self { clerk: Arc::new(Clerk::start(path.as_ref(), settings)?) })
    }

    /// The store that a URL names: `sqlite:///absolute/path.db`, `sqlite:relative/path.db`, or `sqlite:` for
    /// [the default](crate::default_path); `?sync=full` syncs every commit, `?network=on` accepts a shared file system.
    ///
    /// # Errors
    /// `Invalid` when the URL makes no sense, else as [`Sqlite::open`].
    pub fn from_url(url: &str) -> Result<Self> {
        let (path, settings) = location::parse(url)?;
        Self::open(path, settings)
    }

    /// Where the file is.
    pub fn path(&self) -> PathBuf {
        self.clerk.path().to_owned()
    }

    /// How many rows the file has beyond its own one, after dropping what is over: nothing when everything
    /// was released.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub async fn residue(&self) -> Result<u64> {
        let body = |step: &mut crate::step::Step<'_>| {
            step.sweep()?;
            step.count()
        };
        self.clerk.have_done(Mode::Write, body).await
    }
}

impl Store for Sqlite {
    fn info(&self) -> &Info {
        self.clerk.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(async move {
            self.clerk.open().await?;
            self.clerk.inboxes().open(self.clerk.path(), inbox, wakes);
            Ok(())
        })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        let claim = claim.clone();
        Box::pin(self.clerk.carry_out(Mode::Write, move |step| {
            step.on(&claim.key, |rows, now| rule::claim(rows, &claim, now))
        }))
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        let claims = claims.to_vec();
        Box::pin(self.clerk.carry_out(Mode::Write, move |step| {
            claims
                .iter()
                .map(|claim| step.on(&claim.key, |rows, now| rule::renew(rows, claim, now)))
                .collect()
        }))
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        let (claim, change) = (claim.clone(), change.clone());
        Box::pin(self.clerk.carry_out(Mode::Write, move |step| {
            step.on(&claim.key, |rows, now| rule::amend(rows, &claim, &change, now))
        }))
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        let (key, id) = (claim.key.clone(), claim.id);
        Box::pin(self.clerk.carry_out(Mode::Write, move |step| {
            step.on(&key, |rows, now| rule::release(rows, &id, refuse_for, now))
        }))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        let key = key.clone();
        Box::pin(
            self.clerk
                .carry_out(Mode::Read, move |step| step.on(&key, |rows, now| rule::snapshot(rows, now))),
        )
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        let (prefix, cursor) = (prefix.to_owned(), cursor.map(str::to_owned));
        Box::pin(self.clerk.carry_out(Mode::Read, move |step| {
            let from = match &cursor {
                Some(last) if *last >= prefix => Bound::After(last.as_bytes()),
                _ => Bound::At(prefix.as_bytes()),
            };
            let mut keys = step.keys(from, end_of(&prefix).as_deref(), PAGE + 1)?;
            let more = keys.len() > PAGE;
            keys.truncate(PAGE);
            let next = keys.last().filter(|_| more).map(|key| key.as_str().to_owned());
            let shown =
                keys.iter().filter_map(|key| step.on(key, |rows, now| rule::snapshot(rows, now)).transpose());
            Ok(Page { resources: shown.collect::<Result<_>>()?, next })
        }))
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        let key = key.clone();
        Box::pin(self.clerk.carry_out(Mode::Write, move |step| {
            step.on(&key, |rows, now| {
                rows.needs_no_number();
                rule::evict(rows, token, now)
            })
        }))
    }
}

/// The first name after all that start with `prefix`; `None` when there is no such name.
fn end_of(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    // No byte of UTF-8 is the largest one.
    *end.last_mut()? += 1;
    Some(end)
}
