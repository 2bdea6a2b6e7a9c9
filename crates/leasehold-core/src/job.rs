//! Work that should be done by one process at a time, and not too often: a mutex that ends in time and may
//! leave a tail.

use std::future::Future;
use std::time::Duration;

use crate::capability::{Feature, Info};
use crate::claim::{Units, WHOLE};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::key::Key;
use crate::mutant::Mutant;
use crate::options::Options;
use crate::request::Request;
use crate::store::Snapshot;

/// A piece of work that at most one process does at a time.
///
/// - **At most**: the work is stopped after [`at_most`](Job::at_most), default one hour, so a job that hangs
///   does not hang for ever.
/// - **At least**: nobody starts it again until [`at_least`](Job::at_least) has passed since the start, even
///   if the work was done in a moment or failed. So hosts whose clocks differ by a second do not run the same
///   nightly job twice.
///
/// The job is renewed while it runs. If its process dies, another may start it when the lease has ended, 30 s
/// by default, but not before `at_least` has passed. Where claims end with a session, `at_least` does not
/// survive the process: [`Info::keeps_at_least`] tells.
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
    lease: Duration,
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
///     Run::Skipped(seen) => assert_eq!(seen.unwrap().holders[0].label, "host 7"),
/// }
/// # running.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run<T> {
    /// It ran here.
    Ran(T),
    /// It runs elsewhere, or has finished and is not due yet: the job as it was then, with its holder or with
    /// when it is due. `None` if that has ended in the meantime.
    Skipped(Option<Snapshot>),
}

impl Job {
    pub(crate) fn new(client: &Client, key: &str) -> Self {
        let (lease, at_most) = (client.defaults().lease, Duration::from_secs(3600));
        let (client, key, at_least) = (client.clone(), key.to_owned(), Duration::ZERO);
        Self { client, key, lease, at_most, at_least, label: None }
    }

    /// How long the job stays closed after its process died, if `at_least` does not keep it closed for
    /// longer. Renewed while the job runs. Default: the client's, which is 30 s unless it was set.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The longest that it may run before it is stopped.
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.at_most = limit;
        self
    }

    /// How long nobody starts it again after it was started.
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

    /// Why it does not run here.
    pub(crate) async fn skipped<T>(&self) -> Result<Run<T>> {
        Ok(Run::Skipped(self.client.inspect(&self.key).await?))
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
    /// `Invalid` when `at_least` is longer than the store keeps a lease; else as [`Request::try_acquire`].
    pub async fn start(&self) -> Result<Option<Guard>> {
        let (key, info) = (Key::new(&self.key)?, self.client.info());
        // The store would keep no shorter lease, and the client ends the hold in time.
        let lease = self.lease.min(self.at_most.max(info.min_lease));
        let first = self.first_lease(lease, info).map_err(|error| error.on(&key))?;
        let label = self.label.as_deref().map(Into::into);
        let options = Options { label, ..Options::new() }.lease(lease).max_hold(self.at_most);
        let request: Request =
            Request::new(&self.client, &self.key, WHOLE, Units::Exactly(WHOLE), Feature::Job);
        let guard = request.with(options).first_lease(first).try_acquire().await?;
        if let Some(guard) = &guard {
            guard.keep_until(guard.now() + self.at_least);
        }
        Ok(guard)
    }

    /// The lease that the job starts with: if its process dies, it keeps the job closed until `at_least` has
    /// passed.
    fn first_lease(&self, lease: Duration, info: &Info) -> Result<Duration> {
        let longest = info.max_lease.saturating_sub(info.rounding);
        if self.at_least > longest {
            let message = format!("at_least is {:?}, this store keeps at most {longest:?}", self.at_least);
            return Err(Error::new(ErrorKind::Invalid, message).at(info.name));
        }
        let survives = info.keeps_at_least() && !Mutant::CrashForgetsAtLeast.lives();
        let first = if survives { self.at_least + info.rounding } else { Duration::ZERO };
        Ok(lease.max(first))
    }
}

/// Ends a run. Its work is done, and that is what counts: a release that fails goes on in the background.
pub(crate) async fn give_back(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::warn!(%error, "a job was done, but not given back yet");
    }
}
