//! Members whose settings are not as they should be.

use super::server::Server;
use super::*;
use crate::logs::Warnings;
use crate::{Check, Severity};

/// Three members by name, each behind a network of its own.
struct Named {
    servers: Vec<Server>,
    ways: Vec<Faults<Server>>,
    quorum: Quorum,
}

impl Named {
    fn new(checks: [Vec<Check>; 3]) -> Self {
        let clock = Arc::new(TestClock::new());
        let servers = checks.map(|checks| Server::with_checks(clock.clone(), checks)).to_vec();
        let ways: Vec<_> = servers.iter().cloned().map(Faults::new).collect();
        let mut builder = Quorum::builder().without_quarantine();
        for (name, way) in ["berlin", "paris", "rome"].into_iter().zip(&ways) {
            builder = builder.member(name, way.clone());
        }
        Self { servers, ways, quorum: builder.build().unwrap() }
    }
}

fn good() -> Vec<Check> {
    vec![Check::ok("appendfsync", "always")]
}

fn weak() -> Vec<Check> {
    vec![Check::warning("appendfsync", "everysec").effect("a power cut forgets a second")]
}

fn bad() -> Vec<Check> {
    let refused = Check::refused("maxmemory-policy", "allkeys-lru").remedy("set it to noeviction");
    vec![Check::warning("save", "none").effect("a restart forgets everything"), refused]
}

#[tokio::test(start_paused = true)]
async fn info_lists_the_settings_of_members_by_name() {
    let named = Named::new([good(), weak(), good()]);
    assert_eq!(named.quorum.info().checks, [], "nothing is known before a member is open");
    let client = Client::new(named.quorum.clone()).await.unwrap();
    let found: Vec<_> = client.info().checks.iter().map(|c| (c.name.as_str(), c.severity)).collect();
    let (ok, warning) = (Severity::Ok, Severity::Warning);
    let expected = [("berlin: appendfsync", ok), ("paris: appendfsync", warning), ("rome: appendfsync", ok)];
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn info_lists_the_settings_of_a_member_that_joins_later() {
    let named = Named::new([good(), good(), weak()]);
    named.ways[2].once(Verb::Open, Fault { request: Request::Refused, ..Fault::default() });
    let client = Client::new(named.quorum.clone()).await.unwrap();
    assert_eq!(client.info().checks.len(), 2);
    soon(async || client.info().checks.len() == 3).await;
    assert_eq!(client.info().checks[2].name, "rome: appendfsync");
}

#[tokio::test(start_paused = true)]
async fn refused_member_is_reported_once_and_not_opened_again() {
    let (warnings, _guard) = Warnings::collect();
    let named = Named::new([weak(), good(), bad()]);
    let client = Client::new(named.quorum.clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(named.servers[2].opens(), 1);
    let refusals = warnings.about("maxmemory-policy");
    assert!(refusals.len() == 1 && refusals[0].contains("rome"), "{refusals:?}");
    assert_eq!(warnings.about("save is none"), [""; 0], "a refused store has no promise to weaken");
    assert_eq!(warnings.about("appendfsync is everysec").len(), 1);
    let checks = &client.info().checks;
    let refused = checks.iter().find(|check| check.name == "rome").unwrap();
    assert_eq!((refused.severity, refused.found.as_str()), (Severity::Warning, "refused"));
    assert!(refused.to_string().contains("maxmemory-policy is allkeys-lru"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn refused_member_is_named_by_the_error_of_a_call_that_needs_it() {
    let named = Named::new([good(), good(), bad()]);
    let client = Client::new(named.quorum.clone()).await.unwrap();
    named.ways[1].plan(|_| Fault { request: Request::Refused, ..Fault::default() });
    let error = client.mutex("k").try_acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("rome") && text.contains("maxmemory-policy"), "{text}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "the second member may come back: {text}");
    named.ways[1].heal();
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn quorum_whose_majority_is_refused_does_not_connect() {
    let named = Named::new([bad(), good(), bad()]);
    let error = Client::new(named.quorum.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("berlin") && text.contains("rome"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn member_that_stays_away_is_reported_once() {
    let (warnings, _guard) = Warnings::collect();
    let named = Named::new([good(), good(), good()]);
    named.ways[2].plan(|_| Fault { request: Request::Refused, ..Fault::default() });
    let _client = Client::new(named.quorum.clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(named.ways[2].injected().calls > 10, "it is tried again");
    assert_eq!(warnings.about("rome").len(), 1, "{:?}", warnings.about("rome"));
}
