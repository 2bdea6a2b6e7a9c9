//! Who is let in: users, TLS and client certificates; and what is said to those who are not.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::net::TcpListener;
use std::time::Duration;

use leasehold_core::{Check, Client, Error, ErrorKind, Options, Severity};
use leasehold_etcd::Etcd;
use leasehold_servers::etcd::Etcd as Server;
use leasehold_servers::redis::Certificates;

const PASSWORD: &str = "hunter2";

async fn take_a_turn(url: &str) -> Result<(), Error> {
    let builder = Client::builder().call_timeout(Duration::from_secs(5));
    let client = builder.connect(Etcd::from_url(url)?).await?;
    client.mutex("orders/42").acquire().await?.release().await?;
    client.close().await
}

async fn refused(url: &str, kind: ErrorKind) {
    let error = take_a_turn(url).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{url}: {error}");
    assert!(!error.to_string().contains(PASSWORD), "{error}");
}

#[tokio::test]
async fn a_user_with_a_right_to_the_prefix_has_all_it_needs() {
    let server = Server::with_users(PASSWORD);
    let url = |user: &str| format!("etcd://{user}@127.0.0.1:{}", server.port());
    take_a_turn(&url(&format!("locks:{PASSWORD}"))).await.unwrap();
    refused(&url("locks:wrong"), ErrorKind::Denied).await;
    refused(&url(&format!("nobody:{PASSWORD}")), ErrorKind::Denied).await;
    refused(&server.url(), ErrorKind::Denied).await;
    let elsewhere = format!("{}?prefix=other", url(&format!("locks:{PASSWORD}")));
    refused(&elsewhere, ErrorKind::Denied).await;
}

