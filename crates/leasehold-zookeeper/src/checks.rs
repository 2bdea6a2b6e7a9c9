//! The settings of the servers that our promises rest on, as far as they tell them.
//!
//! Servers tell their settings by the word `conf`, if their whitelist has it (`4lw.commands.whitelist`). Without it only
//! the length of the session that they granted is known.

use std::time::Duration;

use leasehold_core::url::Address;
use leasehold_core::{Check, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::store::INFO;
use crate::url::Target;

/// How long servers may take to tell their settings. Locks do not wait for a server that tells nothing.
const PATIENCE: Duration = Duration::from_secs(1);

const UNKNOWN: &str = "unknown";

/// What the first server says that answers.
pub(crate) async fn settings(target: &Target) -> Option<String> {
    if target.tls.is_some() {
        // The word is only understood in plain text.
        return None;
    }
    let ask = async {
        for host in &target.hosts {
            if let Ok(said) = ask(host).await {
                return Some(said);
            }
        }
        None
    };
    timeout(PATIENCE.min(target.timeout), ask).await.ok().flatten()
}

async fn ask(Address { host, port }: &Address) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.write_all(b"conf").await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said)
}

/// One check per setting. `lease` is the usual one, and `granted` the timeout that its session got.
pub(crate) fn checks(
    target: &Target,
    settings: Option<&str>,
    lease: Duration,
    granted: Duration,
) -> Result<Vec<Check>> {
    let checks = vec![
        tick(target.tick, number(settings, "tickTime")),
        longest(lease, granted, number(settings, "maxSessionTimeout")),
        Check::ok("forceSync", UNKNOWN)
            .effect("if it is off, a power cut can forget the last grants and tokens")
            .remedy("leave it on"),
        Check::ok("skipACL", UNKNOWN)
            .effect("if it is on, every client that reaches the servers can delete locks")
            .remedy("leave it off"),
    ];
    Check::judge(&checks, INFO.name)?;
    Ok(checks)
}

/// A setting in milliseconds.
fn number(settings: Option<&str>, name: &str) -> Option<Duration> {
    let mut lines = settings?.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?;
    value.trim().parse().ok().map(Duration::from_millis)
}

fn tick(assumed: Duration, found: Option<Duration>) -> Check {
    const NAME: &str = "tickTime";
    match found {
        None => Check::ok(NAME, UNKNOWN)
            .effect(format!("if it is longer than {assumed:?}, a guard can outlive its lock"))
            .remedy(
                "allow the word conf (4lw.commands.whitelist) to have it checked, or set tick in the URL",
            ),
        Some(found) if found > assumed => Check::refused(NAME, found.as_millis())
            .effect(format!("the URL assumes {assumed:?} at most, so a guard could outlive its lock"))
            .remedy(format!("write tick={}ms in the URL", found.as_millis())),
        Some(found) => Check::ok(NAME, found.as_millis()),
    }
}

fn longest(lease: Duration, granted: Duration, found: Option<Duration>) -> Check {
    const NAME: &str = "maxSessionTimeout";
    let found = found.unwrap_or(granted).as_millis();
    match granted < lease {
        true => Check::warning(NAME, found)
            .effect(format!(
                "sessions end before the usual lease of {lease:?}, so such locks outlive a dead client's session"
            ))
            .remedy("raise it on the servers, or use shorter leases"),
        false => Check::ok(NAME, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_line_by_line() {
        let said = "clientPort=2181\ntickTime=2000\nmaxSessionTimeout=40000\n";
        assert_eq!(number(Some(said), "tickTime"), Some(Duration::from_secs(2)));
        assert_eq!(number(Some(said), "minSessionTimeout"), None);
        let refused = "conf is not executed because it is not in the whitelist.";
        assert_eq!(number(Some(refused), "tickTime"), None);
    }
}
