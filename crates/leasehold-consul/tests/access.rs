//! Who is let in: tokens, TLS and client certificates, datacenters; and what is said to those who are not.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::time::Duration;

use leasehold_consul::Consul;
use leasehold_core::{Client, Error, ErrorKind};
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
    let token = format!(r#"{{"SecretID":"{TOKEN}","Policies":[{{"Name":"locks"}}]}}"#);
    let made = server.ask("PUT", "/v1/acl/token", &token);
    assert_eq!(made.0, 200, "{made:?}");
    server
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
