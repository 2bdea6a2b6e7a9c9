//! The settings of an agent that our promises rest on. An agent tells them to whoever may read it (`agent:read`).

use std::time::Duration;

use hyper::Method;
use leasehold_core::{Check, Info, Result};
use serde::Deserialize;

use crate::http::{Effect, Http};
use crate::kv;
use crate::store::INFO;

const POLICY: &str = "acl.default_policy";
const LEAVE: &str = "leave_on_terminate";
const TTL: &str = "session_ttl_min";

/// What an agent says about itself, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Agent {
    #[serde(rename = "DebugConfig")]
    settings: Settings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Settings {
    #[serde(rename = "ACLsEnabled")]
    has_acls: bool,
    #[serde(rename = "ACLDefaultPolicy")]
    default_policy: Option<String>,
    #[serde(rename = "ACLResolverSettings")]
    resolver: Option<Resolver>,
    #[serde(rename = "LeaveOnTerm")]
    leaves: Option<bool>,
    #[serde(rename = "SessionTTLMin")]
    shortest: Option<String>,
    #[serde(rename = "ServerMode")]
    is_server: bool,
}

/// Where newer versions keep the policy.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resolver {
    #[serde(rename = "ACLDefaultPolicy")]
    default_policy: Option<String>,
}

/// What the store is, with what the agent says about its settings. `info` is what the URL says.
pub(crate) async fn checked(http: &Http, info: &Info) -> Result<Info> {
    let reply = http.ask(Method::GET, "/v1/agent/self?", Vec::new(), Effect::Reads).await?;
    let agent = if reply.status == 200 { kv::read::<Agent>(&reply).ok() } else { None };
    let (checks, shortest) = match agent {
        Some(agent) => judge(&agent.settings, info.min_lease),
        None => (unknown(), None),
    };
    Check::judge(&checks, INFO.name)?;
    let min_lease = shortest.map_or(info.min_lease, |shortest| info.min_lease.max(shortest));
    Ok(Info { checks, min_lease, expiry_slack: min_lease * 3, ..info.clone() })
}

fn unknown() -> Vec<Check> {
    let unknown = |name| Check::ok(name, "unknown").remedy("give the token agent:read to have it checked");
    [POLICY, LEAVE, TTL].map(unknown).into()
}

/// The checks, and the shortest session that the agent accepts, where it decides that.
fn judge(settings: &Settings, min_lease: Duration) -> (Vec<Check>, Option<Duration>) {
    let resolver = settings.resolver.as_ref().and_then(|resolver| resolver.default_policy.as_deref());
    let policy = match (settings.has_acls, settings.default_policy.as_deref().or(resolver)) {
        (false, _) => "off",
        (true, policy) => policy.unwrap_or("unknown"),
    };
    let leaves = match settings.leaves {
        Some(true) => Check::warning(LEAVE, true)
            .effect(
                "an agent that is stopped in good order ends the sessions, and so all locks, of its clients",
            )
            .remedy("set leave_on_terminate = false on the agent"),
        Some(false) => Check::ok(LEAVE, false),
        None => Check::ok(LEAVE, "unknown"),
    };
    // Sessions are made by servers: what another agent is told about them says nothing.
    let text = settings.shortest.as_deref().filter(|_| settings.is_server);
    let shortest = text.and_then(duration).map(|set| if set.is_zero() { USUAL_TTL } else { set });
    let ttl = match (text, shortest) {
        (_, Some(shortest)) if shortest > min_lease => Check::warning(TTL, seconds(shortest))
            .effect("the servers refuse shorter sessions, so shorter leases are raised to it")
            .remedy(format!("set min_lease={} in the URL, or lower it on the servers", seconds(shortest))),
        (_, Some(shortest)) => Check::ok(TTL, seconds(shortest)),
        (Some(text), None) => Check::ok(TTL, text),
        (None, None) => Check::ok(TTL, "unknown"),
    };
    (vec![Check::ok(POLICY, policy), leaves, ttl], shortest)
}

/// What servers accept that are told nothing.
const USUAL_TTL: Duration = Duration::from_secs(10);

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

/// A duration as Go writes it: `1h2m3.5s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let (mut sum, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, behind) = rest.split_at(unit_at);
        let unit_end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let unit = match &behind[..unit_end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        sum += Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?;
        rest = &behind[unit_end..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [("0s", 0), ("1s", 1000), ("1m30s", 90_000), ("1.5s", 1500), ("250ms", 250)] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("soon"), None);
        assert_eq!(duration("5"), None);
    }

    #[test]
    fn servers_that_are_told_nothing_accept_ten_seconds() {
        let settings = Settings { shortest: Some("0s".to_owned()), is_server: true, ..Settings::default() };
        assert_eq!(judge(&settings, USUAL_TTL).1, Some(USUAL_TTL));
        let client = Settings { is_server: false, ..settings };
        assert_eq!(judge(&client, USUAL_TTL).1, None, "it does not decide");
    }
}
