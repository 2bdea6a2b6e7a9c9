//! Power cuts: test programs of the full tier that cut a store's power at the moment it has answered a grant.
//!
//! A store that is killed keeps what it has written, because the page cache survives. Only a disk that forgets what was not
//! synced shows whether an answered grant was durable. This module has what such programs share: [`Trials`] runs them, or
//! lists them as ignored with the reason, and [`cut`] asks the questions. The disk is the caller's.

use std::process::ExitCode;
use std::time::Duration;

use leasehold_core::{Client, Options};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::scale::Scale;

/// How often [`cut`] cuts the power.
pub const CUTS: usize = 3;
/// No lease ends during a trial.
const LEASE: Duration = Duration::from_secs(600);
/// A trial that takes longer than this hangs, and fails.
const DEADLINE: Duration = Duration::from_secs(480);
/// How many grants come before each cut. Databases reserve numbers ahead (PostgreSQL 32), so that fewer are never forgotten.
const RUN: usize = 50;
const KEY: &str = "orders/42";

/// The trials of a test program with `harness = false`.
#[derive(Debug, Default)]
pub struct Trials(Vec<Trial>);

impl Trials {
    /// No trials yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a trial. `start` sets the store up, or says why this machine cannot: then the trial is ignored with that reason.
    #[must_use]
    pub fn add<S>(
        mut self,
        name: &str,
        start: impl FnOnce() -> Result<S, String> + Send + 'static,
        case: impl AsyncFnOnce(S) + Send + 'static,
    ) -> Self {
        self.0.push(Trial::ignorable_test(name, move || judge(start, case)));
        self
    }

    /// Runs them: the `main` of the program returns what this returns.
    pub fn run(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.0).exit_code()
    }
}

fn judge<S>(
    start: impl FnOnce() -> Result<S, String>,
    case: impl AsyncFnOnce(S),
) -> Result<Completion, Failed> {
    if let Some(reason) = Scale::chosen().why_full_tier_is_ignored() {
        return Ok(Completion::ignored_with(reason));
    }
    let site = match start() {
        Ok(site) => site,
        Err(reason) => return Ok(Completion::ignored_with(reason)),
    };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async { timeout(DEADLINE, case(site)).await });
    ended.map_err(|_| format!("not done after {DEADLINE:?}: something hangs"))?;
    Ok(Completion::Completed)
}

/// A server on a disk whose power can be cut.
pub trait Powered {
    /// Connects a new client with these options.
    fn client(&self, options: Options) -> impl Future<Output = Client>;
    /// Cuts the power, and starts the server again with what was synced.
    fn cut_power(&mut self);
}

/// What the server answered after the cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// After so many cuts the lock was free, although its holder had been answered.
    pub free: usize,
    /// After so many cuts the next token was not larger than that of the holder before.
    pub fallen: usize,
}

/// Cuts the power at the moment a grant was answered, starts the server again, and asks for the same lock: [`CUTS`] times.
///
/// # Panics
/// When a request fails, or when the holder of a remembered grant has lost it.
pub async fn cut(site: &mut impl Powered) -> Report {
    let mut report = Report::default();
    let mut last = 0;
    for _ in 0..CUTS {
        let options = || Options::new().lease(LEASE);
        let holder = site.client(options()).await;
        let mutex = holder.mutex(KEY);
        for _ in 0..RUN {
            let guard = mutex.acquire().await.expect("the server answers");
            guard.release().await.expect("the server answers");
        }
        let guard = mutex.acquire().await.expect("the server answers");
        site.cut_power();
        report.fallen += usize::from(guard.token() <= last);
        let other = site.client(options()).await;
        let next = match other.mutex(KEY).try_acquire().await.expect("the server is back") {
            Some(next) => {
                report.free += 1;
                next
            }
            None => {
                assert!(guard.is_valid(), "the server remembers the grant, but its holder has lost it");
                assert!(
                    other.evict(KEY, guard.token()).await.expect("the server is back"),
                    "held by another"
                );
                other.mutex(KEY).acquire().await.expect("the server is back")
            }
        };
        report.fallen += usize::from(next.token() <= guard.token());
        last = next.token();
        // The next round needs the lock.
        next.release().await.expect("the server is back");
    }
    report
}
