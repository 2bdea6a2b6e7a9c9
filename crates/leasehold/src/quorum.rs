//! `quorum:`: several stores of any kind as one.

use std::sync::Arc;

use leasehold_core::url::{About, Query};
use leasehold_core::{Quorum, Result, Store};

use crate::name::name_of;
use crate::redact::redact;

/// What these URLs are about.
const ABOUT: About = About {
    store: "quorum",
    forms: "name the members' URLs after quorum:, separated by commas, as in \
            quorum:redis://a,postgres://b/db,sqlite:///c.db",
};

/// Every other word is a member's URL.
const KNOWN: &str = "known are max_lease, member_timeout and restart_quarantine";

/// The quorum of the members that the URL names, each opened by `open`.
///
/// No bracket, space, semicolon or ampersand, so that it survives a shell and an environment variable unquoted.
pub(crate) fn open_quorum(
    url: &str,
    open: impl Fn(&str) -> Result<Arc<dyn Store>>,
) -> Result<Arc<dyn Store>> {
    let (settings, members) = split(url);
    if members.is_empty() {
        return Err(ABOUT.invalid(ABOUT.forms));
    }
    let mut settings = Query::parse(ABOUT, &settings.join("&"))?;
    let mut quorum = Quorum::builder();
    let mut servers: Vec<String> = Vec::new();
    for member in members {
        if is_quorum(member) {
            return Err(ABOUT.invalid("a quorum cannot be a member of another: name its members"));
        }
        for server in servers_of(member) {
            if servers.contains(&server) {
                let message = format!("the server {server} is named twice: its members would fail together");
                return Err(ABOUT.invalid(message));
            }
            servers.push(server);
        }
        quorum = quorum.member(redact(member), open(member)?);
    }
    if let Some(limit) = settings.duration("max_lease")? {
        quorum = quorum.max_lease(limit);
    }
    if let Some(limit) = settings.duration("member_timeout")? {
        quorum = quorum.member_timeout(limit);
    }
    if settings.switch("restart_quarantine")? == Some(false) {
        quorum = quorum.without_quarantine();
    }
    settings.done(KNOWN)?;
    Ok(Arc::new(quorum.build()?))
}

/// The servers that a member's URL names, with their ports. Empty for files, and where several members can share what the
/// URL names: Sentinels, or the agent of several datacentres.
fn servers_of(url: &str) -> Vec<String> {
    let name = name_of(url);
    let Some((scheme, rest)) = name.split_once("://") else { return Vec::new() };
    let port = match scheme {
        "redis" | "rediss" => "6379",
        "postgres" | "postgresql" => "5432",
        "mysql" | "mariadb" => "3306",
        _ => return Vec::new(),
    };
    let hosts = rest.split(['/', '?']).next().unwrap_or_default().split(',').filter(|host| !host.is_empty());
    let has_port = |host: &str| host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    hosts.map(|host| if has_port(host) { host.to_owned() } else { format!("{host}:{port}") }).collect()
}

/// Whether a URL is one of these.
pub(crate) fn is_quorum(url: &str) -> bool {
    url.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("quorum"))
}

/// The settings of a URL, and the URLs of its members. A comma starts a member only where a scheme follows: URLs of
/// several hosts have commas of their own.
pub(crate) fn split(url: &str) -> (Vec<&str>, Vec<&str>) {
    let (_, mut rest) = url.split_once(':').unwrap_or(("", url));
    let (mut settings, mut members) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let commas = rest.match_indices(',').map(|(at, _)| at);
        let end = match starts_a_url(rest) {
            true => commas.into_iter().find(|at| starts_a_url(&rest[at + 1..])),
            false => commas.into_iter().next(),
        };
        let part = &rest[..end.unwrap_or(rest.len())];
        if starts_a_url(rest) {
            members.push(part)
        } else {
            settings.push(part)
        }
        rest = end.map_or("", |end| &rest[end + 1..]);
    }
    (settings, members)
}

/// Whether it starts like `scheme://` or `scheme:/path`. The port of a host has no slash after its colon.
fn starts_a_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_plain = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+');
    is_plain && scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && rest.starts_with('/')
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ErrorKind, Memory};

    use super::*;

    fn opened(url: &str) -> Result<Arc<dyn Store>> {
        open_quorum(url, |_| Ok(Arc::new(Memory::new())))
    }

    #[test]
    fn members_are_told_from_hosts_and_settings() {
        let (settings, members) =
            split("quorum:max_lease=9s,redis+sentinel://a:1,b:2/s,postgres://u:p,q@c/db?x=1,sqlite:/d.db");
        assert_eq!(settings, ["max_lease=9s"]);
        assert_eq!(members, ["redis+sentinel://a:1,b:2/s", "postgres://u:p,q@c/db?x=1", "sqlite:/d.db"]);
    }

    #[test]
    fn three_stores_make_a_quorum() {
        let store =
            opened("quorum:member_timeout=2s,max_lease=20s,memory://a,memory://b,memory://c").unwrap();
        assert_eq!(store.info().name, "quorum");
        assert_eq!(store.info().max_lease, std::time::Duration::from_secs(20));
    }

    #[test]
    fn members_may_share_sentinels_and_differ_in_ports() {
        let urls = [
            "redis+sentinel://s1,s2/a,redis+sentinel://s1,s2/b,redis+sentinel://s1,s2/c",
            "redis://h:1,redis://h:2,redis://h:3",
            "redis://h,postgres://h/d,mysql://h/d",
        ];
        for members in urls {
            assert!(opened(&format!("quorum:{members}")).is_ok(), "{members}");
        }
    }

    #[test]
    fn what_makes_no_quorum_is_refused_and_says_why() {
        for (url, reason) in [
            ("quorum:", "separated by commas"),
            ("quorum:a,b,c", "separated by commas"),
            ("quorum:memory://a,memory://b", "odd number"),
            ("quorum:memory://a,memory://b,memory://a", "named twice"),
            ("quorum:max_lease=x,memory://a,memory://b,memory://c", "max_lease"),
            ("quorum:lease=1s,memory://a,memory://b,memory://c", "known are"),
            ("quorum:memory://a,memory://b,quorum:/x", "member of another"),
            ("quorum:redis://h/1,redis://h/2,redis://h/3", "the server h:6379 is named twice"),
            ("quorum:redis://u:p@h:6379/1,rediss://[::1],redis://h", "the server h:6379 is named twice"),
            ("quorum:postgres://a@h/one,mysql://h/d,postgres://b@h/two", "the server h:5432 is named twice"),
        ] {
            let error = opened(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn a_member_s_password_is_in_no_message() {
        let error = opened("quorum:redis://u:hunter2@a,redis://u:hunter2@a,memory://c").unwrap_err();
        assert!(
            error.to_string().contains("named twice") && !error.to_string().contains("hunter2"),
            "{error}"
        );
    }
}
