//! Who is let in: users, TLS and client certificates; and what is said to those who are not.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::net::TcpListener;
use std::time::Duration;

use leasehold_core::{Client, Error, ErrorKind, Options};
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