#[tokio::test]
async fn a_login_that_ran_out_is_made_again() {
    let server = Server::with_users(PASSWORD);
    let url = format!("etcd://locks:{PASSWORD}@127.0.0.1:{}", server.port());
    let builder = Client::builder().defaults(Options::new().lease(Duration::from_secs(60)));
    let client = builder.connect(Etcd::from_url(&url).unwrap()).await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    // That ends all tokens.
    server.ctl(&["auth", "disable"]);
    server.ctl(&["auth", "enable"]);
    guard.release().await.unwrap();
    client.mutex("orders/42").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn tls_is_checked_on_both_sides() {
    let certificates = Certificates::make();
    let server = Server::with_tls(&certificates);
    let file = |path: std::path::PathBuf| path.display().to_string();
    let ca = file(certificates.certificate("ca"));
    let own = format!(
        "&cert={}&key={}",
        file(certificates.certificate("client")),
        file(certificates.key("client"))
    );
    let url = |rest: &str| format!("etcds://127.0.0.1:{}{rest}", server.port());
    take_a_turn(&url(&format!("?cacert={ca}{own}"))).await.unwrap();
    // Whoever signed its own certificate is not the authority that the server knows, and the reverse.
    assert!(take_a_turn(&url(&format!("?cacert={ca}"))).await.is_err());
    let stranger = file(Certificates::make().certificate("client"));
    assert!(take_a_turn(&url(&format!("?cacert={stranger}{own}"))).await.is_err());
    assert!(take_a_turn(&server.url()).await.is_err(), "in plain text");
}

#[tokio::test]
async fn what_is_no_etcd_is_not_taken_for_one() {
    // A server that accepts and says nothing.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    refused(&format!("etcd://127.0.0.1:{port}?timeout=300ms&connect_timeout=300ms"), ErrorKind::Unavailable)
        .await;
    drop(silent);
    refused(&format!("etcd://127.0.0.1:{port}"), ErrorKind::Unavailable).await;
}

/// What a client has found out about this setting.
async fn found(url: &str, name: &str) -> Check {
    let client = Client::new(Etcd::from_url(url).unwrap()).await.unwrap();
    let check = client.info().checks.iter().find(|check| check.name == name).cloned();
    check.unwrap_or_else(|| panic!("{name} is not in {:?}", client.info().checks))
}

/// Raises an alarm, as a member does that is out of space or finds its data damaged.
fn raise(server: &Server, alarm: &str) {
    let said = server.ask("/v3/maintenance/alarm", &format!(r#"{{"action":"ACTIVATE","alarm":"{alarm}"}}"#));
    assert!(said.is_some(), "{alarm}");
}

#[tokio::test]
async fn auth_is_checked() {
    let server = Server::start();
    assert_eq!(found(&server.url(), "auth").await, Check::ok("auth", "no user in the URL"));
    let server = Server::with_users(PASSWORD);
    let url = format!("etcd://locks:{PASSWORD}@127.0.0.1:{}", server.port());
    assert_eq!(found(&url, "auth").await.found, "enabled");
}

/// Old versions of etcd check rights at the top level of a transaction only (GHSA-rfx7-8w68-q57q), and Leasehold's are
/// nested. The check must tell these versions from others.
#[tokio::test]
async fn servers_on_which_a_reader_can_evict_are_a_warning() {
    let server = Server::with_users(PASSWORD);
    add_user(&server, "reader", "read", "leasehold/");
    let (_client, guard, _) = held(&server).await;
    let url = format!("etcd://reader:{PASSWORD}@127.0.0.1:{}", server.port());
    let check = found(&url, "auth").await;
    let reader = Client::new(Etcd::from_url(&url).unwrap()).await.unwrap();
    let evicted = reader.evict("orders/42", guard.token()).await;
    assert_eq!(check.severity == Severity::Warning, evicted.is_ok(), "{check}, {evicted:?}");
}

#[tokio::test]
async fn version_is_checked() {
    let server = Server::start();
    let check = found(&server.url(), "version").await;
    assert!(check.severity == Severity::Ok && check.found.starts_with("3."), "{check}");
}

#[tokio::test]
async fn member_without_space_is_a_warning() {
    let server = Server::start();
    assert_eq!(found(&server.url(), "alarms").await, Check::ok("alarms", "none"));
    raise(&server, "NOSPACE");
    let check = found(&server.url(), "alarms").await;
    assert_eq!((check.found.as_str(), check.severity), ("NOSPACE", Severity::Warning), "{check}");
}

#[tokio::test]
async fn damaged_member_is_refused() {
    let server = Server::start();
    raise(&server, "CORRUPT");
    let refused = Client::new(Etcd::from_url(&server.url()).unwrap()).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("CORRUPT"), "{refused}");
}

#[tokio::test]
async fn settings_that_etcd_does_not_tell_are_unknown() {
    let server = Server::start();
    for name in ["experimental-enable-lease-checkpoint", "unsafe-no-fsync"] {
        let check = found(&server.url(), name).await;
        assert_eq!((check.found.as_str(), check.severity), ("unknown", Severity::Ok), "{check}");
        assert!(!check.effect.is_empty());
    }
}

/// Adds a user who may do this below that prefix, and answers how `etcdctl` is called as that user.
fn add_user(server: &Server, name: &str, right: &str, prefix: &str) -> String {
    server.ctl(&["user", "add", &format!("{name}:{PASSWORD}")]);
    server.ctl(&["role", "add", name]);
    server.ctl(&["user", "grant-role", name, name]);
    server.ctl(&["role", "grant-permission", name, "--prefix=true", right, prefix]);
    format!("--user={name}:{PASSWORD}")
}

/// A client that holds `orders/42` as the user of the locks, and the names of all keys.
async fn held(server: &Server) -> (Client, leasehold_core::Guard, Vec<String>) {
    let url = format!("etcd://locks:{PASSWORD}@127.0.0.1:{}", server.port());
    let client = Client::new(Etcd::from_url(&url).unwrap()).await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    let names = server.ctl(&["get", "--prefix", "--keys-only", "leasehold/"]);
    let names = names.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    (client, guard, names)
}

#[tokio::test]
async fn reader_sees_locks_and_can_change_nothing() {
    let server = Server::with_users(PASSWORD);
    let user = add_user(&server, "reader", "read", "leasehold/");
    let (_client, guard, names) = held(&server).await;
    let url = format!("etcd://reader:{PASSWORD}@127.0.0.1:{}", server.port());
    let reader = Client::new(Etcd::from_url(&url).unwrap()).await.unwrap();
    let seen = reader.inspect("orders/42").await.unwrap().unwrap();
    assert_eq!(seen.holders[0].token, guard.token());
    let denied = |error: Error| assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    denied(reader.mutex("another").try_acquire().await.map(drop).unwrap_err());
    for name in &names {
        assert!(server.try_ctl(&[&user, "put", name, "forged"]).is_err(), "{name}");
        assert!(server.try_ctl(&[&user, "del", name]).is_err(), "{name}");
    }
    // The last part of an inbox is the lease of its session.
    let lease = names.iter().find_map(|name| name.strip_prefix("leasehold/inbox/")?.split('/').nth(1));
    assert!(server.try_ctl(&[&user, "lease", "revoke", lease.unwrap()]).is_err());
    guard.renew(Duration::from_secs(30)).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn writer_of_other_keys_neither_sees_nor_changes_locks() {
    let server = Server::with_users(PASSWORD);
    let user = add_user(&server, "app", "readwrite", "app/");
    let (_client, guard, names) = held(&server).await;
    let url = format!("etcd://app:{PASSWORD}@127.0.0.1:{}", server.port());
    assert_eq!(take_a_turn(&url).await.unwrap_err().kind(), ErrorKind::Denied);
    for name in &names {
        assert!(server.try_ctl(&[&user, "get", name]).is_err(), "{name}");
        assert!(server.try_ctl(&[&user, "put", name, "forged"]).is_err(), "{name}");
        assert!(server.try_ctl(&[&user, "del", name]).is_err(), "{name}");
    }
    server.try_ctl(&[&user, "put", "app/state", "mine"]).unwrap();
    guard.renew(Duration::from_secs(30)).await.unwrap();
    guard.release().await.unwrap();
}

/// A role that reads the locks and writes inboxes knows everything that a note could say.
#[tokio::test]
async fn writer_of_inboxes_cannot_start_a_waiter() {
    let server = Server::with_users(PASSWORD);
    let user = add_user(&server, "publisher", "read", "leasehold/");
    server.ctl(&["role", "grant-permission", "publisher", "--prefix=true", "readwrite", "leasehold/inbox/"]);
    let (_client, guard, _) = held(&server).await;
    let url = format!("etcd://locks:{PASSWORD}@127.0.0.1:{}", server.port());
    let waiter = Client::new(Etcd::from_url(&url).unwrap()).await.unwrap();
    let mut waiting = tokio::spawn(async move { waiter.mutex("orders/42").acquire().await });
    let queue = "leasehold/lock/orders%2F42/wait/";
    let read =
        |prefix: &str| server.try_ctl(&[&user, "get", "--prefix", "--write-out=json", prefix]).unwrap();
    let created = loop {
        let found = read(queue);
        if let Some((_, rest)) = found.split_once("\"create_revision\":") {
            break rest.split(',').next().unwrap().parse::<u64>().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let note = format!(
        r#"{{"key":"orders/42","promoted":[{{"seat":{},"nth":0,"units":4503599627370496}}]}}"#,
        created * 128
    );
    let inboxes = server.try_ctl(&[&user, "get", "--prefix", "--keys-only", "leasehold/inbox/"]).unwrap();
    for inbox in inboxes.lines().filter(|line| !line.is_empty()) {
        server.try_ctl(&[&user, "put", inbox, &note]).unwrap();
    }
    let started = tokio::time::timeout(Duration::from_secs(2), &mut waiting).await;
    assert!(started.is_err(), "it started beside the holder: {started:?}");
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
