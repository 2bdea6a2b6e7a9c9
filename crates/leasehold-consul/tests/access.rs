//! Who is let in: tokens, TLS and client certificates, datacenters; and what is said to those who are not.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_consul::Consul;
use leasehold_core::{Check, Client, Error, ErrorKind, Options, Severity};
use leasehold_servers::consul::{Consul as Server, Overheard};
use leasehold_servers::redis::Certificates;

const MASTER: &str = "5c2d8d9e-4a2b-4a64-8c36-0f5d1a9e7b11";
const TOKEN: &str = "0b3f7c52-9d0e-4c6c-9f7e-3d5f2b8a6c22";

async fn take_a_turn(url: &str) -> Result<(), Error> {
    let builder = Client::builder().call_timeout(Duration::from_secs(30));
    let client = builder.connect(Consul::from_url(url)?).await?;
    client.mutex("orders/42").acquire().await?.release().await?;
    client.close().await
}

async fn refused(url: &str, kind: ErrorKind) {
    let error = take_a_turn(url).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{url}: {error}");
    assert!(![MASTER, TOKEN].iter().any(|token| error.to_string().contains(token)), "{error}");
}

/// A file with a token, which goes with its directory.
fn token_file(directory: &std::path::Path, token: &str) -> String {
    let file = directory.join(token);
    std::fs::write(&file, token).unwrap();
    file.display().to_string()
}

