//! What the store finds in a server's settings when it connects.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_core::{Check, Client, Error, ErrorKind, Result, Severity, Store};
use leasehold_redis::Redis;
use leasehold_servers::redis::{Cluster, Redis as Server, Sentinel};
use leasehold_servers::wait_until;
use tokio::time::{Instant, sleep};

async fn checks_at(url: &str) -> Result<Vec<Check>> {
    let store = Redis::from_url(url)?;
    assert!(store.info().checks.is_empty(), "nothing is known before the store connects");
    let client = Client::new(store.clone()).await?;
    let checks = store.info().checks.clone();
    client.close().await?;
    Ok(checks)
}

async fn checks(settings: &[&str]) -> Result<Vec<Check>> {
    checks_at(&Server::with(settings).url()).await
}

fn one<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name} in {checks:?}"))
}

#[tokio::test]
async fn a_server_that_may_evict_locks_is_refused() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl", "volatile-lfu"] {
        let error = checks(&["--maxmemory", "100mb", "--maxmemory-policy", policy]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let said = error.to_string();
        assert!(
            said.contains("maxmemory-policy") && said.contains(policy) && said.contains("noeviction"),
            "{said}"
        );
    }
    for settings in [
        ["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"],
        ["--maxmemory", "0", "--maxmemory-policy", "allkeys-lru"],
    ] {
        let checks = checks(&settings).await.unwrap();
        assert_eq!(one(&checks, "maxmemory-policy").severity, Severity::Ok, "{checks:?}");
    }
}

