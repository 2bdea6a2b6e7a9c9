//! The claim that the runner holds, and releasing it after the runner has died.
//!
//! The guardian learns of the claim after the grant, and opens the store only if the runner dies. The store's URL and the
//! claim's secret come through the pipe, because other users may see arguments, and programs may inherit an environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{BootClock, Client, Clock, Guard, Moment, ReleaseTicket, Result};
use tokio::time::{sleep, timeout};

/// The variables that the stores read, or the libraries below them.
const VARIABLES: &[&str] = &["HOME", "XDG_STATE_HOME", "CONSUL_HTTP_TOKEN", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The guardian tries for this long at least, even if the lease ends earlier.
const SHORTEST_TRY: Duration = Duration::from_secs(1);
/// The pause before the store is opened again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the guardian stays after the release: requests to further members of a quorum may be under way, and the end
/// of its own session. No client waits for it.
const LAST_REQUESTS: Duration = Duration::from_millis(500);

/// A claim, and the way to its store. Not to be printed.
#[derive(PartialEq, Eq)]
pub(crate) struct HeldClaim {
    ticket: ReleaseTicket,
    /// May have a password in it, and a path relative to the directory.
    url: String,
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl HeldClaim {
    /// The claim of this guard, which the runner holds on the store with this URL.
    pub(crate) fn of(guard: &Guard, url: &str) -> Self {
        let variable = |name: &&str| Some((OsString::from(*name), std::env::var_os(name)?));
        Self {
            ticket: guard.release_ticket(),
            url: url.to_owned(),
            directory: std::env::current_dir().unwrap_or_default(),
            environment: VARIABLES.iter().filter_map(variable).collect(),
        }
    }

    /// Neither URLs nor paths nor variables have zeros in them.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let ticket = self.ticket.to_string();
        let mut parts = vec![ticket.as_bytes(), self.url.as_bytes(), self.directory.as_os_str().as_bytes()];
        for (name, value) in &self.environment {
            parts.extend([name.as_bytes(), value.as_bytes()]);
        }
        parts.join(&0)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let text = |part: &[u8]| Some(str::from_utf8(part).ok()?.to_owned());
        let mut parts = bytes.split(|byte| *byte == 0);
        let ticket = text(parts.next()?)?.parse().ok()?;
        let url = text(parts.next()?)?;
        let directory = OsString::from_vec(parts.next()?.to_vec()).into();
        let mut environment = Vec::new();
        while let Some(name) = parts.next() {
            let os = |part: &[u8]| OsStr::from_bytes(part).to_owned();
            environment.push((os(name), os(parts.next()?)));
        }
        Some(Self { ticket, url, directory, environment })
    }

    /// Releases the claim, or gives up silently at the end of its lease, when the store ends the claim.
    pub(super) fn release(&self, lease_ends: Moment) {
        let now = BootClock.now();
        let limit = lease_ends.since(now).max(SHORTEST_TRY);
        // Elsewhere, a relative path would name another store.
        if std::env::set_current_dir(&self.directory).is_err() {
            return;
        }
        self.set_environment();
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        let _ = runtime.block_on(async { timeout(limit, self.attempt(now + limit)).await });
    }

    #[allow(
        unsafe_code,
        reason = "the guardian starts with an empty environment, and the stores read these variables"
    )]
    fn set_environment(&self) {
        for (name, value) in &self.environment {
            // SAFETY: the guardian has a single thread until it starts a runtime.
            unsafe {
                std::env::set_var(name, value);
            }
        }
    }

    async fn attempt(&self, until: Moment) {
        while BootClock.now() < until {
            match self.connect().await {
                Ok(client) => {
                    let _ = client.release_for_dead_owner(&self.ticket, until).await;
                    let _ = client.close().await;
                    drop(client);
                    return sleep(LAST_REQUESTS).await;
                }
                Err(error) if error.is_retryable() => sleep(PAUSE).await,
                Err(_) => return,
            }
        }
    }

    async fn connect(&self) -> Result<Client> {
        Client::new(leasehold::open(&self.url)?).await
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Memory;

    use super::*;

    #[tokio::test]
    async fn held_claim_comes_back_from_its_bytes() {
        let client = Client::new(Memory::new()).await.unwrap();
        let guard = client.mutex("k").acquire().await.unwrap();
        let held = HeldClaim::of(&guard, "redis://u:p@h");
        assert!(HeldClaim::from_bytes(&held.to_bytes()) == Some(held));
        let bare = HeldClaim { environment: Vec::new(), ..HeldClaim::of(&guard, "sqlite:") };
        assert!(HeldClaim::from_bytes(&bare.to_bytes()) == Some(bare));
        assert!(HeldClaim::from_bytes(b"").is_none());
        assert!(HeldClaim::from_bytes(b"no ticket\0sqlite:\0/").is_none());
    }
}