/// A server that knows a token with just the rights that the README names.
fn with_tokens() -> Server {
    let server = Server::with_tokens(MASTER);
    let rules =
        r#"key_prefix \"leasehold/\" { policy = \"write\" } session_prefix \"\" { policy = \"write\" }"#;
    let policy = format!(r#"{{"Name":"locks","Rules":"{rules}"}}"#);
    let made = server.ask("PUT", "/v1/acl/policy", &policy);
    assert_eq!(made.0, 200, "{made:?}");
    add_token(&server, TOKEN, "locks");
    server
}

/// Adds a token with this policy, and answers the name by which an administrator ends it.
fn add_token(server: &Server, token: &str, policy: &str) -> String {
    let token = format!(r#"{{"SecretID":"{token}","Policies":[{{"Name":"{policy}"}}]}}"#);
    let made = server.ask("PUT", "/v1/acl/token", &token);
    assert_eq!(made.0, 200, "{made:?}");
    let (_, rest) = made.1.split_once("\"AccessorID\":").unwrap();
    rest.split('"').nth(1).unwrap().to_owned()
}

/// A file that holds a token which an administrator rotates.
#[tokio::test]
async fn rotated_token_is_read_again() {
    const NEXT: &str = "7d1c6a90-1b7f-4b53-8a55-92c0d4f1e933";
    let server = with_tokens();
    let old = add_token(&server, "44444444-1b7f-4b53-8a55-92c0d4f1e933", "locks");
    let file = server.directory().join("rotated");
    std::fs::write(&file, "44444444-1b7f-4b53-8a55-92c0d4f1e933").unwrap();
    let url = format!("consul://127.0.0.1:{}?token_file={}", server.port(), file.display());
    let builder = Client::builder().call_timeout(Duration::from_secs(30));
    let client = builder.connect(Consul::from_url(&url).unwrap()).await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    add_token(&server, NEXT, "locks");
    std::fs::write(&file, NEXT).unwrap();
    assert_eq!(server.ask("DELETE", &format!("/v1/acl/token/{old}"), "").0, 200);
    guard.renew(Duration::from_secs(30)).await.unwrap();
    guard.release().await.unwrap();
    client.mutex("orders/42").acquire().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
}

/// What a client has found out about this setting.
async fn found(url: &str, name: &str) -> Check {
    let client = Client::new(Consul::from_url(url).unwrap()).await.unwrap();
    let check = client.info().checks.iter().find(|check| check.name == name).cloned();
    check.unwrap_or_else(|| panic!("{name} is not in {:?}", client.info().checks))
}

#[tokio::test]
async fn default_policy_is_checked() {
    let server = Server::start();
    let check = found(&server.url(), "acl.default_policy").await;
    assert_eq!((check.found.as_str(), check.severity), ("off", Severity::Ok), "{check}");
    let server = with_tokens();
    let file = token_file(server.directory(), MASTER);
    let url = format!("consul://127.0.0.1:{}?token_file={file}", server.port());
    let check = found(&url, "acl.default_policy").await;
    assert_eq!((check.found.as_str(), check.severity), ("deny", Severity::Ok), "{check}");
}

#[tokio::test]
async fn settings_that_the_token_may_not_read_are_unknown() {
    let server = with_tokens();
    let file = token_file(server.directory(), TOKEN);
    let url = format!("consul://127.0.0.1:{}?token_file={file}", server.port());
    for name in ["acl.default_policy", "leave_on_terminate", "session_ttl_min"] {
        let check = found(&url, name).await;
        assert_eq!((check.found.as_str(), check.severity), ("unknown", Severity::Ok), "{check}");
    }
}

#[tokio::test]
async fn agent_that_leaves_when_it_is_terminated_is_a_warning() {
    let check = found(&Server::start().url(), "leave_on_terminate").await;
    assert_eq!((check.found.as_str(), check.severity), ("false", Severity::Ok), "{check}");
    let server = Server::with("leave_on_terminate = true");
    let check = found(&server.url(), "leave_on_terminate").await;
    assert_eq!((check.found.as_str(), check.severity), ("true", Severity::Warning), "{check}");
}

#[tokio::test]
async fn servers_that_want_longer_sessions_raise_the_shortest_lease() {
    let check = found(&Server::start().url(), "session_ttl_min").await;
    assert_eq!((check.found.as_str(), check.severity), ("1s", Severity::Ok), "{check}");
    let server = Server::with("session_ttl_min = \"15s\"");
    // The URL says that they take one second.
    let check = found(&server.url(), "session_ttl_min").await;
    assert_eq!((check.found.as_str(), check.severity), ("15s", Severity::Warning), "{check}");
    let client = Client::new(Consul::from_url(&server.url()).unwrap()).await.unwrap();
    assert_eq!(client.info().min_lease, Duration::from_secs(15));
    let leased_for = |seconds| client.mutex("k").with(Options::new().lease(Duration::from_secs(seconds)));
    let error = leased_for(2).acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("15s"), "{error}");
    leased_for(15).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_token_with_the_rights_of_the_readme_has_all_it_needs() {
    let server = with_tokens();
    let file = token_file(server.directory(), TOKEN);
    let url = |rest: &str| format!("consul://127.0.0.1:{}{rest}", server.port());
    take_a_turn(&url(&format!("?token_file={file}"))).await.unwrap();
    refused(&url(&format!("/elsewhere?token_file={file}")), ErrorKind::Denied).await;
    refused(&url(""), ErrorKind::Denied).await;
    let wrong = token_file(server.directory(), "11111111-2222-3333-4444-555555555555");
    refused(&url(&format!("?token_file={wrong}")), ErrorKind::Denied).await;
}

#[tokio::test]
async fn a_token_is_in_no_path_that_a_server_or_a_proxy_would_log() {
    let server = with_tokens();
    let way = Overheard::to(server.port());
    let file = token_file(server.directory(), TOKEN);
    take_a_turn(&format!("consul://127.0.0.1:{}?token_file={file}", way.port())).await.unwrap();
    let asked = way.asked();
    assert!(!asked.is_empty());
    assert!(!asked.iter().any(|line| line.contains(TOKEN) || line.contains("token")), "{asked:?}");
}

#[tokio::test]
async fn tls_is_checked_on_both_sides() {
    let certificates = Certificates::make();
    let (server, port) = Server::with_tls(&certificates);
    let file = |path: std::path::PathBuf| path.display().to_string();
    let ca = file(certificates.certificate("ca"));
    let own = format!(
        "&cert={}&key={}",
        file(certificates.certificate("client")),
        file(certificates.key("client"))
    );
    let url = |rest: &str| format!("consuls://127.0.0.1:{port}{rest}");
    take_a_turn(&url(&format!("?cacert={ca}{own}"))).await.unwrap();
    assert!(take_a_turn(&url(&format!("?cacert={ca}"))).await.is_err(), "without a certificate");
    let stranger = file(Certificates::make().certificate("client"));
    assert!(take_a_turn(&url(&format!("?cacert={stranger}{own}"))).await.is_err(), "an unknown authority");
    let plain = format!("consul://127.0.0.1:{port}");
    assert!(take_a_turn(&plain).await.is_err(), "in plain text");
    drop(server);
}

#[tokio::test]
async fn a_datacenter_is_named_in_every_request() {
    let server = Server::start();
    let way = Overheard::to(server.port());
    take_a_turn(&format!("consul://127.0.0.1:{}?dc=dc1", way.port())).await.unwrap();
    let asked = way.asked();
    assert!(!asked.is_empty() && asked.iter().all(|line| line.ends_with("&dc=dc1")), "{asked:?}");
    let nowhere = take_a_turn(&format!("{}&dc=nowhere", server.url())).await.unwrap_err();
    assert!(nowhere.to_string().contains("datacenter"), "{nowhere}");
}

#[tokio::test]
async fn a_namespace_is_named_and_servers_that_have_none_say_so() {
    let server = Server::start();
    let way = Overheard::to(server.port());
    let error = take_a_turn(&format!("consul://127.0.0.1:{}?ns=team", way.port())).await.unwrap_err();
    let asked = way.asked();
    assert!(!asked.is_empty() && asked.iter().all(|line| line.ends_with("&ns=team")), "{asked:?}");
    assert!(error.to_string().contains("amespace"), "{error}");
}

/// Adds a policy with these rules, and a token with it.
fn add_role(server: &Server, name: &str, token: &str, rules: &str) {
    let policy = format!(r#"{{"Name":"{name}","Rules":"{}"}}"#, rules.replace('"', "\\\""));
    let made = server.ask("PUT", "/v1/acl/policy", &policy);
    assert_eq!(made.0, 200, "{made:?}");
    add_token(server, token, name);
}

/// Tries to write and delete everything of the locks with this token, and to end their sessions.
fn can_change_nothing(server: &Server, token: &str) {
    let list = |path: &str| -> Vec<String> {
        let (_, said) = server.ask("GET", path, "");
        said.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let names = list("/v1/kv/leasehold/?keys");
    assert!(names.iter().any(|name| name.contains("/locks/")), "{names:?}");
    for name in &names {
        let path = format!("/v1/kv/{}", name.replace('~', "%7E"));
        assert_eq!(server.ask_as(token, "PUT", &path, "forged").0, 403, "{name}");
        assert_eq!(server.ask_as(token, "DELETE", &path, "").0, 403, "{name}");
    }
    let sessions = list("/v1/kv/leasehold/alive/?keys");
    assert!(!sessions.is_empty(), "the holder has a session");
    for session in sessions.iter().filter_map(|name| name.rsplit('/').next()) {
        assert_eq!(server.ask_as(token, "PUT", &format!("/v1/session/destroy/{session}"), "").0, 403);
        assert_eq!(server.ask_as(token, "PUT", &format!("/v1/session/renew/{session}"), "").0, 403);
    }
}

async fn held(server: &Server) -> (Client, leasehold_core::Guard) {
    let file = token_file(server.directory(), TOKEN);
    let url = format!("consul://127.0.0.1:{}?token_file={file}", server.port());
    let client = Client::new(Consul::from_url(&url).unwrap()).await.unwrap();
    let guard = client.mutex("orders/42").acquire().await.unwrap();
    (client, guard)
}

#[tokio::test]
async fn reader_sees_locks_and_can_change_nothing() {
    const READER: &str = "3a1c6a90-1b7f-4b53-8a55-92c0d4f1e944";
    let server = with_tokens();
    let rules = r#"key_prefix "leasehold/" { policy = "read" } session_prefix "" { policy = "read" }"#;
    add_role(&server, "reader", READER, rules);
    let (_client, guard) = held(&server).await;
    let file = token_file(server.directory(), READER);
    let url = format!("consul://127.0.0.1:{}?token_file={file}", server.port());
    let reader = Client::new(Consul::from_url(&url).unwrap()).await.unwrap();
    let seen = reader.inspect("orders/42").await.unwrap().unwrap();
    assert_eq!(seen.holders[0].token, guard.token());
    let denied = |error: Error| assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    denied(reader.evict("orders/42", guard.token()).await.unwrap_err());
    denied(reader.mutex("another").try_acquire().await.map(drop).unwrap_err());
    can_change_nothing(&server, READER);
    guard.renew(Duration::from_secs(30)).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn writer_of_other_keys_neither_sees_nor_changes_locks() {
    const APP: &str = "4b1c6a90-1b7f-4b53-8a55-92c0d4f1e955";
    let server = with_tokens();
    add_role(&server, "app", APP, r#"key_prefix "app/" { policy = "write" }"#);
    let (_client, guard) = held(&server).await;
    assert_eq!(server.ask_as(APP, "PUT", "/v1/kv/app/state", "mine").0, 200);
    assert_eq!(server.ask_as(APP, "GET", "/v1/kv/leasehold/locks/orders/42", "").0, 403);
    can_change_nothing(&server, APP);
    guard.renew(Duration::from_secs(30)).await.unwrap();
    guard.release().await.unwrap();
}

/// A token that reads the locks and writes messages knows everything that a message could say.
#[tokio::test]
async fn writer_of_messages_cannot_start_a_waiter() {
    const PUBLISHER: &str = "5c1c6a90-1b7f-4b53-8a55-92c0d4f1e966";
    let server = with_tokens();
    let rules =
        r#"key_prefix "leasehold/" { policy = "read" } key_prefix "leasehold/clients/" { policy = "write" }"#;
    add_role(&server, "publisher", PUBLISHER, rules);
    let (client, guard) = held(&server).await;
    let waiter = {
        let file = token_file(server.directory(), TOKEN);
        let url = format!("consul://127.0.0.1:{}?token_file={file}", server.port());
        Client::new(Consul::from_url(&url).unwrap()).await.unwrap()
    };
    let mut waiting = tokio::spawn(async move { waiter.mutex("orders/42").acquire().await });
    while client.inspect("orders/42").await.unwrap().unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seat = client.inspect("orders/42").await.unwrap().unwrap().waiters[0].seat;
    let message = format!(
        r#"{{"lock":"orders/42","granted":[{{"seat":{seat},"token":{},"units":4503599627370496}}]}}"#,
        seat + 1
    );
    let (_, names) = server.ask_as(PUBLISHER, "GET", "/v1/kv/leasehold/clients/?keys", "");
    let sessions: std::collections::BTreeSet<&str> = names
        .split('"')
        .filter_map(|name| name.strip_prefix("leasehold/clients/")?.split('/').next())
        .collect();
    assert!(!sessions.is_empty(), "{names}");
    for session in sessions {
        let path = format!("/v1/kv/leasehold/clients/{session}/{seat}");
        let (status, said) = server.ask_as(PUBLISHER, "PUT", &path, &message);
        assert_eq!(status, 200, "{said}");
    }
    let started = tokio::time::timeout(Duration::from_secs(2), &mut waiting).await;
    assert!(started.is_err(), "it started beside the holder: {started:?}");
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
