//! The adaptor as a store.

use std::sync::Arc;
use std::time::Duration;

use super::clerk::Clerk;
use super::interest::Interest;
use super::waiting::Waiting;
use super::{Records, errand};
use crate::capability::Info;
use crate::claim::{Answer, Change, Claim, Inbox, Released};
use crate::error::Result;
use crate::key::Key;
use crate::rule;
use crate::store::{Fut, Page, Snapshot, Store, Wakes};

/// The largest record unless told otherwise: what the narrowest store (Consul) takes.
const MAX_BYTES: usize = 512 * 1024;

/// A [`Store`] on top of [`Records`]. Clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client};
/// use leasehold_core::record::{RecordStore, testing::MapRecords};
/// let store = RecordStore::with_max_bytes(MapRecords::new(), 64 * 1024);
/// let client = Client::new(store).await?;
/// let guard = client.mutex("orders/42").acquire().await?;
/// assert!(client.mutex("orders/42").try_acquire().await?.is_none());
/// # guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RecordStore<R> {
    clerk: Arc<Clerk<R>>,
}

impl<R> Clone for RecordStore<R> {
    fn clone(&self) -> Self {
        Self { clerk: self.clerk.clone() }
    }
}

impl<R: Records> RecordStore<R> {
    /// A store of these records.
    pub fn new(records: R) -> Self {
        Self::with_max_bytes(records, MAX_BYTES)
    }

    /// The same, which refuses to write records that are larger than this.
    pub fn with_max_bytes(records: R, max_bytes: usize) -> Self {
        Self { clerk: Arc::new(Clerk::new(records, max_bytes)) }
    }

    /// The records below.
    pub fn records(&self) -> &R {
        &self.clerk.records
    }

    /// Lets time pass on a key that nobody asks about: who is over leaves, and who is next holds. For stores that find records
    /// of whose claims none is left to do so.
    pub fn pass<'a>(&self, key: &Key) -> Fut<'a, ()> {
        let key = key.clone();
        self.work(|clerk| async move { clerk.plainly(&key, |book, now| rule::pass(book, now)).await })
    }

    /// What was begun is brought to an end, whatever becomes of its caller: a call holds its key's turn while it works. What
    /// nobody wants any more is not begun.
    fn work<'a, T, F>(&self, work: impl FnOnce(Arc<Clerk<R>>) -> F) -> Fut<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let work = work(self.clerk.clone());
        Box::pin(async move {
            let interest = Interest::default();
            errand::run(Box::pin(interest.shared().scope(work))).await
        })
    }
}

impl<R: Records> Store for RecordStore<R> {
    fn info(&self) -> &Info {
        self.clerk.info()
    }

    fn open(&self, inbox: Inbox, wakes: Wakes) -> Fut<'_, ()> {
        Box::pin(self.clerk.open(inbox, wakes))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Fut<'a, Answer> {
        let claim = claim.clone();
        self.work(|clerk| async move {
            let answer = clerk.claim(&claim).await?;
            Waiting::note(&clerk, &claim, &answer);
            Ok(answer)
        })
    }

    fn renew<'a>(&'a self, claims: &'a [Claim]) -> Fut<'a, Vec<Answer>> {
        let claims = claims.to_vec();
        self.work(|clerk| async move {
            let answers = clerk.renew(&claims).await?;
            claims.iter().zip(&answers).for_each(|(claim, answer)| Waiting::note(&clerk, claim, answer));
            Ok(answers)
        })
    }

    fn amend<'a>(&'a self, claim: &'a Claim, change: &'a Change) -> Fut<'a, Answer> {
        let (claim, change) = (claim.clone(), change.clone());
        self.work(|clerk| async move {
            let answer = clerk.amend(&claim, &change).await?;
            Waiting::note(&clerk, &claim, &answer);
            Ok(answer)
        })
    }

    fn release<'a>(&'a self, claim: &'a Claim, refuse_for: Option<Duration>) -> Fut<'a, Released> {
        let claim = claim.clone();
        self.work(move |clerk| async move {
            clerk.waiting.forget(&claim.key, &claim.id);
            clerk.release(&claim, refuse_for).await
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Fut<'a, Option<Snapshot>> {
        let key = key.clone();
        self.work(|clerk| async move { clerk.look(&key).await })
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a str>) -> Fut<'a, Page> {
        let (prefix, cursor) = (prefix.to_owned(), cursor.map(str::to_owned));
        self.work(|clerk| async move { clerk.list(&prefix, cursor.as_deref()).await })
    }

    fn evict<'a>(&'a self, key: &'a Key, token: u64) -> Fut<'a, bool> {
        let key = key.clone();
        self.work(
            move |clerk| async move { clerk.plainly(&key, |book, now| rule::evict(book, token, now)).await },
        )
    }
}