#[tokio::test]
async fn lazy_client_checks_the_settings_before_its_first_claim() {
    let server = Server::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let client = Client::builder().connect_lazy(Redis::from_url(&server.url()).unwrap()).unwrap();
    assert!(client.info().checks.is_empty(), "nothing is known before the client connects");
    for _ in 0..2 {
        let error = client.mutex("k").acquire().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(server.cli(&["dbsize"]), "0", "no lock was made");
    server.cli(&["config", "set", "maxmemory-policy", "noeviction"]);
    client.mutex("k").acquire().await.unwrap().release().await.unwrap();
    assert!(!client.info().checks.is_empty());
}

#[tokio::test]
async fn a_server_without_a_log_is_a_warning() {
    let found = checks(&[]).await.unwrap();
    let check = one(&found, "appendonly");
    assert_eq!((check.severity, check.found.as_str()), (Severity::Warning, "no"));
    assert!(check.effect.contains("restart"), "{check}");
    let found = checks(&["--appendonly", "yes"]).await.unwrap();
    assert_eq!(one(&found, "appendonly"), &Check::ok("appendonly", "yes"));
}

#[tokio::test]
async fn a_log_that_is_not_synced_with_every_write_is_a_warning() {
    for (value, severity) in
        [("always", Severity::Ok), ("everysec", Severity::Warning), ("no", Severity::Warning)]
    {
        let found = checks(&["--appendonly", "yes", "--appendfsync", value]).await.unwrap();
        let check = one(&found, "appendfsync");
        assert_eq!((check.severity, check.found.as_str()), (severity, value), "{check}");
    }
}

#[tokio::test]
async fn snapshots_without_a_log_are_a_warning() {
    let found = checks(&["--save", "3600 1"]).await.unwrap();
    let check = one(&found, "save");
    assert_eq!(check.severity, Severity::Warning, "{check}");
    assert!(check.effect.contains("snapshot"), "{check}");
    let found = checks(&["--save", "3600 1", "--appendonly", "yes"]).await.unwrap();
    assert_eq!(one(&found, "save").severity, Severity::Ok);
    assert_eq!(one(&checks(&[]).await.unwrap(), "save").severity, Severity::Ok);
}

#[tokio::test]
async fn a_primary_that_goes_on_without_its_replicas_is_a_warning() {
    let primary = Server::start();
    let found = checks_at(&primary.url()).await.unwrap();
    assert_eq!(one(&found, "min-replicas-to-write").severity, Severity::Ok, "it has no replicas");
    let _replica = Server::replica_of(&primary, &[]);
    let found = checks_at(&primary.url()).await.unwrap();
    let check = one(&found, "min-replicas-to-write");
    assert_eq!((check.severity, check.found.as_str()), (Severity::Warning, "0"));
    primary.cli(&["config", "set", "min-replicas-to-write", "1"]);
    let found = checks_at(&primary.url()).await.unwrap();
    assert_eq!(one(&found, "min-replicas-to-write").severity, Severity::Ok);
}

#[tokio::test]
async fn settings_that_the_user_may_not_read_are_said_to_be_unknown() {
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"]);
    server.cli(&["acl", "setuser", "u", "on", ">p", "~*", "&*", "+@all", "-config"]);
    let url = server.url().replace("redis://", "redis://u:p@");
    let found = checks_at(&url).await.unwrap();
    for name in ["appendfsync", "save"] {
        let check = one(&found, name);
        assert_eq!((check.severity, check.found.as_str()), (Severity::Ok, "unknown"), "{check}");
        assert!(check.effect.contains("CONFIG GET"), "{check}");
    }
    // INFO tells these.
    assert_eq!(one(&found, "appendonly").found, "yes");
    server.cli(&["config", "set", "maxmemory", "100mb"]);
    assert_eq!(checks_at(&url).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_user_who_may_not_use_info_connects_and_knows_nothing_of_the_settings_behind_it() {
    let primary = Server::with(&["--appendonly", "yes", "--maxmemory", "100mb"]);
    let _replica = Server::replica_of(&primary, &[]);
    primary.cli(&["acl", "setuser", "u", "on", ">p", "~*", "&*", "+@all", "-info"]);
    let url = primary.url().replace("redis://", "redis://u:p@");
    let found = checks_at(&url).await.unwrap();
    for name in ["maxmemory-policy", "appendonly", "min-replicas-to-write"] {
        let check = one(&found, name);
        assert_eq!((check.severity, check.found.as_str()), (Severity::Ok, "unknown"), "{check}");
        assert!(check.effect.contains("INFO"), "{check}");
    }
    // CONFIG GET tells this.
    assert_eq!(one(&found, "appendfsync").found, "everysec");
}

/// The scripts ask for INFO too, and versions say differently that they may not.
async fn claims_without_info_are_denied(server: &Server) {
    server.cli(&["acl", "setuser", "u", "on", ">p", "~*", "&*", "+@all", "-info"]);
    let url = server.url().replace("redis://", "redis://u:p@");
    let client = Client::new(Redis::from_url(&url).unwrap()).await.unwrap();
    let error = client.mutex("orders/42").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn claims_of_a_user_who_may_not_use_info_are_denied() {
    claims_without_info_are_denied(&Server::start()).await;
}

#[tokio::test]
async fn on_valkey_claims_of_a_user_who_may_not_use_info_are_denied() {
    let allowed = std::env::var("LEASEHOLD_ALLOW_MISSING").unwrap_or_default();
    match leasehold_servers::redis::valkey() {
        Err(missing) if allowed.split(',').any(|name| name.trim() == "valkey") => {
            eprintln!("skipped: {missing}");
        }
        _ => claims_without_info_are_denied(&Server::valkey()).await,
    }
}

/// Gives the server a memory limit and a policy with which it may evict locks.
fn let_evict(server: &Server) {
    for (name, value) in [("maxmemory", "100mb"), ("maxmemory-policy", "allkeys-lru")] {
        assert_eq!(server.cli(&["config", "set", name, value]), "OK");
    }
}

/// What the first request is told that does not fail because of the failover.
async fn refusal(client: &Client) -> Error {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match client.mutex("orders/42").try_acquire().await {
            Err(error) if error.is_retryable() => assert!(Instant::now() < end, "{error}"),
            Err(error) => return error,
            Ok(guard) => panic!("a server that may evict locks granted one: {guard:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Requests are refused because of the server's setting, and granted when that is mended.
async fn is_refused_until_mended(client: &Client, server: &Server) {
    let error = refusal(client).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("maxmemory-policy"), "{error}");
    server.cli(&["config", "set", "maxmemory-policy", "noeviction"]);
    let end = Instant::now() + Duration::from_secs(20);
    while let Err(error) = client.mutex("orders/42").try_acquire().await {
        assert!(Instant::now() < end, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_sentinel_primary_that_may_evict_locks_is_refused() {
    let mut servers = Sentinel::start();
    let client = Client::new(Redis::from_url(&servers.url()).unwrap()).await.unwrap();
    servers.servers()[1..].iter().for_each(let_evict);
    let old = servers.primary().port();
    servers.primary().process().kill();
    servers.wait_for_another_than(old);
    is_refused_until_mended(&client, servers.primary()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_cluster_primary_that_may_evict_locks_is_refused() {
    let mut servers = Cluster::start();
    let client = Client::new(Redis::from_url(&servers.url()).unwrap()).await.unwrap();
    let old = servers.owner("{:orders/42}", 0);
    let (survivor, heir) = ((old + 1) % 3, old + 3);
    let_evict(servers.server(heir));
    servers.server(old).process().kill();
    let is_heir = || servers.owner("{:orders/42}", survivor) == heir;
    wait_until("the replica took over", Duration::from_secs(20), is_heir);
    is_refused_until_mended(&client, servers.server(heir)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_of_a_cluster_that_may_evict_locks_is_enough_to_refuse() {
    let mut cluster = Cluster::start();
    checks_at(&cluster.url()).await.unwrap();
    cluster.server(1).cli(&["config", "set", "maxmemory-policy", "allkeys-lru"]);
    cluster.server(1).cli(&["config", "set", "maxmemory", "100mb"]);
    let error = checks_at(&cluster.url()).await.unwrap_err();
    assert!(error.to_string().contains("maxmemory-policy"), "{error}");
}

#[tokio::test]
async fn looking_at_the_settings_takes_one_round_trip() {
    let server = Server::start();
    checks_at(&server.url()).await.unwrap();
    server.cli(&["config", "resetstat"]);
    let client = Client::new(Redis::from_url(&server.url()).unwrap()).await.unwrap();
    let said = server.cli(&["info", "commandstats"]);
    let calls = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse::<u32>().unwrap())
    };
    // INFO: two of its sections with the connection, and three for the settings.
    assert!(calls("info") <= 5 && calls("config|get") <= 2, "{said}");
    client.close().await.unwrap();
}
