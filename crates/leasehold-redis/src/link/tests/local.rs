use leasehold_servers::free_port;
use leasehold_servers::redis::{Certificates, Redis};

use super::*;

#[tokio::test]
async fn a_socket_is_as_good_as_a_port() {
    let directory = Redis::start();
    let path = directory.directory().join("s.sock");
    let _server = Redis::with(&["--unixsocket", path.to_str().unwrap()]);
    let link = link(&format!("redis+unix://{}", path.display()));
    open(&link).await.unwrap();
    assert_eq!(count(&link).await.unwrap(), 1);
}

#[tokio::test]
async fn a_database_is_chosen_and_kept() {
    let server = Redis::start();
    let link = link(&format!("{}/3", server.url()));
    count(&link).await.unwrap();
    assert_eq!(server.cli(&["-n", "3", "get", "count"]), "1");
}

/// A server that speaks TLS on a second port and wants certificates of its clients.
fn encrypted(certificates: &Certificates) -> (Redis, u16) {
    let port = free_port();
    let file = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let server = Redis::with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file(certificates.certificate("server")),
        "--tls-key-file",
        &file(certificates.key("server")),
        "--tls-ca-cert-file",
        &file(certificates.certificate("ca")),
    ]);
    (server, port)
}

#[tokio::test]
async fn a_client_certificate_opens_an_encrypted_server() {
    let certificates = Certificates::make();
    let (_server, port) = encrypted(&certificates);
    let link = link(&format!(
        "rediss://127.0.0.1:{port}?cacert={}&cert={}&key={}",
        certificates.certificate("ca").display(),
        certificates.certificate("client").display(),
        certificates.key("client").display()
    ));
    open(&link).await.unwrap();
    assert_eq!(count(&link).await.unwrap(), 1);
}

#[tokio::test]
async fn a_server_whose_certificate_nobody_signed_is_refused() {
    let certificates = Certificates::make();
    let (_server, port) = encrypted(&certificates);
    let error = open(&link(&format!("rediss://127.0.0.1:{port}"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let other = Certificates::make();
    let ca = other.certificate("ca");
    let error = open(&link(&format!("rediss://127.0.0.1:{port}?cacert={}", ca.display()))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_said_before_anything_is_sent() {
    let error = open(&link("rediss://127.0.0.1:1?cacert=/nowhere/ca.pem")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}
