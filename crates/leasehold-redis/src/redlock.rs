//! `redlock://`: several independent servers as one store, by the quorum of the core.

use leasehold_core::url::Query;
use leasehold_core::{Error, Quorum, Result};

use crate::store::Redis;
use crate::url::{ABOUT, PORT};

/// The parameters that are about the quorum; all others are the members'.
const OURS: &[&str] = &["max_lease", "member_timeout", "restart_quarantine"];

/// The quorum that a URL names: `redlock://host1,host2,host3`, with TLS `redlocks://`. User, password, database
/// and parameters are those of `redis://` and go to every member, except for
/// - `max_lease=60s`: the longest lease that can be asked for,
/// - `member_timeout=1s`: how long one member may take,
/// - `restart_quarantine=off`: members count although they may have forgotten something: for a set that was
///   just started for the first time.
///
/// Nothing is sent before the first use.
///
/// ```
/// let quorum = leasehold_redis::redlock("redlock://a,b,c?max_lease=30s")?;
/// assert!(leasehold_redis::redlock("redlock://a,b").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
///
/// # Errors
/// `Invalid` when the URL makes no sense, or names an even number of servers.
pub fn redlock(url: &str) -> Result<Quorum> {
    let (members, mut ours) = split(url)?;
    let mut quorum = Quorum::builder();
    let mut servers: Vec<String> = Vec::new();
    for (host, url) in members {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let server = if has_port { host.clone() } else { format!("{host}:{PORT}") };
        if servers.contains(&server) {
            return Err(invalid(&format!("the server {server} is named twice: it would have two votes")));
        }
        servers.push(server);
        quorum = quorum.member(host, Redis::from_url(&url)?);
    }
    if let Some(limit) = ours.duration("max_lease")? {
        quorum = quorum.max_lease(limit);
    }
    if let Some(limit) = ours.duration("member_timeout")? {
        quorum = quorum.member_timeout(limit);
    }
    if ours.switch("restart_quarantine")? == Some(false) {
        quorum = quorum.without_quarantine();
    }
    quorum.build()
}

/// The host and the URL of every member, and what is left for the quorum.
fn split(url: &str) -> Result<(Vec<(String, String)>, Query)> {
    let form = || invalid("write it like redlock://host1,host2,host3, with redlocks:// for TLS");
    let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "redlock" => "redis",
        "redlocks" => "rediss",
        _ => return Err(form()),
    };
    let (login, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, database) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_ours = |pair: &&str| OURS.contains(&pair.split('=').next().unwrap_or_default());
    let (ours, theirs): (Vec<_>, Vec<_>) = query.split('&').partition(is_ours);
    let theirs = theirs.join("&");
    let member = |host: &str| (host.to_owned(), format!("{scheme}://{login}{host}{database}?{theirs}"));
    Ok((hosts.split(',').map(member).collect(), Query::parse(ABOUT, &ours.join("&"))?))
}

fn invalid(message: &str) -> Error {
    ABOUT.invalid(message)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn refusal(url: &str) -> String {
        let error = redlock(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    }

    #[test]
    fn every_member_gets_what_is_not_the_quorums() {
        let (members, _) = split("redlocks://u:p@a:1,b,c/2?max_lease=9s&timeout=1s&cacert=x").unwrap();
        let url = |host: &str| format!("rediss://u:p@{host}/2?timeout=1s&cacert=x");
        let expected = ["a:1", "b", "c"].map(|host| (host.to_owned(), url(host)));
        assert_eq!(members, expected);
    }

    #[test]
    fn a_url_that_makes_no_sense_is_refused() {
        assert!(refusal("redlock://a,b,c?max_lease=x").contains("max_lease"));
        assert!(refusal("redlock://a,b,c?restart_quarantine=no").contains("on or off"));
        assert!(refusal("redlock://a,b,c?what=no").contains("what"));
        assert!(!refusal("redlock://u:hunter2@a,b,").contains("hunter2"));
        assert!(refusal("redlock://a,b,a").contains("named twice"));
        assert!(refusal("redlock://a,b,a:6379").contains("the server a:6379 is named twice"));
        refusal("redlock://a,b");
    }
}
