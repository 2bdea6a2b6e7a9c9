//! Which store: `--store`, `LEASEHOLD_STORE`, or the file in the user's state directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Client, Severity, Store, redact, sqlite};
use tokio::time::sleep;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::{say, warn};
use crate::settings::Wait;

/// Where the store is taken from when `--store` is not given.
pub(crate) const STORE_VARIABLE: &str = "LEASEHOLD_STORE";

/// How long giving things back may take at the end: their lease ends them anyway.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// The same if the store has just been found out of reach.
const BRIEF_FAREWELL: Duration = Duration::from_millis(100);

/// How long one attempt to connect may take.
const ONE_ATTEMPT: Duration = Duration::from_secs(5);

/// How often a store is asked that cannot serve.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// What a password looks like once it is hidden.
const HIDDEN: &str = "***";

/// What the guardian must know of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// Locks a file while it writes: a runner that is stopped then blocks the other clients.
    Sqlite,
    Other,
}

/// The store of this run.
pub(crate) struct Chosen {
    store: Arc<dyn Store>,
    /// May have a password in it.
    pub(crate) url: String,
    /// The same without the password.
    pub(crate) shown: String,
    pub(crate) verbose: bool,
}

impl Chosen {
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        let given = global.store;
        given.as_deref().map_or(Ok(()), check)?;
        let shown = match &given {
            Some(url) => redact(url),
            None => format!("sqlite://{}", sqlite::default_path()?.display()),
        };
        let url = given.unwrap_or_else(|| "sqlite:".to_owned());
        let from_environment = std::env::var(STORE_VARIABLE).is_ok_and(|variable| variable == url);
        if from_environment && url.contains(HIDDEN) {
            let message = "an outer `leasehold run` has hidden the password of the store: set it again here";
            return Err(Failure::new(Exit::Usage, format!("{STORE_VARIABLE}={shown}: {message}")));
        }
        if redact(&url) != url && !from_environment {
            say(format_args!("others can see the password in the arguments: use {STORE_VARIABLE} instead"));
        }
        if global.verbose {
            say(format_args!("store {}", shown.escape_debug()));
        }
        Ok(Self { store: leasehold::open(&url)?, url, shown, verbose: global.verbose })
    }

    /// A quorum with a SQLite file among its members locks the file as well.
    pub(crate) fn kind(&self) -> StoreKind {
        if self.url.contains("sqlite:") { StoreKind::Sqlite } else { StoreKind::Other }
    }

    /// Connects for a command that has no wait limit of its own.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        self.connected(Client::new(self.store.clone()).await)
    }

    /// Connects. If servers of the store answer, but none can serve, says so and waits for as long as the command waits for
    /// its lock.
    pub(crate) async fn connect_within(&self, wait: Wait) -> Result<Client, Failure> {
        let (start, mut has_answered) = (Instant::now(), false);
        loop {
            let limit = match wait.since(start) {
                // A store that does not answer must not take longer than that.
                Wait::AtMost(left) if left < ONE_ATTEMPT => left,
                _ => Duration::ZERO,
            };
            let client = Client::builder().connect_timeout(limit).connect(self.store.clone()).await;
            let Err(error) = &client else { return self.connected(client) };
            // Servers that have answered once may restart before one of them can serve.
            let may_recover = (has_answered || error.is_transient()) && error.is_retryable();
            let left = wait.since(start);
            if !may_recover || left.is_over() {
                return self.connected(client);
            }
            if !std::mem::replace(&mut has_answered, true) {
                waiting(error);
            }
            sleep(PAUSE.min(left.as_duration())).await;
        }
    }

    /// Whatever goes wrong here: the URL is in order, so it is the store.
    fn connected(&self, client: leasehold::Result<Client>) -> Result<Client, Failure> {
        let client = client.map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
        client.info().checks.iter().filter(|check| check.severity == Severity::Warning).for_each(warn);
        Ok(client)
    }
}

/// Says what the command waits for, instead of standing still without a word.
pub(crate) fn waiting(error: &leasehold::Error) {
    say(format_args!("waiting for the store: {error}"));
}

/// Refuses URLs that lock nothing between the runs of a command.
fn check(url: &str) -> Result<(), Failure> {
    let mut members = url.strip_prefix("quorum:").unwrap_or(url).split(',');
    let message = if url.trim().is_empty() {
        format!("the store's URL is empty: set --store or {STORE_VARIABLE} to a URL, or leave out both")
    } else if members.any(|member| member.starts_with("memory:")) {
        "memory: locks nothing between processes: use sqlite: or file: on one machine".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::new(Exit::Usage, message))
}

/// How long to wait for a client's close after this outcome.
pub(crate) fn farewell<T>(end: &Result<T, Failure>) -> Duration {
    match end {
        Err(failure) if failure.exit == Exit::Unavailable => BRIEF_FAREWELL,
        _ => FAREWELL,
    }
}

/// What a program may see of the store: nothing secret. Not nothing at all, or else a `leasehold` inside of it
/// would quietly lock in the default store, where nobody else does.
pub(crate) fn for_the_program() -> Option<String> {
    std::env::var(STORE_VARIABLE).ok().map(|url| redact(&url))
}
