//! Work that should be done by one at a time, and not too often: a mutex with a fixed lease that may leave a tail.

use std::future::Future;
use std::time::Duration;

use crate::capability::Feature;
use crate::claim::{Units, WHOLE};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::key::Key;
use crate::options::Options;
use crate::request::Request;
use crate::store::Holder;

/// A piece of work that at most one process does at a time.
///
/// - **At most**: the work is stopped, and somebody else may start, after [`at_most`](Job::at_most), default one
///   hour. The lease is fixed: a job that hangs does not hang for ever.
/// - **At least**: after it started nobody starts it again for [`at_least`](Job::at_least), even when it was done in
///   a moment or failed: hosts whose clocks differ by a second do not run the same nightly job twice.
///
/// It does not remember what was done: a job that is due again runs again.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// use leasehold_core::{Client, Memory, Run};
/// let client = Client::new(Memory::new()).await?;
/// let report = client.job("nightly report").at_least(Duration::from_secs(60));
/// assert_eq!(report.run(|_| async { 42 }).await?, Run::Ran(42));
/// assert!(matches!(report.run(|_| async { 42 }).await?, Run::Skipped(_))); // for a minute
/// # Ok(()) }
/// ```
#[must_use = "a job does nothing until it is run"]
#[derive(Clone, Debug)]
pub struct Job {
    client: Client,
    key: String,
    at_most: Duration,
    at_least: Duration,
    label: Option<String>,
}

/// What became of a job.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
/// # use leasehold_core::{Client, Memory, Run};
/// # let client = Client::new(Memory::new()).await?;
/// let job = client.job("nightly report");
/// let running = job.clone().label("host 7").start().await?.expect("it is due");
/// match job.run(|_| async { 42 }).await? {
///     Run::Ran(answer) => unreachable!("ran beside the other one: {answer}"),
///     Run::Skipped(by) => assert_eq!(by.unwrap().label, "host 7"),
/// }
/// # running.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run<T> {
    /// It ran here.
    Ran(T),
    /// It runs elsewhere, or ran there not long ago: this is who holds it, if that could still be seen.
    Skipped(Option<Holder>),
}

impl Job {
    pub(crate) fn new(client: &Client, key: &str) -> Self {
        let at_most = Duration::from_secs(3600);
        Self { client: client.clone(), key: key.to_owned(), at_most, at_least: Duration::ZERO, label: None }
    }

    /// The longest that it may run before it is stopped.
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.at_most = limit;
        self
    }

    /// How long nobody starts it again after it was started; not longer than [`at_most`](Self::at_most), which is
    /// all that is kept of a job whose process dies.
    pub fn at_least(mut self, pause: Duration) -> Self {
        self.at_least = pause;
        self
    }

    /// Shown to people. Default: host and process id.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Runs `work` unless it runs elsewhere. `work` gets the fencing token of this run.
    ///
    /// # Cancel safety
    /// Dropping the future stops the work and gives the job back, keeping its `at_least`.
    ///
    /// # Errors
    /// `Lost` when it took longer than `at_most` or the store ended it; else as [`start`](Self::start).
    pub async fn run<T, F: Future<Output = T>>(&self, work: impl FnOnce(u64) -> F) -> Result<Run<T>> {
        let Some(guard) = self.start().await? else {
            return self.skipped().await;
        };
        let done = guard.run(work(guard.token())).await?;
        give_back(guard).await;
        Ok(Run::Ran(done))
    }

    /// Who runs it instead.
    pub(crate) async fn skipped<T>(&self) -> Result<Run<T>> {
        let now = self.client.inspect(&self.key).await?;
        Ok(Run::Skipped(now.and_then(|now| now.holders.into_iter().next())))
    }

    /// Acquires it for one run; `None` when it runs elsewhere. Releasing the guard leaves the tail.
    ///
    /// A ticket does not carry the tail: a run that is [handed over](Guard::hand_over) is due again as soon as the
    /// adopter releases it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_core::Error> {
    /// # use leasehold_core::{Client, Memory};
    /// # let client = Client::new(Memory::new()).await?;
    /// let job = client.job("nightly report").at_least(Duration::from_secs(60));
    /// let run = job.start().await?.expect("it is due");
    /// // ... the work, for as long as the guard is valid ...
    /// run.release().await?;
    /// assert!(job.start().await?.is_none()); // not again for a minute
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid` when `at_least` is longer than `at_most`; else as [`Request::try_acquire`].
    pub async fn start(&self) -> Result<Option<Guard>> {
        if self.at_least > self.at_most {
            let message = format!(
                "at_least ({:?}) is longer than at_most ({:?}): raise at_most, which is all that a crash leaves",
                self.at_least, self.at_most
            );
            return Err(Error::new(ErrorKind::Invalid, message).on(&Key::new(&self.key)?));
        }
        let options = Options { label: self.label.as_deref().map(Into::into), ..Options::new() };
        let request: Request =
            Request::new(&self.client, &self.key, WHOLE, Units::Exactly(WHOLE), Feature::Job);
        let guard = request.with(options.fixed(self.at_most)).try_acquire().await?;
        if let Some(guard) = &guard {
            guard.keep_until(guard.now() + self.at_least);
        }
        Ok(guard)
    }
}

/// Ends a run. Its work is done, and that is what counts: a release that fails goes on in the background.
pub(crate) async fn give_back(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::warn!(%error, "a job was done, but not given back yet");
    }
}
